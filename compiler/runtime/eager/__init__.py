"""Kernels that run as Python, under TRITON_INTERPRET=1."""
