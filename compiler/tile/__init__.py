"""Tile IR: the operations that kernels are made of, without layouts and without a target."""

from . import blocks, control, debug, elementwise, map, matmul, memory, movement, program, reduction, shape

__all__ = [
    "blocks",
    "control",
    "debug",
    "elementwise",
    "map",
    "matmul",
    "memory",
    "movement",
    "program",
    "reduction",
    "shape",
]
