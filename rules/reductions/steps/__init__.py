"""The steps of a training job in the calls of its ranks: where they begin, and how long they took."""
