"""Calls of every rank and where they stand in their communicators."""
