"""LLVM types and constants as NumPy arrays over the lanes of a warp."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

from deuteron.compiler.errors import DeuteronError

LANES = 32
#: SMs of the simulated GPU: fewer than the programs of most grids.
SMS = 3
Array = npt.NDArray[Any]  # the element type is known when the code runs


class Pending(Protocol):
    """A register that an asynchronous operation writes."""

    def read(self) -> Array:
        """The value; raises SimulationError before the operation was waited for."""


#: What a name stands for: an array of shape (32,), a vector (32, n), a register in flight, or a struct as a tuple.
Held = Array | Pending | tuple["Array | Pending", ...]
Operand = Callable[[dict[str, Held]], Array]
HeldOperand = Callable[[dict[str, Held]], Held]

_SCALARS = {
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "half": np.dtype(np.float16),
    "bfloat": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}
_VECTOR = re.compile(r"<(\d+) x (.+)>")
FLOATS = ("half", "bfloat", "float", "double")


class SimulationError(DeuteronError):
    """Generated code did what a GPU would not forgive, or what the simulator does not know."""


@lru_cache(maxsize=512)
def split_type(type: str) -> tuple[int, np.dtype[np.generic]]:
    """Vector length (0 for scalars) and element dtype; pointers are 64-bit addresses."""
    if type.startswith("ptr"):
        return 0, np.dtype(np.int64)
    if match := _VECTOR.fullmatch(type):
        return int(match[1]), split_type(match[2])[1]
    if type in _SCALARS:
        return 0, _SCALARS[type]
    raise SimulationError(f"the simulator does not know the LLVM type {type!r}")


def is_float(type: str) -> bool:
    return type in FLOATS


def unsigned(array: Array) -> Array:
    """The same bits as unsigned integers."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def operand(type: str, token: str) -> Operand:
    """How to read ``token`` of ``type``: a name is looked up, a constant is made once."""
    if token.startswith("%"):

        def look_up(env: dict[str, Held]) -> Array:
            held = env[token]
            return held if isinstance(held, np.ndarray) else _settled(token, held)

        return look_up
    value = constant(type, token)
    return lambda env: value


def held_operand(type: str, token: str) -> HeldOperand:
    """As ``operand``, for what only passes a register on: it may be in flight."""
    if token.startswith("%"):
        return lambda env: env[token]
    return operand(type, token)


def _settled(token: str, held: Pending | tuple[Array | Pending, ...]) -> Array:
    if isinstance(held, tuple):
        raise SimulationError(f"{token} is a struct")
    return held.read()


def constant(type: str, token: str) -> Array:
    """The array of a constant."""
    lanes, dtype = split_type(type)
    shape = (LANES, lanes) if lanes else (LANES,)
    if token in ("poison", "undef", "zeroinitializer", "null") or token.startswith("@"):
        return np.zeros(shape, dtype)
    if lanes:
        parts = [p.strip().rsplit(" ", 1) for p in token.strip("<>").split(",")]
        return np.stack([constant(t, v) for t, v in parts], axis=1)
    return np.full(shape, _number(type, token, dtype), dtype)


def _number(type: str, token: str, dtype: np.dtype[np.generic]) -> object:
    if type == "i1":
        return token in ("true", "1", "-1")
    if not is_float(type):
        bits = int(token) & ((1 << 8 * dtype.itemsize) - 1)  # integers may be spelled without a sign
        return np.array([bits], f"u{dtype.itemsize}").view(dtype)[0]
    if token.startswith("0xH"):
        return np.uint16(int(token[3:], 16)).view(np.float16)
    if token.startswith("0xR"):
        return np.uint16(int(token[3:], 16)).view(ml_dtypes.bfloat16)
    if token.startswith("0x"):
        return struct.unpack("<d", struct.pack("<Q", int(token[2:], 16)))[0]
    return float(token)
