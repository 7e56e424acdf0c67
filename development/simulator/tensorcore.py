"""mma.sync, from the fragment tables of the PTX ISA (section "Warp Level Matrix Multiply-Accumulate Instructions").

Written from the tables, not from the layouts that the compiler uses: this is what those are checked against.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import ml_dtypes
import numpy as np

from .values import LANES, Array

ELEMENTS = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "s8": np.int8,
    "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
#: Of the 32 bits of a tf32 element the last 13 do not count.
TF32_BITS = np.uint32(0xFFFFE000)
#: Rows and columns of the four elements of D that each lane holds.
_ELEMENT_OF_D, _LANE_OF_D = np.ogrid[:4, :LANES]
_ROW_OF_D = (_LANE_OF_D >> 2) + 8 * (_ELEMENT_OF_D >> 1)
_COLUMN_OF_D = (_LANE_OF_D & 3) * 2 + (_ELEMENT_OF_D & 1)


def multiply(shape: str, kind: str, operands: Sequence[Array]) -> list[Array]:
    """The D registers: operands are four words of A, two of B, four elements of C, which are two words of f16. f64 has
    others."""
    if kind == "f64":
        return _multiply_doubles(shape, operands)
    dtype = np.dtype(ELEMENTS[kind])
    depth = int(shape.split("k")[1])
    exact = np.int64 if dtype.kind in "iu" else np.float64
    a, b = gather_rows(operands[:4], kind).astype(exact), np.zeros((depth, 8), exact)
    b[_places_of_b(4 // dtype.itemsize)] = _elements(operands[4:6], kind)
    product = (a @ b)[_ROW_OF_D, _COLUMN_OF_D]
    if len(operands) == 8:
        halves = np.stack(operands[6:]).view(np.float16).reshape(2, LANES, 2).transpose(0, 2, 1).reshape(4, LANES)
        sums = (product + halves).astype(np.float16).reshape(2, 2, LANES).transpose(0, 2, 1)
        return list(np.ascontiguousarray(sums).view(operands[6].dtype)[..., 0])
    return [(mine + acc).astype(acc.dtype) for mine, acc in zip(product, operands[6:10], strict=True)]


def _multiply_doubles(shape: str, operands: Sequence[Array]) -> list[Array]:
    """The D registers of an instruction for f64, whose operands hold an element each: "Matrix Fragments for mma.m8n8k4"
    and for m16n8k4, m16n8k8 and m16n8k16 with .f64."""
    m, n, k = map(int, re.fullmatch(r"m(8|16)n(8)k(4|8|16)", shape).groups())  # type: ignore[union-attr]
    of_a, of_b = m * k // LANES, n * k // LANES
    a, b = np.zeros((m, k)), np.zeros((k, n))
    register, lane = np.ogrid[:of_a, :LANES]
    halves = m // 8
    a[(lane >> 2) + 8 * (register % halves), (lane & 3) + 4 * (register // halves)] = np.stack(operands[:of_a])
    register, lane = np.ogrid[:of_b, :LANES]
    b[(lane & 3) + 4 * register, lane >> 2] = np.stack(operands[of_a : of_a + of_b])
    acc = operands[of_a + of_b :]
    product = (a @ b)[_ROW_OF_D[: len(acc)], _COLUMN_OF_D[: len(acc)]]
    return [mine + held for mine, held in zip(product, acc, strict=True)]


def gather_rows(words: Sequence[Array], kind: str) -> Array:
    """The 16 rows of A whose elements are in four words of each lane, for mma.sync and for each warp of a wgmma."""
    dtype = np.dtype(ELEMENTS[kind])
    per_word = 4 // dtype.itemsize
    a = np.zeros((16, 8 * per_word), dtype)
    a[_places_of_a(per_word)] = _elements(words, kind)
    return a


@cache
def _places_of_a(per_word: int) -> tuple[Array, Array]:
    """Row and column of element i of each lane's register."""
    register, lane, i = np.ogrid[:4, :LANES, :per_word]
    return (lane >> 2) + 8 * (register & 1), (lane & 3) * per_word + i + (register >> 1) * 4 * per_word


@cache
def _places_of_b(per_word: int) -> tuple[Array, Array]:
    register, lane, i = np.ogrid[:2, :LANES, :per_word]
    return (lane & 3) * per_word + i + register * 4 * per_word, lane >> 2


def _elements(registers: Sequence[Array], kind: str) -> Array:
    """(registers, lanes, elements of a word)."""
    words = np.stack(registers)
    if kind == "tf32":
        words = words.view(np.uint32) & TF32_BITS
    elements: Array = words.view(ELEMENTS[kind])
    return elements.reshape(len(registers), LANES, -1)
