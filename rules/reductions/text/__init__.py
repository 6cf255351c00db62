"""Evidence in words."""
