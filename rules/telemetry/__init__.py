"""Rules on what is missing from the evidence."""
