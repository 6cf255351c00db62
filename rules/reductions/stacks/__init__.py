"""What threads were doing, from their call paths."""
