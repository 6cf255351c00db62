"""What log lines tell of positions, waits and ends."""
