"""mma.sync, from the fragment tables of the PTX ISA (section "Warp Level Matrix Multiply-Accumulate Instructions").

Written from the tables, not from the layouts that the compiler uses: this is what those are checked against.
"""

from __future__ import annotations

from collections.abc import Sequence

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
_LANE = np.arange(LANES)
_GROUP, _IN_GROUP = _LANE >> 2, _LANE & 3


def multiply(shape: str, kind: str, operands: Sequence[Array]) -> list[Array]:
    """The four D registers: operands are four words of A, two of B, four elements of C."""
    dtype = np.dtype(ELEMENTS[kind])
    per_word = 4 // dtype.itemsize
    depth = int(shape.split("k")[1])
    exact = np.int64 if dtype.kind in "iu" else np.float64
    a, b = gather_rows(operands[:4], kind).astype(exact), np.zeros((depth, 8), exact)
    for register in range(2):
        elements = _elements(operands[4 + register], kind)
        for i in range(per_word):
            b[_IN_GROUP * per_word + i + register * 4 * per_word, _GROUP] = elements[:, i]
    product = a @ b
    made = []
    for register in range(4):
        rows, columns = _GROUP + 8 * (register >> 1), _IN_GROUP * 2 + (register & 1)
        acc = operands[6 + register]
        made.append((product[rows, columns] + acc).astype(acc.dtype))
    return made


def gather_rows(words: Sequence[Array], kind: str) -> Array:
    """The 16 rows of A whose elements are in four words of each lane, for mma.sync and for each warp of a wgmma."""
    dtype = np.dtype(ELEMENTS[kind])
    per_word = 4 // dtype.itemsize
    a = np.zeros((16, 8 * per_word), dtype)
    for register, word in enumerate(words):
        elements = _elements(word, kind)
        for i in range(per_word):
            a[_GROUP + 8 * (register & 1), _IN_GROUP * per_word + i + (register >> 1) * 4 * per_word] = elements[:, i]
    return a


def _elements(word: Array, kind: str) -> Array:
    words = np.ascontiguousarray(word)
    if kind == "tf32":
        words = words.view(np.uint32) & TF32_BITS
    elements: Array = words.view(ELEMENTS[kind])
    return elements.reshape(LANES, -1)
