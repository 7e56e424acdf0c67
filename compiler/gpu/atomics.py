"""Atomic operations whose old values nobody reads: nothing comes back, and neighbours share an instruction."""

from __future__ import annotations

from ..hardware import VECTOR_BYTES
from ..ir.core import Function, uses
from ..ir.types import BF16, F16, F32
from ..target import Target
from ..tile.memory import AtomicRMW
from .ops import VectorUpdate

#: Those that have a form without result (PTX ISA, "red").
_KINDS = ("add", "and", "or", "xor", "min", "max")


def find_updates(function: Function, target: Target) -> None:
    """Replace each such operation on a tile by a :class:`VectorUpdate` of as many elements as ``target`` can, in place.
    The layouts decide how many it will be."""
    read = uses(function)
    for block in function.body.nest():
        for place, op in enumerate(block.ops):
            if isinstance(op, AtomicRMW) and op.result not in read and op.pointer.type.rank and _has_form(op):
                fields = (op.pointer, op.value, op.mask, op.kind, op.semantics, op.scope)
                made = VectorUpdate(*fields, vector=_widest(op, target))
                made.location = op.location
                block.ops[place] = made


def _has_form(op: AtomicRMW) -> bool:
    """Extrema of floats are operations on integers, and two of them."""
    return op.kind in _KINDS and not (op.value.type.is_float and op.kind in ("min", "max"))


def _widest(op: AtomicRMW, target: Target) -> int:
    """Elements that one instruction adds (PTX ISA, "red": vectors of 16 bytes from sm_90 on, f16x2 everywhere)."""
    elem = op.value.type.elem
    if op.kind != "add":
        return 1
    if "vector_atomics" in target.features and elem in (F16, BF16, F32):
        return VECTOR_BYTES // elem.bytes
    return 2 if elem == F16 else 1
