"""Rules on the processes of the ranks."""
