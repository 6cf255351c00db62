"""What is odd of GPUs, NICs and ports."""
