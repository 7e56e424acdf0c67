"""Sums, differences and products of integers that do not fit their type, as failed device assertions.

As in Triton, kernels with ``debug`` check them unless ``sanitize_overflow=False``, for types under 64 bits: the
operation is repeated in int64, and the assertion says that the result lies in the range of the type. Products of two
uint32 from 2^63 on are negative there, and so outside of it too.
"""

from __future__ import annotations

from ..ir.types import I64, Element, Scalar
from ..tile import elementwise as ew
from ..tile.debug import Assert
from .context import current
from .promotion import scalar_type
from .tensor import emit, tensor

Arithmetic = ew.Add | ew.Sub | ew.Mul


def checked(op: Arithmetic, wanted: bool = True) -> tensor:
    """The result of ``op``, emitted; before it the assertion, if it is ``wanted`` and the kernel has such checks."""
    if wanted and _is_checked(op.lhs.type.elem):
        _assert_fits(op, scalar_type(op.lhs.type.elem))
    return emit(op)


def negated(x: tensor) -> tensor:
    """-x, which is checked as 0 - x is: 0 alone has a negative among unsigned numbers."""
    if not _is_checked(x.dtype):
        return emit(ew.Neg(x.value))
    return checked(ew.Sub(emit(ew.Constant(0, x.value.type)).value, x.value))


def _is_checked(elem: Element) -> bool:
    return current().sanitize_overflow and isinstance(elem, Scalar) and elem.is_integer and elem.bits < 64


def _assert_fits(op: Arithmetic, elem: Scalar) -> None:
    exact = emit(type(op)(*(emit(ew.Cast(side, I64)).value for side in (op.lhs, op.rhs)))).value
    low, high = elem.range
    above = emit(ew.Compare(exact, emit(ew.Constant(low, exact.type)).value, "ge")).value
    below = emit(ew.Compare(exact, emit(ew.Constant(high, exact.type)).value, "le")).value
    message = f"int{elem.bits} overflow detected for operation {op.mnemonic}"
    current().builder.emit(Assert(emit(ew.And(above, below)).value, message))
