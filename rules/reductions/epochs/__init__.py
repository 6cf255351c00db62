"""What captures of NICs tell epoch by epoch: who sends to whom, when each operator ran, and how fast it was (Pulse)."""
