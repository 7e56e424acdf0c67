"""What programs use beside kernels, under the names of Triton's package ``triton.tools``."""
