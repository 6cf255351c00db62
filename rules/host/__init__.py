"""Rules on what a rank's host code was doing while its peers waited."""
