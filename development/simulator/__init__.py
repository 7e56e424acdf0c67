"""Runs generated LLVM text on NumPy, warp by warp, to check the code generator where there is no GPU.

Every SSA value is an array over the 32 lanes of a warp; warps, and the asynchronous operations that they start, take
turns in an order that the caller chooses. Every access is checked against the arrays that were given, against
alignment, against reading shared memory that nobody wrote, and against accesses to the same bytes that nothing orders
with it: barriers, mbarriers, waits for groups and fences between the proxies do. Nobody being able to go on is an
error that says who waits for what.

Not simulated: memory ordering by atomics and volatile accesses, races between programs of different clusters, bank
conflicts, counts of registers, caches, time.
"""

from .launch import empty_buffer, simulate_launch, simulate_recorded
from .machine import simulate
from .schedule import shuffled
from .tensor_map import SimulatedTensorMap
from .values import SimulationError

__all__ = [
    "SimulatedTensorMap",
    "SimulationError",
    "empty_buffer",
    "shuffled",
    "simulate",
    "simulate_launch",
    "simulate_recorded",
]
