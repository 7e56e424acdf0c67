"""The types of IR values: tiles of scalars or pointers, with an optional register layout.

There is one type class. A scalar is a tile of rank 0 and prints as its element type (``f32``); a tile prints as
``tile<64x64xf32>``; the GPU stage adds the layout (``tile<64x64xf32, #L>``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ..errors import IRError, TypeMismatch
from ..layout import LinearLayout, SharedLayout
from .questions import PointerQuestions, ScalarQuestions, TileQuestions, ask_whether

#: Largest number of elements in one tile (Triton's TRITON_MAX_TENSOR_NUMEL).
MAX_TILE_ELEMENTS = 1 << 20

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True, slots=True)
class Scalar(ScalarQuestions):
    """A scalar element type. Signedness is part of the type, so one ``shr`` op serves i32 and u32.

    Programs see Triton's names of types, as text, too; IR, messages and files have the ``code``.
    """

    code: str
    kind: Kind
    bits: int

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """Triton's name of the type: ``fp32``, ``int32``. ``code`` is what this compiler writes: ``f32``, ``i32``."""
        return self.short if self.is_float else self.spelling

    def __repr__(self) -> str:
        """As Triton's: an expression that gives the type."""
        return f"triton.language.{self.spelling}"

    @property
    def spelling(self) -> str:
        """The name of the type in the language: ``float32``, ``int1``."""
        return _SPELLINGS.get(self.code) or f"{self.kind}{self.bits}"

    @property
    def short(self) -> str:
        """Triton's name of the type in signatures: ``fp32``, ``i32``."""
        return _SHORT.get(self.code, self.code)

    @property
    def is_float(self) -> bool:
        """True for every floating-point format, the 8-bit ones included."""
        return self.kind == "float"

    @property
    def has_nan(self) -> bool:
        """Whether some bits of it stand for NaN."""
        return self.is_float and self.code != "f8e4b15"

    @property
    def is_stored_only(self) -> bool:
        """True for floats that are loaded, stored and converted, and not computed with."""
        return self.code in _STORED_ONLY

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers and for booleans."""
        return self.kind != "float"

    @property
    def is_signed(self) -> bool:
        """True for int8 to int64 alone: false for floats, booleans and unsigned integers."""
        return self.kind == "int"

    @property
    def bytes(self) -> int:
        """Size in memory; i1 is stored as one byte."""
        return max(1, self.bits // 8)

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest number of this integer type."""
        half = 1 << (self.bits - 1)
        return (-half, half - 1) if self.is_signed else (0, 2 * half - 1)

    def wrap(self, value: int) -> int:
        """``value`` modulo 2**bits, in the range of this integer type."""
        value &= (1 << self.bits) - 1
        return value - (1 << self.bits) if self.is_signed and value >> (self.bits - 1) else value


_SPELLINGS = {"i1": "int1", "bf16": "bfloat16", "f8e4m3": "float8e4nv", "f8e5m2": "float8e5"}
_STORED_ONLY = {"f8e4b8": "e4b8", "f8e5b16": "e5b16", "f8e4b15": "e4b15"}
_SPELLINGS |= {name: f"float8{kind}" for name, kind in _STORED_ONLY.items()}
_SHORT = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "f8e4m3": "fp8e4nv", "f8e5m2": "fp8e5", "i1": "u1"}
_SHORT |= {name: f"fp8{kind}" for name, kind in _STORED_ONLY.items()}

I1 = Scalar("i1", "bool", 1)
I8, I16, I32, I64 = (Scalar(f"i{b}", "int", b) for b in (8, 16, 32, 64))
U8, U16, U32, U64 = (Scalar(f"u{b}", "uint", b) for b in (8, 16, 32, 64))
F16, F32, F64 = (Scalar(f"f{b}", "float", b) for b in (16, 32, 64))
BF16 = Scalar("bf16", "float", 16)
F8E4M3 = Scalar("f8e4m3", "float", 8)
F8E5M2 = Scalar("f8e5m2", "float", 8)
F8E4B8, F8E5B16, F8E4B15 = (Scalar(name, "float", 8) for name in _STORED_ONLY)

SCALARS: dict[str, Scalar] = {
    s.code: s
    for s in (I1, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64, F8E4M3, F8E5M2, F8E4B8, F8E5B16, F8E4B15)
}
for _scalar in SCALARS.values():
    ask_whether(_scalar.name, _scalar.code)


@dataclass(frozen=True, slots=True)
class Pointer(PointerQuestions):
    """A pointer to global memory. ``const`` pointers may not be stored through."""

    pointee: Element
    const: bool = False

    @property
    def bits(self) -> int:
        """64: every target has 64-bit addresses."""
        return 64

    @property
    def bytes(self) -> int:
        """Size in memory: 8."""
        return 8

    @property
    def code(self) -> str:
        """What this compiler writes for the type: ``*f32``."""
        return f"*{'const ' if self.const else ''}{self.pointee.code}"

    @property
    def name(self) -> str:
        """Triton's name of the type: ``pointer<fp32>``."""
        return f"{'const_' if self.const else ''}pointer<{self.pointee.name}>"

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


