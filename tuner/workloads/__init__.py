"""What is tuned: a kernel, its arguments, a reference, FLOP and byte formulas, a space."""
