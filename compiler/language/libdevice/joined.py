"""minimum, maximum and fma in which a number takes the type of the tensor beside it.

In the language's own functions it has a type by itself, which would round the constants of f64 to f32.
"""

from __future__ import annotations

from ...tile import elementwise as ew
from ..arithmetic import broadcast_all, cast_to, meet
from ..tensor import Operand, emit, tensor


def minimum(x: Operand, y: Operand) -> tensor:
    """The smaller operand elementwise; of NaN and a number the number."""
    a, b = meet(x, y)
    return emit(ew.Min(a.value, b.value))


def maximum(x: Operand, y: Operand) -> tensor:
    """The larger operand elementwise; of NaN and a number the number."""
    a, b = meet(x, y)
    return emit(ew.Max(a.value, b.value))


def clamp(x: tensor, low: float, high: float) -> tensor:
    """``x`` between the limits; NaN stays."""
    a, b = meet(x, low)
    a = emit(ew.Max(a.value, b.value, True))
    a, b = meet(a, high)
    return emit(ew.Min(a.value, b.value, True))


def fma(x: Operand, y: Operand, z: Operand) -> tensor:
    """x * y + z with one rounding."""
    a, b = meet(x, y)
    a, c = meet(a, z)
    a, b, c = broadcast_all(a, cast_to(b, a.dtype), c)
    return emit(ew.Fma(a.value, b.value, c.value))
