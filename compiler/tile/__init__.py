"""Tile IR: the operations that kernels are made of, without layouts and without a target."""

from . import (
    assembly,
    blocks,
    control,
    debug,
    elementwise,
    map,
    matmul,
    memory,
    movement,
    program,
    records,
    reduction,
    shape,
)

__all__ = [
    "assembly",
    "blocks",
    "control",
    "debug",
    "elementwise",
    "map",
    "matmul",
    "memory",
    "movement",
    "program",
    "records",
    "reduction",
    "shape",
]
