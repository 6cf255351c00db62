"""What makes a bundle safe to share: secrets and names replaced in every format, and what is left proved to be whole."""
