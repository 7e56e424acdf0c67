"""The classes of types, ``tl.dtype``, ``tl.pointer_type`` and ``tl.block_type``, for isinstance and to make types by.

Types themselves are those of the IR; these classes have no instances of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..errors import TypeMismatch
from ..ir.types import SCALARS, Element, Pointer, Scalar, Tile
from .builtin import builtin
from .constexpr import unwrap
from .promotion import scalar_type
from .shapes import shape_tuple

#: Triton's name of every element type: ``fp32``, ``int64``, ``fp8e4nv``.
NAMES = {s.name: s for s in SCALARS.values()}
#: The type for each name that a program may give: Triton's, and those of signatures (``i64``, ``u1``).
_BY_NAME = {**{s.short: s for s in SCALARS.values()}, "i1": SCALARS["i1"], **NAMES}


@builtin
def get_int_dtype(bitwidth: int, signed: bool) -> Scalar:
    """The integer type of ``bitwidth`` bits, 1 (which has no sign), 8, 16, 32 or 64.

    Raises:
        TypeMismatch: there is none.
    """
    return dtype("int1" if bitwidth == 1 else f"{'int' if signed else 'uint'}{bitwidth}")


class _Stands(type):
    """A class whose instances, as isinstance sees it, are those of the classes in ``stands_for``."""

    stands_for: tuple[type, ...]

    def __instancecheck__(cls, candidate: object) -> bool:
        return isinstance(candidate, cls.stands_for)


class dtype(metaclass=_Stands):  # noqa: N801 -- the language's own name
    """Element types, and as in Triton types of pointers and blocks too; ``tl.dtype("fp32")`` is that of the name.

    Raises:
        TypeMismatch: there is no type of that name.
    """

    stands_for = (Scalar, Pointer, Tile)
    SINT_TYPES: ClassVar[list[str]] = [name for name, s in NAMES.items() if s.is_signed]
    UINT_TYPES: ClassVar[list[str]] = ["int1", *(name for name, s in NAMES.items() if s.kind == "uint")]
    FP_TYPES: ClassVar[list[str]] = [name for name, s in NAMES.items() if s.is_float]
    STANDARD_FP_TYPES: ClassVar[list[str]] = [name for name, s in NAMES.items() if s.is_float and s.bits > 8]
    OTHER_TYPES: ClassVar[list[str]] = ["void"]

    def __new__(cls, name: str) -> Scalar:  # type: ignore[misc]
        if name not in _BY_NAME:
            raise TypeMismatch(f"there is no element type {name!r}", hint=f"use one of {', '.join(NAMES)}")
        return _BY_NAME[name]


class pointer_type(metaclass=_Stands):  # noqa: N801
    """``tl.pointer_type(tl.int32)`` is the type of pointers to int32; ``const``: that are not stored through.

    Raises:
        TypeMismatch: ``element_ty`` is no element type.
    """

    stands_for = (Pointer,)

    def __new__(cls, element_ty: Scalar | Pointer, const: bool = False) -> Pointer:  # type: ignore[misc]
        return Pointer(_element(element_ty), bool(unwrap(const)))


class block_type(metaclass=_Stands):  # noqa: N801
    """``tl.block_type(tl.int32, [8, 8])`` is the type of tiles of int32 in that shape.

    Raises:
        TypeMismatch: ``element_ty`` is no element type, or there is no tile of that shape.
    """

    stands_for = (Tile,)

    def __new__(cls, element_ty: Scalar | Pointer, shape: Sequence[int]) -> Tile:  # type: ignore[misc]
        return Tile(_element(element_ty), shape_tuple(unwrap(shape)))


def _element(given: object) -> Element:
    type = unwrap(given)
    return type if isinstance(type, Pointer) else scalar_type(type)


def str_to_ty(name: str, constant: object = None) -> Scalar | Pointer:
    """The type that a name of signatures stands for: ``i32``, ``*fp16``, ``*k*fp16`` (a pointer that is not stored
    through)."""
    if name.startswith("*"):
        pointee = name[1:]
        return Pointer(str_to_ty(pointee.removeprefix("k")), const=pointee.startswith("k"))
    return dtype(name)
