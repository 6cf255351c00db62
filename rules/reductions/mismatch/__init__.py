"""Calls of one communicator that differ between its members."""