Element = Scalar | Pointer


@dataclass(frozen=True, slots=True)
class Tile(TileQuestions):
    """A statically shaped tile; rank 0 is a scalar.

    ``layout`` is None in tile IR and for scalars; in GPU IR it says which register of which thread holds which
    element. A tile that lies in shared memory has a ``shared`` layout instead.

    Raises:
        TypeMismatch: a dimension is not a power of two, or the tile has more than 2**20 elements.
    """

    elem: Element
    shape: tuple[int, ...] = ()
    layout: LinearLayout | None = None
    shared: SharedLayout | None = None

    def __post_init__(self) -> None:
        if self.shape:
            _check_shape(self.shape)

    @property
    def rank(self) -> int:
        """Number of dimensions; 0 for a scalar."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return _product(self.shape)

    @property
    def is_pointer(self) -> bool:
        """Whether the elements are pointers."""
        return isinstance(self.elem, Pointer)

    @property
    def is_float(self) -> bool:
        """Whether the elements are floats; false for pointers."""
        return isinstance(self.elem, Scalar) and self.elem.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Whether the elements are integers or booleans; false for pointers."""
        return isinstance(self.elem, Scalar) and self.elem.kind != "float"

    @property
    def scalar(self) -> Scalar:
        """The element type of a tile that holds no pointers."""
        if isinstance(self.elem, Pointer):
            raise TypeMismatch(f"expected numbers, got pointers ({self})")
        return self.elem

    @property
    def pointee(self) -> Element:
        """What the pointers of a pointer tile point to."""
        if not isinstance(self.elem, Pointer):
            raise TypeMismatch(f"expected a pointer, got {self}")
        return self.elem.pointee

    def with_elem(self, elem: Element) -> Tile:
        """The same shape and layout with another element type."""
        return Tile(elem, self.shape, self.layout, self.shared)

    def with_shape(self, shape: tuple[int, ...]) -> Tile:
        """The same element type in another shape, without a layout."""
        return Tile(self.elem, shape)

    def with_layout(self, layout: LinearLayout | None) -> Tile:
        """The same element type and shape in registers of another layout; None takes it away."""
        return self if layout is self.layout and self.shared is None else Tile(self.elem, self.shape, layout)

    def in_shared_memory(self, shared: SharedLayout) -> Tile:
        """The same element type and shape in shared memory."""
        return Tile(self.elem, self.shape, None, shared)

    def __str__(self) -> str:
        if not self.shape:
            return self.elem.code
        body = "x".join([*map(str, self.shape), self.elem.code])
        place = self.layout or self.shared
        return f"tile<{body}, {place}>" if place is not None else f"tile<{body}>"


@lru_cache(maxsize=4096)
def _check_shape(shape: tuple[int, ...]) -> None:
    for dim, n in enumerate(shape):
        if n <= 0 or n & (n - 1):
            below, above = 1 << max(0, n.bit_length() - 1), 1 << max(0, n).bit_length()
            raise TypeMismatch(
                f"tile dimensions must be powers of two, got {n} in shape {list(shape)}",
                hint=f"use {below} or {above}, and mask the elements that are not wanted"
                if n > 0
                else "use a positive power of two",
            ) from ValueError(f"Shape element {dim} must be a power of 2")  # what programs for Triton look for
    if _product(shape) > MAX_TILE_ELEMENTS:
        raise TypeMismatch(
            f"a tile of shape {list(shape)} has {_product(shape)} elements, the limit is {MAX_TILE_ELEMENTS}",
            hint="use smaller block sizes and loop over the rest",
        )


@lru_cache(maxsize=4096)
def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= int(n)  # a kernel that runs as Python has integers of a class of its own, and this outlives it
    return total


def parse_element(text: str) -> Element:
    """Read ``f32``, ``*bf16`` or ``*const *f32``; raises IRError."""
    text = text.strip()
    if text.startswith("*"):
        rest = text[1:].lstrip()
        const = rest.startswith("const ")
        return Pointer(parse_element(rest.removeprefix("const ")), const)
    if text not in SCALARS:
        raise IRError(f"unknown element type {text!r}", hint="known: " + " ".join(SCALARS))
    return SCALARS[text]


_TILE = re.compile(r"tile<((?:\d+x)+)([^,>]+)(?:, (.*))?>", re.DOTALL)


def parse_type(text: str) -> Tile:
    """Read a type as :class:`Tile` prints it; raises IRError."""
    text = text.strip()
    if not text.startswith("tile<"):
        return Tile(parse_element(text))
    if not (m := _TILE.fullmatch(text)):
        raise IRError(f"cannot read the type {text!r}")
    shape = tuple(int(n) for n in m[1][:-1].split("x"))
    if m[3] and m[3].startswith("#sh"):
        return Tile(parse_element(m[2]), shape, None, SharedLayout.parse(m[3]))
    return Tile(parse_element(m[2]), shape, LinearLayout.parse(m[3]) if m[3] else None)
