"""Runs generated LLVM text on NumPy, warp by warp, to check the code generator where there is no GPU.

Every SSA value is an array over the 32 lanes of a warp; warps run one after the other from barrier to barrier, in an
order that the caller chooses. Every access is checked against the arrays that were given, against alignment, against
reading shared memory that nobody wrote, and against what other threads did since the last barrier.
"""

from .launch import simulate_launch
from .machine import simulate
from .schedule import shuffled
from .tensor_map import SimulatedTensorMap
from .values import SimulationError

__all__ = ["SimulatedTensorMap", "SimulationError", "shuffled", "simulate", "simulate_launch"]
