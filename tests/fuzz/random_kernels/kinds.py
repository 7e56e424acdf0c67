"""The types of elements: what they are in the language, in memory and in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Kind:
    """A type of elements. ``digits``: bits of a float's mantissa, the hidden one among them; ``least``: its smallest
    exponent; ``most``: its largest number; ``memory``: what an element is in memory."""

    name: str
    language: str
    bits: int
    memory: np.dtype
    digits: int = 0
    least: int = 0
    most: float = 0.0

    @property
    def is_float(self) -> bool:
        return self.digits > 0

    @property
    def is_integer(self) -> bool:
        return not self.digits and self.bits > 1

    @property
    def is_signed(self) -> bool:
        return self.name[0] != "u"

    @property
    def spelled(self) -> str:
        """In the text of a kernel."""
        return f"tl.{self.language}"

    @property
    def numpy(self) -> type:
        """What values are computed in: floats in f64, of which those of this type are a part."""
        return np.float64 if self.is_float else self.memory.type


def _float(name: str, language: str, memory: type, digits: int, least: int, most: float) -> Kind:
    kept = np.dtype(memory)
    return Kind(name, language, kept.itemsize * 8, kept, digits, least, most)


#: Of what is no number, such as a block pointer.
OPAQUE = Kind("opaque", "", 0, np.dtype(np.void))
I1 = Kind("i1", "int1", 1, np.dtype(np.bool_))
I8, I16, I32, I64 = (Kind(f"i{n}", f"int{n}", n, np.dtype(f"int{n}")) for n in (8, 16, 32, 64))
U8, U16, U32, U64 = (Kind(f"u{n}", f"uint{n}", n, np.dtype(f"uint{n}")) for n in (8, 16, 32, 64))
F64 = _float("f64", "float64", np.float64, 53, -1022, 1e300)
F32 = _float("f32", "float32", np.float32, 24, -126, 3e38)
F16 = _float("f16", "float16", np.float16, 11, -14, 65504.0)
BF16 = _float("bf16", "bfloat16", ml_dtypes.bfloat16, 8, -126, 3e38)
E5 = _float("f8e5m2", "float8e5", ml_dtypes.float8_e5m2, 3, -14, 57344.0)
E4 = _float("f8e4m3", "float8e4nv", ml_dtypes.float8_e4m3fn, 4, -6, 448.0)

INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
FLOATS = (F16, BF16, F32, F64)
EIGHT_BITS = (E4, E5)
#: What arithmetic is done on, and what memory holds.
NUMBERS = (*INTEGERS, *FLOATS)
STORED = (*NUMBERS, *EIGHT_BITS)


def encoded(values: Array, kind: Kind) -> Array:
    """Values as they are in memory."""
    return values.astype(kind.memory)


def decoded(memory: Array, kind: Kind) -> Array:
    """What is in memory, as values."""
    return memory.astype(np.float64) if kind.is_float else memory
