"""Tile IR: the operations that kernels are made of, without layouts and without a target."""

from . import control, debug, elementwise, matmul, memory, program, reduction, shape

__all__ = [
    "control",
    "debug",
    "elementwise",
    "matmul",
    "memory",
    "program",
    "reduction",
    "shape",
]
