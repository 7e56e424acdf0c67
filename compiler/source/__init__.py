"""Kernels as text: their parameters, what their names mean, how they use their arguments. Parsed, never executed."""
