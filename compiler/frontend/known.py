"""Arithmetic on numbers of which one has a type: as the language does it on tensors, and known at once."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.core import Block, Value
from ..ir.types import Scalar
from ..language.tensor import Operand, tensor
from ..language.typed import Typed, typed_number
from ..tile.elementwise import Constant
from ..tile.passes.numbers import Number, evaluate
from .frame import Frame


def concerns(*operands: object) -> bool:
    """Whether all of them are numbers, and one has a type."""
    return any(isinstance(x, Typed) for x in operands) and all(isinstance(x, int | float) for x in operands)


def combined(frame: Frame, function: Callable[..., tensor], *operands: Operand | str) -> object:
    """What ``function`` of the language makes of numbers, and perhaps of the name of a predicate: a number of the
    result's type, or a tensor where nothing is defined while compiling, such as a division by zero. Raises as
    ``function``."""
    with frame.builder.into(Block()):
        made = function(*operands)
        number = _number(made.value)
    type = made.dtype
    if number is None or not isinstance(type, Scalar):
        return function(*operands)
    return typed_number(number, type)


def _number(value: Value) -> Number | None:
    """What a scalar made of constants alone comes to."""
    op = value.op
    if isinstance(op, Constant):
        return op.value
    if op is None or not op.elementwise:
        return None
    parts = [_number(part) for part in op.operands]
    known = [part for part in parts if part is not None]
    return evaluate(op, known) if len(known) == len(parts) else None
