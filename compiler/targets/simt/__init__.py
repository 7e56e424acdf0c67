"""What all SIMT targets share: GPU IR to LLVM text, over the interface that :mod:`.machine` states."""

from . import (  # noqa: F401  (each registers its rules)
    atomics,
    casts,
    control,
    convert,
    debug,
    division,
    elementwise,
    histogram,
    map,
    memory,
    movement,
    multiply_add,
    records,
    reduction,
    scan,
    shape,
    widening,
)
from .lowering import RULES, Lowering, lower_kernel
from .machine import SimtTarget
from .records import begin_track, end_track

__all__ = ["RULES", "Lowering", "SimtTarget", "begin_track", "end_track", "lower_kernel"]
