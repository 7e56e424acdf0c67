"""Runs generated LLVM text on NumPy, warp by warp, to check the code generator where there is no GPU.

Every SSA value is an array over the 32 lanes of a warp; warps run one after the other from barrier to barrier, in an
order that the caller chooses, so a missing barrier shows as a wrong result in some order. Every access is checked
against the arrays that were given, against alignment and against reading shared memory that nobody wrote.
"""

from .machine import simulate
from .values import SimulationError

__all__ = ["SimulationError", "simulate"]
