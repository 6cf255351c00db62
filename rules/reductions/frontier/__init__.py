"""Exact accounting of step times over recorded stages."""
