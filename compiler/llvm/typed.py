"""Typed LLVM values and the instructions on them, the same for scalars and vectors.

A :class:`Typed` is an operand that knows its LLVM type (``float``, ``<16 x float>``); :class:`Emitter` appends
instructions to a :class:`~.text.FunctionText` and derives result types, so that one template serves any lane count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from .text import FunctionText, float_constant

_VECTOR = re.compile(r"<(\d+) x (.+)>")
_INTRINSIC_NAMES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}
FLOATS = ("half", "bfloat", "float", "double")


@lru_cache(maxsize=1024)
def split_type(type: str) -> tuple[int, str]:
    """Lane count (0 for a scalar) and element type of an LLVM type."""
    match = _VECTOR.fullmatch(type)
    return (int(match[1]), match[2]) if match else (0, type)


@lru_cache(maxsize=1024)
def vector_type(element: str, lanes: int) -> str:
    """``<lanes x element>``, or ``element`` itself for zero lanes."""
    return f"<{lanes} x {element}>" if lanes else element


def with_element(type: str, element: str) -> str:
    """The type with as many lanes and another element."""
    return vector_type(element, split_type(type)[0])


@lru_cache(maxsize=1024)
def overload_name(type: str) -> str:
    """How intrinsic names spell a type: ``v16f32``."""
    lanes, element = split_type(type)
    return (f"v{lanes}" if lanes else "") + _INTRINSIC_NAMES.get(element, element)


@dataclass(frozen=True, slots=True)
class Typed:
    """An LLVM operand with its type."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"

    @property
    def lanes(self) -> int:
        """Number of lanes; 0 for a scalar."""
        return split_type(self.type)[0]

    @property
    def element(self) -> str:
        """LLVM type of one lane; of a scalar the type itself."""
        return split_type(self.type)[1]


def constant(type: str, value: int | float | bool) -> Typed:
    """``value`` in ``type``; vectors are splats."""
    lanes, element = split_type(type)
    if element == "ptr":
        text = "null"
    elif element == "i1":
        text = "true" if value else "false"
    elif element in FLOATS:
        text = float_constant(float(value), element)
    else:
        bits = int(element[1:])
        wrapped = int(value) & ((1 << bits) - 1)
        text = str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)
    if not lanes:
        return Typed(type, text)
    return Typed(type, "zeroinitializer" if text in ("0", "null") else f"splat ({element} {text})")


def lane_numbers(lanes: int, element: str, stride: int = 1) -> Typed:
    """The constant vector 0, stride, 2 * stride, ..."""
    inside = ", ".join(f"{element} {i * stride}" for i in range(lanes))
    return Typed(vector_type(element, lanes), f"<{inside}>")


class Hardware(Protocol):
    """What a GPU has one instruction for, on f32 scalars."""

    def exp2(self, x: Typed) -> Typed:
        """2**x within 2 units in the last place; 0 where the result is below the normal numbers."""

    def log2(self, x: Typed) -> Typed:
        """log2(x) within 2**-22, or that part of itself beyond 1; -inf where ``x`` is 0 or below the normal numbers."""

    def reciprocal(self, x: Typed) -> Typed:
        """1 / x within a unit in the last place; 0 or infinite where a result or ``x`` is below the normal numbers."""


