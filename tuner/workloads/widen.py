"""Narrow floats to float64, fast: NumPy knows float16, but asks ml_dtypes for every other element by itself."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from .lanes import in_lanes

if TYPE_CHECKING:
    import numpy as np


def widened(values: np.ndarray) -> np.ndarray:
    """In float64, C-contiguous, every value exact: bf16 is the upper half of a float32, floats of 8 bits are
    looked up."""
    import numpy as np

    name = values.dtype.name
    if name != "bfloat16" and not name.startswith("float8"):
        return np.ascontiguousarray(values, dtype=np.float64)
    made = np.empty(values.shape, np.float64)
    flat, wide = np.ascontiguousarray(values).reshape(-1), made.reshape(-1)
    convert = _from_bf16 if name == "bfloat16" else _looked_up

    def widen(chunks: list[slice]) -> None:
        with np.errstate(invalid="ignore"):  # signalling NaN
            for chunk in chunks:
                wide[chunk] = convert(flat[chunk])

    in_lanes(widen, flat.size)
    return made


def count_nan(values: np.ndarray) -> int:
    """How many elements are NaN."""
    import numpy as np

    if values.dtype.kind in "iub":
        return 0
    flat = values.reshape(-1)

    def count(chunks: list[slice]) -> int:
        return sum(int(np.count_nonzero(np.isnan(widened(flat[chunk])))) for chunk in chunks)

    return sum(in_lanes(count, flat.size))


def _from_bf16(values: np.ndarray) -> np.ndarray:
    bits = values.view("u2").astype("u4")
    bits <<= 16
    return bits.view("f4")


def _looked_up(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = _table(values.dtype)[values.view("u1")]
    return found


@cache
def _table(dtype: np.dtype) -> np.ndarray:
    """The values of all 256 patterns."""
    import numpy as np

    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
