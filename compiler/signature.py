"""Signatures: the type of every run-time argument, and what the caller promises about its value.

The text form is that of Triton's ahead-of-time compiler: ``*fp32:16`` is a pointer to f32 whose address is a multiple
of 16, ``i32:16`` an integer that is a multiple of 16, ``i32:1`` an integer that is 1 and so becomes a compile-time
constant. ``*const f32`` (or ``*kf32``) may not be stored through.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import lru_cache

from .errors import SignatureError
from .ir.types import SCALARS, Pointer, Scalar, Tile
from .runtime.arrays.dtypes import canonical_dtype, known_dtypes

#: Divisibility that launches promise: 16 bytes is the widest vector access, 16 elements the usual block granularity.
ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class ArgumentType:
    """Type of one run-time argument: element dtype, pointer or not, and the promise about its value.

    ``divisibility``: bytes for pointers, the value itself for integers; 1 promises nothing. ``is_one``: the integer is
    1 and is folded into the code.
    """

    dtype: str
    pointer: bool = False
    const: bool = False
    divisibility: int = 1
    is_one: bool = False

    @property
    def tile(self) -> Tile:
        """The IR type of the kernel parameter."""
        element: Scalar | Pointer = SCALARS[self.dtype]
        return Tile(Pointer(element, self.const) if self.pointer else element)

    def __str__(self) -> str:
        star = "*const " if self.pointer and self.const else "*" if self.pointer else ""
        promise = ":1" if self.is_one else f":{self.divisibility}" if self.divisibility > 1 else ""
        return f"{star}{self.dtype}{promise}"


_TYPE = re.compile(r"(?P<star>\*\s*)?(?P<const>const\s+|k(?=[a-z]))?(?P<dtype>\w+)(?::(?P<promise>\w+))?")


@lru_cache(maxsize=1024)
def parse_argument_type(text: str) -> ArgumentType:
    """Read one type; raises SignatureError that says which part is wrong."""
    match = _TYPE.fullmatch(text.strip())
    if match is None:
        raise SignatureError(
            f"cannot read the argument type {text!r}",
            hint='write types as "*f32", "*bf16:16", "i32", "i32:16" or "i32:1"',
        )
    name = match["dtype"]
    try:
        dtype = canonical_dtype(name)
    except Exception as error:
        near = difflib.get_close_matches(name, [*SCALARS, "fp16", "fp32", "fp64"], n=1)
        raise SignatureError(
            f"unknown dtype {name!r} in the argument type {text!r}",
            hint=f"did you mean {near[0]!r}?" if near else f"use {known_dtypes()}",
        ) from error
    pointer = match["star"] is not None
    divisibility, is_one = _promise(text, match["promise"], pointer, dtype)
    return ArgumentType(dtype, pointer, match["const"] is not None, divisibility, is_one)


def _promise(text: str, promise: str | None, pointer: bool, dtype: str) -> tuple[int, bool]:
    """Divisibility and is-one of the part after the colon."""
    if promise is None:
        return 1, False
    if promise not in ("1", str(ALIGNMENT)):
        raise SignatureError(
            f"unknown promise {':' + promise!r} in the argument type {text!r}",
            hint=f'":{ALIGNMENT}" promises divisibility by {ALIGNMENT}, ":1" an integer equal to 1',
        )
    if not pointer and not SCALARS[dtype].is_integer:
        raise SignatureError(
            f"the argument type {text!r} promises divisibility of a floating-point number",
            hint=f'write "{dtype}"',
        )
    if promise == "1" and pointer:
        raise SignatureError(f"the argument type {text!r} says that a pointer is 1", hint='use ":16"')
    return (1, True) if promise == "1" else (ALIGNMENT, False)
