"""The bundle: what a collection is made of, read from wherever it lies, and written."""
