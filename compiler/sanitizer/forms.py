"""What an access is made of, alike for all operations that touch memory."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.core import Op, Value
from ..tile import blocks
from ..tile import memory as m


@dataclass(frozen=True, slots=True)
class AccessForm:
    """The operands of one access by what they decide.

    ``pointer``: pointers of the tile's shape, or the one that a box begins at. ``stored``: what goes to memory, element
    by element. ``scalars``: where a box lies.
    """

    pointer: Value
    reads: bool
    writes: bool
    atomic: bool = False
    mask: Value | None = None
    stored: tuple[Value, ...] = ()
    scalars: tuple[Value, ...] = ()

    @property
    def verb(self) -> str:
        """What it does to memory."""
        return "updates" if self.atomic else "writes" if self.writes else "reads"

    def shape_in(self, op: Op) -> tuple[int, ...]:
        """The shape of the tile that ``op``, which has this form, reads or writes."""
        if self.pointer.type.rank or not self.scalars:
            return self.pointer.type.shape
        return op.results[0].type.shape if op.results else self.stored[0].type.shape


def form_of(op: Op) -> AccessForm:
    """The form of an operation that touches memory; raises TypeError for any other."""
    match op:
        case m.Load():
            return AccessForm(op.pointer, True, False, mask=op.mask)
        case m.Store():
            return AccessForm(op.pointer, False, True, mask=op.mask, stored=(op.value,))
        case m.AtomicRMW():
            return AccessForm(op.pointer, True, True, True, op.mask, (op.value,))
        case m.AtomicCAS():
            return AccessForm(op.pointer, True, True, True, stored=(op.expected, op.value))
        case blocks.BlockLoad():
            return AccessForm(op.base, True, False, scalars=(*op.sizes, *op.strides, *op.offsets))
        case blocks.BlockStore():
            return AccessForm(op.base, False, True, stored=(op.value,), scalars=(*op.sizes, *op.strides, *op.offsets))
    raise TypeError(f"{op.mnemonic} touches no memory")
