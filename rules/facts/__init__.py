"""What was observed: symptoms that ask for an explanation, and which kind of evidence showed them."""
