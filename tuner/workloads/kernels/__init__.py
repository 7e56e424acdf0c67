"""Kernels of the built-in workloads. Read as text, never imported."""
