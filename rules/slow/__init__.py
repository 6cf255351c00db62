"""Rules on jobs that move, but slower than they could."""
