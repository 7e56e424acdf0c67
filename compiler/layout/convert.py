"""How to bring a tile from one register layout to another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..hardware import REGISTER_BITS
from .f2 import Echelon, LayoutError
from .linear import LinearLayout
from .shuffle import WarpShuffle, plan_shuffle
from .swizzle import SharedMemory, plan_shared_memory

BARRIER_COST = 32
"""Cost of a barrier and of the latency of a round trip, in the units of ``SharedMemory.cost`` (an estimate)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Every register is already in place."""


@dataclass(frozen=True, slots=True)
class RegisterPermute:
    """Within each thread: destination register i is source register ``indices[i]``."""

    indices: tuple[int, ...]


Conversion = Identity | RegisterPermute | WarpShuffle | SharedMemory


@lru_cache(maxsize=8192)
def plan_conversion(
    source: LinearLayout,
    result: LinearLayout,
    element_bits: int,
    scratch_limit: int | None = None,
    barrier_cost: int = BARRIER_COST,
) -> Conversion:
    """The cheapest way from ``source`` to ``result`` for elements of ``element_bits`` (1 to 64).

    ``scratch_limit``: bytes of shared memory that the caller would like not to exceed; the plan then runs in rounds as
    far as the layouts allow (see ``SharedMemory.bytes`` for what it takes). ``barrier_cost``: of the barrier that
    shared memory needs. Raises LayoutError when shapes or thread counts differ, when a wanted element is held by no
    thread, and when data would have to move between blocks of a cluster.
    """
    _check(source, result)
    if source.columns == result.columns and source.registers == result.registers:
        return Identity()
    indices = _register_indices(source, result)
    if indices is not None:
        return RegisterPermute(indices)
    shuffle = plan_shuffle(source, result, element_bits)
    shared = plan_shared_memory(source, result, element_bits, scratch_limit)
    if shuffle is not None and _shuffle_cost(shuffle, element_bits) <= shared.cost + barrier_cost:
        return shuffle
    return shared


def _check(source: LinearLayout, result: LinearLayout) -> None:
    if source.shape != result.shape:
        raise LayoutError(f"cannot convert a tile of {source.shape} to one of {result.shape}")
    if (source.lanes, source.warps) != (result.lanes, result.warps):
        raise LayoutError(
            f"cannot convert between {source.lanes} lanes x {source.warps} warps "
            f"and {result.lanes} lanes x {result.warps} warps"
        )
    if source.flat_block != result.flat_block:
        raise LayoutError(f"cannot move data between blocks, from {source} to {result}")
    held = Echelon(source.flat_register + source.flat_lane + source.flat_warp)
    wanted = result.flat_register + result.flat_lane + result.flat_warp
    if any(flat not in held for flat in wanted):
        raise LayoutError(f"no thread holds some elements of {result} in {source}")


def _register_indices(source: LinearLayout, result: LinearLayout) -> tuple[int, ...] | None:
    if source.flat_lane != result.flat_lane or source.flat_warp != result.flat_warp:
        return None
    space = Echelon(source.flat_register)
    indices = [space.solve(flat) for flat in result.register_offsets()]
    if None in indices:
        return None
    return tuple(index or 0 for index in indices)


def _shuffle_cost(plan: WarpShuffle, element_bits: int) -> int:
    return (2 if element_bits > REGISTER_BITS else 1) * plan.cost
