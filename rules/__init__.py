"""Rules: what the reduced facts of a case say about roots, victims and causes."""
