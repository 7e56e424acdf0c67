"""How elements change places with those whose index differs by a fixed XOR, on a layout.

Layouts are linear, so the partner of every element lies at one fixed distance in registers, lanes and warps, whichever
element it is. Only a distance in warps needs shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...layout import LinearLayout
from ...layout.access import element_bytes_of
from ...layout.linear import flatten


@dataclass(frozen=True, slots=True)
class ButterflyPlan:
    """The partner of a thread's register r is register r XOR ``register`` of the lane and warp that differ by ``lane``
    and ``warp``.

    ``slots``: where a thread puts each register in shared memory, in elements of its own; registers that hold copies
    share a slot.
    """

    register: int
    lane: int
    warp: int
    slots: tuple[int, ...]
    threads: int

    def scratch_bytes(self, element_bits: int) -> int:
        """Shared memory for the exchange; 0 when no data crosses warps."""
        if not self.warp:
            return 0
        return (1 + max(self.slots)) * self.threads * element_bytes_of(element_bits)


@lru_cache(maxsize=2048)
def plan_butterfly(layout: LinearLayout, axis: int, distance: int) -> ButterflyPlan:
    """How a tile of ``layout`` exchanges elements that are ``distance`` (an XOR of indices) apart along ``axis``."""
    coordinates = tuple(distance if d == axis else 0 for d in range(layout.rank))
    partner = layout.place(layout.inverse()(flatten(layout.shape, coordinates)))
    slots: dict[int, int] = {}
    for flat in layout.register_offsets():
        slots.setdefault(flat, len(slots))
    return ButterflyPlan(
        partner.register,
        partner.lane,
        partner.warp,
        tuple(slots[flat] for flat in layout.register_offsets()),
        layout.lanes * layout.warps,
    )
