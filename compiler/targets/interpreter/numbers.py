"""NumPy's view of element types, and rounding to them.

Integers wrap. f16, bf16 and the 8-bit floats are computed as f32 and rounded after every operation; for one +, -, *, /
or square root that equals rounding the exact result. Mathematical functions are computed in f64 and rounded.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ...ir.types import F32, Element, Pointer, Scalar
from ...tile.formats import FORMATS

Array = NDArray[Any]

_DTYPES: dict[str, np.dtype[Any]] = {
    "i1": np.dtype(np.bool_),
    **{f"i{b}": np.dtype(f"int{b}") for b in (8, 16, 32, 64)},
    **{f"u{b}": np.dtype(f"uint{b}") for b in (8, 16, 32, 64)},
    **{f"f{b}": np.dtype(f"float{b}") for b in (16, 32, 64)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


def dtype_of(element: Element) -> np.dtype[Any]:
    """The NumPy dtype that holds ``element``; pointers are u64 addresses."""
    return np.dtype(np.uint64) if isinstance(element, Pointer) else _DTYPES[element.name]


def widened(x: Array, scalar: Scalar) -> Array:
    """Floats narrower than f32 as f32, everything else as it is."""
    return x.astype(np.float32) if scalar.is_float and scalar.bits < 32 else x


def rounded(x: Array, scalar: Scalar, *, to_zero: bool = False) -> Array:
    """The f32 or f64 array ``x`` as the float type ``scalar``: nearest with ties to even, or towards zero."""
    dtype = dtype_of(scalar)
    if x.dtype == dtype or scalar.bits == 64:
        return np.asarray(x.astype(dtype))
    if scalar == F32 and not to_zero:
        return np.asarray(x.astype(dtype))
    precision, smallest, largest, saturates = FORMATS[scalar.name]
    with np.errstate(all="ignore"):
        x = np.asarray(x, np.float64)
        _, exponent = np.frexp(x)
        last = np.maximum(exponent - precision, smallest)  # exponent of the last bit that stays
        units = np.ldexp(x, -last)
        kept = np.ldexp(np.trunc(units) if to_zero else np.rint(units), last)
        kept = np.where(np.isfinite(x), kept, x)
        if saturates:
            kept = np.clip(kept, -largest, largest)
        elif to_zero:
            kept = np.where(np.isinf(x), x, np.clip(kept, -largest, largest))
        else:
            kept = np.where(np.abs(kept) > largest, np.copysign(np.inf, kept), kept)
        return np.asarray(kept.astype(dtype))


def as_tf32(x: Array) -> Array:
    """f32 numbers with 10 mantissa bits: nearest, ties away from zero, as PTX's cvt.rna.tf32.f32; given as f64."""
    x = x.astype(np.float64)
    mantissa, exponent = np.frexp(x)
    units = np.ldexp(np.abs(mantissa), 11)
    nearest = np.copysign(np.ldexp(np.floor(units + 0.5), exponent - 11), x)
    return np.where(np.isfinite(x), nearest, x)
