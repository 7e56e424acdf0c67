"""Kernels of the built-in workloads, in the kernel language. Read as text, never imported."""
