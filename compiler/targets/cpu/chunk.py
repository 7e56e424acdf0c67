"""What a tile value looks like at one chunk of a loop: a scalar for all lanes, an arithmetic progression, or a vector.

Contiguity is found on the fly: the pointers of a chunk that come out as a progression with the element size as
stride are one vector access.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.types import Element, Pointer
from ...llvm.typed import Typed

_LLVM_ELEMENTS = {
    "i1": "i1",
    "f16": "half",
    "bf16": "i16",
    "f32": "float",
    "f64": "double",
    "f8e4m3": "i8",
    "f8e5m2": "i8",
}


def llvm_element(elem: Element) -> str:
    """The LLVM type of one element in registers. bf16 and f8 travel as their bits."""
    if isinstance(elem, Pointer):
        return "ptr"
    return _LLVM_ELEMENTS.get(elem.code) or f"i{elem.bits}"


def memory_element(elem: Element) -> str:
    """The LLVM type of one element in memory: booleans take a byte."""
    return "i8" if llvm_element(elem) == "i1" else llvm_element(elem)


@dataclass(frozen=True, slots=True)
class Coord:
    """Index along one dimension at a chunk: lane l stands at base + l * stride.

    ``level`` is the loop that ``base`` changes in (0: none) and ``divisor`` a power of two that divides it.
    """

    base: Typed
    stride: int
    level: int
    divisor: int


ZERO = Coord(Typed("i32", "0"), 0, 0, 1 << 30)


Coords = tuple[Coord, ...]


@dataclass(slots=True)
class Uniform:
    """One scalar for all lanes. ``number`` is its value where known, ``divisor`` divides it (a power of two)."""

    value: Typed
    level: int
    number: int | float | None = None
    divisor: int = 1


@dataclass(slots=True)
class Affine:
    """Lane l holds base + l * stride: integers, or pointers with a stride in bytes."""

    base: Typed
    stride: int
    level: int
    divisor: int = 1


@dataclass(slots=True)
class Vector:
    """One vector with a value for each lane."""

    value: Typed
    level: int


Chunk = Uniform | Affine | Vector


def power_of_two_divisor(number: int) -> int:
    """The largest power of two that divides ``number`` (2**30 for 0)."""
    return number & -number if number else 1 << 30


def row_strides(shape: Sequence[int]) -> list[int]:
    """Elements between neighbours along each dimension of a row-major tile."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return strides[::-1]


def vector_axis(shape: Sequence[int]) -> int:
    """The dimension that chunks run along: the last one longer than 1 (0 if there is none)."""
    return max((d for d, n in enumerate(shape) if n > 1), default=0)
