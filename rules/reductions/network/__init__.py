"""Chunks, messages and queue pairs: what moves and what does not."""
