"""NVIDIA's GPUs by Triton's names."""

from deuteron.compat.triton.backends.nvidia import compiler as compiler
from deuteron.compat.triton.backends.nvidia import driver as driver
