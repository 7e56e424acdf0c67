"""What tiles of pointers cover, compared at run time: whether loads and a store may be done chunk by chunk in turns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from ...ir.core import Value
from ...llvm.typed import Emitter, Typed, constant
from ...tile import memory
from .chunk import ZERO, Coord
from .emission import Emission
from .lower import CpuLowering


def in_turns(low: CpuLowering, store: memory.Store) -> Typed | None:
    """Whether the loads that are left to ``store`` may be done chunk by chunk with it, as an i1 that is computed where
    the code stands; None where they may. See :func:`~.interleave.may_interleave`.

    What a load reads has to be apart from what is written, or the same element by element. Elements that are masked off
    count, so it may be false where they alone overlap.
    """
    loads = [value.op for value in low.pending_loads if isinstance(value.op, memory.Load)]
    others = {load.pointer: load.result.type.elem.bytes for load in loads if load.pointer is not store.pointer}
    if not others:
        return None
    written = _Span.of(low, store.pointer, store.value.type.elem.bytes)
    clear = [_Span.of(low, pointer, size).keeps_clear_of(low.e, written) for pointer, size in others.items()]
    return reduce(lambda x, y: low.e.binary("and", x, y), clear)


@dataclass(frozen=True, slots=True)
class _Span:
    """What a tile of pointers that goes in equal steps covers. ``first``: the address of its element 0, ``reach``: how
    far the last element of each dimension is from there, ``low`` and ``high``: its first byte and the one behind its
    last; all are i64."""

    first: Typed
    reach: tuple[Typed, ...]
    low: Typed
    high: Typed

    @classmethod
    def of(cls, lowering: CpuLowering, pointer: Value, size: int) -> _Span:
        """The span of ``pointer``, each to ``size`` bytes."""
        e, sizes = lowering.e, pointer.type.shape
        emission = Emission(lowering, 1, {})

        def address(*far: int) -> Typed:
            coords = tuple(Coord(Typed("i32", str(n - 1)), 0, 0, 1) if d in far else ZERO for d, n in enumerate(sizes))
            return e.cast("ptrtoint", emission.vector(pointer, coords), "i64")

        first = address()
        reach = tuple([e.binary("sub", address(d), first) for d, n in enumerate(sizes) if n > 1])
        emission.finish()
        low, high = first, e.binary("add", first, constant("i64", size))
        for step in reach:
            back = e.compare("slt", step, constant("i64", 0))
            low = e.binary("add", low, e.select(back, step, constant("i64", 0)))
            high = e.binary("add", high, e.select(back, constant("i64", 0), step))
        return cls(first, reach, low, high)

    def keeps_clear_of(self, e: Emitter, other: _Span) -> Typed:
        """Whether both have no byte in common, or all elements, each at its place."""
        before, behind = e.compare("ule", self.high, other.low), e.compare("ule", other.high, self.low)
        pairs = zip((self.first, *self.reach), (other.first, *other.reach), strict=True)
        equal = reduce(lambda x, y: e.binary("and", x, y), [e.compare("eq", mine, its) for mine, its in pairs])
        return e.binary("or", e.binary("or", before, behind), equal)