class Emitter:
    """Appends instructions at the end of ``function.current``.

    ``contract`` lets a product and a sum fuse into one rounding (LLVM's ``contract`` flag). ``hardware``: None where
    the processor has no approximations.
    """

    def __init__(self, function: FunctionText, *, contract: bool = False, hardware: Hardware | None = None) -> None:
        self.function = function
        self.hardware = hardware
        self.flags = "contract " if contract else ""

    # Arithmetic ------------------------------------------------------------------------------------------------

    def binary(self, opcode: str, x: Typed, y: Typed) -> Typed:
        """An integer or logical instruction of two operands of one type."""
        return Typed(x.type, self.function.op(f"{opcode} {x.type} {x.name}, {y.name}"))

    def floating(self, opcode: str, x: Typed, y: Typed) -> Typed:
        """fadd, fsub, fmul, fdiv, frem; may contract if the emitter may."""
        text = f"{opcode} {self.flags}{x.type} {x.name}, {y.name}"
        return Typed(x.type, self.function.op(text))

    def reciprocal(self, x: Typed) -> Typed:
        """1 / x of f32 within a unit in the last place, for ``x`` and results that are normal numbers, 0 or infinite.
        A division is a function of dozens of instructions on GPUs, with a branch."""
        return self.hardware.reciprocal(x) if self.hardware else self.floating("fdiv", constant(x.type, 1.0), x)

    def fneg(self, x: Typed) -> Typed:
        """-x: flips the sign bit, of NaN and 0 too."""
        return Typed(x.type, self.function.op(f"fneg {x}"))

    def compare(self, predicate: str, x: Typed, y: Typed) -> Typed:
        """icmp or fcmp with ``predicate``, by the type of the operands."""
        opcode = "fcmp" if x.element in FLOATS else "icmp"
        result = self.function.op(f"{opcode} {predicate} {x.type} {x.name}, {y.name}")
        return Typed(with_element(x.type, "i1"), result)

    def select(self, condition: Typed, x: Typed, y: Typed) -> Typed:
        """x where the i1 condition is true, else y; lane by lane if the condition is a vector."""
        return Typed(x.type, self.function.op(f"select {condition}, {x}, {y}"))

    def cast(self, opcode: str, x: Typed, element: str) -> Typed:
        """A conversion instruction, lane by lane; nothing if the type is already right."""
        type = with_element(x.type, element)
        return x if type == x.type else Typed(type, self.function.op(f"{opcode} {x} to {type}"))

    def intrinsic(self, name: str, *operands: Typed, extra: Sequence[Typed] = ()) -> Typed:
        """``llvm.name`` overloaded on the type of the first operand, with a result of that type."""
        type = operands[0].type
        every = [(o.type, o.name) for o in (*operands, *extra)]
        return Typed(type, self.function.call(type, f"llvm.{name}.{overload_name(type)}", every))

    def fma(self, x: Typed, y: Typed, z: Typed) -> Typed:
        """x * y + z with one rounding (llvm.fma)."""
        return self.intrinsic("fma", x, y, z)

    # Vectors ---------------------------------------------------------------------------------------------------

    def splat(self, x: Typed, lanes: int) -> Typed:
        """A vector of ``lanes`` copies of a scalar."""
        type = vector_type(x.type, lanes)
        if not x.name.startswith("%"):
            inside = "zeroinitializer" if x.name in ("0", "null") else f"splat ({x})"
            return Typed(type, inside)
        one = self.function.op(f"insertelement {type} poison, {x}, i32 0")
        text = f"shufflevector {type} {one}, {type} poison, <{lanes} x i32> zeroinitializer"
        return Typed(type, self.function.op(text))

    def shuffle(self, x: Typed, y: Typed | None, lanes: Sequence[int]) -> Typed:
        """Lanes of x (0, 1, ...) followed by those of y."""
        mask = ", ".join(f"i32 {i}" for i in lanes)
        other = f"{y}" if y is not None else f"{x.type} poison"
        text = f"shufflevector {x}, {other}, <{len(lanes)} x i32> <{mask}>"
        return Typed(vector_type(x.element, len(lanes)), self.function.op(text))

    def extract(self, x: Typed, lane: int) -> Typed:
        """Lane ``lane`` (a constant, from 0) of a vector, as a scalar."""
        return Typed(x.element, self.function.op(f"extractelement {x}, i32 {lane}"))

    # Memory ----------------------------------------------------------------------------------------------------

    def offset(self, pointer: Typed, count: Typed, element: str) -> Typed:
        """``pointer`` moved by ``count`` elements; either may be a vector."""
        text = f"getelementptr {element}, {pointer}, {count}"
        type = vector_type("ptr", max(pointer.lanes, count.lanes))
        return Typed(type, self.function.op(text))

    def load(self, type: str, pointer: Typed, align: int, *, volatile: bool = False) -> Typed:
        """A value of LLVM type ``type`` from ``pointer``; ``align`` is in bytes."""
        read = "load volatile" if volatile else "load"
        return Typed(type, self.function.op(f"{read} {type}, {pointer}, align {align}"))

    def store(self, value: Typed, pointer: Typed, align: int) -> None:
        """Write ``value`` to ``pointer``; ``align`` is in bytes."""
        self.function.do(f"store {value}, {pointer}, align {align}")
