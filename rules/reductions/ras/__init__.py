"""What reports of NCCL RAS tell."""
