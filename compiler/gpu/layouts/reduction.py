"""How reductions run on a layout: they combine inside threads, then inside warps, then across warps through shared
memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...hardware import VECTOR_BYTES
from ...ir.types import Tile
from ...layout import LinearLayout, slice_layout
from ...layout.access import element_bytes_of


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """The steps for one layout and axis.

    ``groups``: registers of the operand that are combined with each other, one tuple per distinct position of the
    result; ``group_of``: the group of every register of the result layout. ``lane_bits``: lane bits to combine over by
    butterfly shuffles. ``warp_bits``: warp bits to combine over through shared memory; ``partials`` (their number of
    values) stand next to each other for every element of the result.
    """

    groups: tuple[tuple[int, ...], ...]
    group_of: tuple[int, ...]
    lane_bits: tuple[int, ...]
    warp_bits: tuple[int, ...]
    result: LinearLayout

    @property
    def partials(self) -> int:
        """How many values of one element warps bring together: a power of two."""
        return 1 << len(self.warp_bits)

    @property
    def positions(self) -> list[int]:
        """The index in the result (of thread 0) of each group."""
        offsets = self.result.register_offsets()
        return [offsets[self.group_of.index(group)] for group in range(len(self.groups))]

    def share_of(self, element_bytes: int) -> tuple[int, tuple[int, ...]]:
        """How many of an element's partials a lane reads, and the lane bits over which the rest is exchanged.

        Lanes that get the same result would read the same partials and add them up all alike: with 32 warps 8 reads, 31
        sums and as many registers, where one read of 16 bytes each, 3 sums and 3 shuffles do.
        """
        sharing: tuple[int, ...] = ()
        each = self.partials
        for bit in self.lane_bits:
            if each * element_bytes > VECTOR_BYTES:
                sharing += (bit,)
                each //= 2
        return each, sharing


@lru_cache(maxsize=2048)
def plan_reduction(layout: LinearLayout, axis: int) -> ReductionPlan:
    """The steps that reduce a tile of ``layout`` along ``axis``; every basis moves along the axis only or not at
    all."""
    result = slice_layout(layout, axis)
    positions = result.register_offsets()
    seen: set[int] = set()
    members: dict[int, list[int]] = {}
    for register, flat in enumerate(layout.register_offsets()):
        if flat not in seen:
            seen.add(flat)
            members.setdefault(positions[register], []).append(register)
    index = {position: i for i, position in enumerate(members)}
    return ReductionPlan(
        groups=tuple(tuple(m) for m in members.values()),
        group_of=tuple(index[p] for p in positions),
        lane_bits=tuple(bit for bit, basis in enumerate(layout.lane) if basis[axis]),
        warp_bits=tuple(bit for bit, basis in enumerate(layout.warp) if basis[axis]),
        result=result,
    )


def scratch_bytes(count: int, element_bits: int) -> int:
    """Shared memory for ``count`` elements, rounded up to 16 bytes."""
    return -(-count * element_bytes_of(element_bits) // VECTOR_BYTES) * VECTOR_BYTES


def bits_of(type: Tile) -> int:
    """Bits of one element of ``type`` in shared memory."""
    return type.elem.bits
