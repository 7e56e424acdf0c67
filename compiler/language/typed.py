"""Numbers that a kernel has assigned to a name: known while compiling, and of a type.

A literal takes the type of the tensor that it meets. What a name holds is a scalar of its own type, as in Triton: where
a kernel says ``s = 0.1``, ``x * s`` of an fp16 tile is computed in fp32, and ``n = -7; n // 2`` is -3, as in C. With
``s: tl.constexpr = 0.1`` it is a number like a literal. Unlike Triton's such a scalar is still known, so that shapes,
ranges and conditions may be made of it.
"""

from __future__ import annotations

from ..ir.types import Scalar


class TypedInt(int):
    """An integer of ``type``, in its range."""

    type: Scalar


class TypedBool(TypedInt):
    """A truth value, of int1. The language's operators compute with it as with a scalar, so that ``d + d`` is that of
    int1, and it is neither Python's ``True`` nor a ``bool``; its functions take it as the truth value that it is."""

    def __repr__(self) -> str:
        return repr(bool(self))

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(bool(self), spec)


class TypedFloat(float):
    """A float of ``type``; what is computed with it is rounded to that first."""

    type: Scalar


Typed = TypedInt | TypedFloat


def typed_number(value: int | float, type: Scalar) -> Typed:
    """A number, in the range of ``type``, as a scalar of that type."""
    kind = TypedBool if type.kind == "bool" else TypedInt
    made: Typed = TypedFloat(value) if type.is_float else kind(value)
    made.type = type
    return made


def untyped(value: object) -> object:
    """A value with plain numbers for the typed ones that it is or, as a tuple, has."""
    if isinstance(value, tuple):
        return tuple.__new__(type(value), map(untyped, value))
    return plain_number(value) if isinstance(value, TypedInt | TypedFloat) else value


def plain_number(value: Typed) -> int | float | bool:
    """The number without its type."""
    if isinstance(value, TypedBool):
        return bool(value)
    return int(value) if isinstance(value, TypedInt) else float(value)
