"""Slots of one element each in an operation's scratch, where the number of a thread is part of the slot's."""

from __future__ import annotations

from collections.abc import Sequence

from ...hardware import VECTOR_BYTES
from ...ir.types import Element
from .lowering import Lowering, reach_of
from .vectors import load_shared, store_shared


class ScratchSlots:
    """Addresses of elements in scratch, by element number XORed into what the thread contributes."""

    def __init__(self, state: Lowering, elem: Element, start: int, lane: Sequence[int], warp: Sequence[int]) -> None:
        self.state = state
        self.elem = elem
        self.start = start
        self.bytes = elem.bytes
        lane_bytes = [b * elem.bytes for b in lane]
        warp_bytes = [b * elem.bytes for b in warp]
        self.thread = state.thread_bits(lane_bytes, warp_bytes)
        self.reach = reach_of((*lane_bytes, *warp_bytes))

    def address(self, element: int) -> str:
        offset = self.state.add_bits(self.thread, self.reach, element * self.bytes)
        base = self.state.shared(offset)
        if not self.start:
            return base
        return self.state.text.op(f"getelementptr inbounds i8, ptr addrspace(3) {base}, i32 {self.start}")

    def store(self, first: int, *values: str) -> None:
        """Put neighbouring values into their places, from a multiple of their number on."""
        store_shared(self.state, self.elem, list(values), self.address(first))

    def load(self, first: int, count: int) -> list[str]:
        """Neighbouring elements, ``count`` from a multiple of it on, as the widest vectors."""
        vector = min(count, VECTOR_BYTES // self.bytes)
        values: list[str] = []
        for element in range(first, first + count, vector):
            values += load_shared(self.state, self.elem, vector, self.address(element))
        return values
