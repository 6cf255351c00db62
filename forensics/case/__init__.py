"""The case: every fact of every source, in documented tables."""
