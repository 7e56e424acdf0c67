"""NumPy's view of element types, and rounding to them.

Integers wrap. f16, bf16 and the 8-bit floats are computed as f32 and rounded after every operation; for one +, -, *, /
or square root that equals rounding the exact result. Mathematical functions are computed in f64 and rounded.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ...ir.types import F8E5M2, F32, Element, Pointer, Scalar
from ...tile.formats import FORMATS, IntegerLimits, integer_limits

Array = NDArray[Any]

_DTYPES: dict[str, np.dtype[Any]] = {
    "i1": np.dtype(np.bool_),
    **{f"i{b}": np.dtype(f"int{b}") for b in (8, 16, 32, 64)},
    **{f"u{b}": np.dtype(f"uint{b}") for b in (8, 16, 32, 64)},
    **{f"f{b}": np.dtype(f"float{b}") for b in (16, 32, 64)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f8e4b8": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8e5b16": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8e4b15": np.dtype(np.uint8),  # nobody has it: its codes
}


def dtype_of(element: Element) -> np.dtype[Any]:
    """The NumPy dtype that holds ``element``; pointers are u64 addresses."""
    return np.dtype(np.uint64) if isinstance(element, Pointer) else _DTYPES[element.code]


def widened(x: Array, scalar: Scalar) -> Array:
    """Floats narrower than f32 as f32, everything else as it is."""
    return x.astype(np.float32) if scalar.is_float and scalar.bits < 32 else x


def rounded(x: Array, scalar: Scalar, *, to_zero: bool = False) -> Array:
    """The f32 or f64 array ``x`` as the float type ``scalar``: nearest with ties to even, or towards zero. That way
    f8e5m2, which is the upper byte of f16 then, has infinities."""
    dtype = dtype_of(scalar)
    if x.dtype == dtype or scalar.bits == 64:
        return np.asarray(x.astype(dtype))
    if scalar == F32 and not to_zero:
        return np.asarray(x.astype(dtype))
    precision, smallest, largest, saturates = FORMATS[scalar.code]
    with np.errstate(all="ignore"):
        x = np.asarray(x, np.float64)
        _, exponent = np.frexp(x)
        last = np.maximum(exponent - precision, smallest)  # exponent of the last bit that stays
        units = np.ldexp(x, -last)
        kept = np.ldexp(np.trunc(units) if to_zero else np.rint(units), last)
        kept = np.where(np.isfinite(x), kept, x)
        if to_zero and (not saturates or scalar == F8E5M2):
            kept = np.where(np.isinf(x), x, np.clip(kept, -largest, largest))
        elif saturates:
            kept = np.clip(kept, -largest, largest)
        else:
            kept = np.where(np.abs(kept) > largest, np.copysign(np.inf, kept), kept)
        return np.asarray(kept.astype(dtype))


def truncated(x: Array, source: Scalar, to: Scalar) -> Array:
    """Numbers of the float type ``source`` as integers, truncated; what is out of range as on GPUs
    (:func:`~...tile.formats.integer_limits`)."""
    limits = integer_limits(source.bits, to.bits, to.is_signed)
    return limited(x, limits, np.dtype(f"{'i' if to.is_signed else 'u'}{limits.bits // 8}")).astype(dtype_of(to))


def limited(x: Array, limits: IntegerLimits, dtype: np.dtype[Any]) -> Array:
    """Floats as integers of the NumPy dtype that ``limits`` are of."""
    x = x.astype(np.float64)
    below, beyond, nan = x <= limits.low - 1.0, x >= limits.high + 1.0, np.isnan(x)  # of 64 bits the limits themselves
    made = np.where(below | beyond | nan, 0.0, x).astype(dtype)
    made[below], made[beyond], made[nan] = limits.low, limits.high, limits.nan
    return made


def odd_float(x: Array) -> Array:
    """64-bit integers as f64 rounded to odd: rounding the result once more, to a narrow type, is rounding once."""
    low = x.dtype.type((1 << 11) - 1)
    kept = (x & ~low) | np.where(x & low, low + x.dtype.type(1), x.dtype.type(0))
    large = np.abs(x.astype(np.float64)) >= 2.0**53
    return np.asarray(np.where(large, kept, x).astype(np.float64))


def fused(x: Array, y: Array, z: Array, scalar: Scalar) -> Array:
    """x * y + z of the float type ``scalar``, rounded once."""
    x, y, z = (v.astype(np.float64) for v in (x, y, z))
    with np.errstate(all="ignore"):
        if scalar.bits == 64:
            return _fma64(x, y, z)
        # The product is exact: twice 24 bits fit in 53. The second rounding is the one to the narrow type.
        return rounded(_odd_sum(x * y, z), scalar)


def _two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """x + y, and what rounding it left (D. Knuth, "The Art of Computer Programming", 4.2.2)."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


def _odd_sum(x: Array, y: Array) -> Array:
    """x + y rounded to odd, which keeps what a second rounding has to know (S. Boldo, G. Melquiond, "Emulation of FMA
    and correctly rounded sums: proved algorithms using rounding to odd", 2008)."""
    total, error = _two_sum(x, y)
    inexact = np.isfinite(total) & (error != 0) & (total.view(np.int64) & 1 == 0)
    return np.where(inexact, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


#: Magnitudes whose products and their parts neither overflow nor lose bits to underflow.
_LEAST_EXACT, _MOST_EXACT = 2.0**-400, 2.0**400


def _fma64(x: Array, y: Array, z: Array) -> Array:
    """x * y + z rounded once: from parts that are exact (the same paper's Fma), in fractions where they may not be."""
    product = x * y
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    rest = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    low, lower = _two_sum(z, rest)
    high, middle = _two_sum(product, low)
    made = np.asarray(high + _odd_sum(middle, lower))
    usual = np.logical_and.reduce([(np.abs(v) > _LEAST_EXACT) & (np.abs(v) < _MOST_EXACT) for v in (x, y, z)])
    if not usual.all():
        made[~usual] = _fma_in_fractions(x[~usual], y[~usual], z[~usual])
    return made


def _halves(x: Array) -> tuple[Array, Array]:
    """``x`` as two numbers of at most 26 bits each (T. J. Dekker, 1971)."""
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def _fma_of_fractions(x: float, y: float, z: float) -> float:
    if math.isfinite(x) and math.isfinite(y) and math.isinf(z):
        return z  # the product is finite, though it may be beyond f64
    plain = x * y + z
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        return plain
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if not exact:
        return plain
    try:
        return math.copysign(float(abs(exact)), 1 if exact > 0 else -1)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


_fma_in_fractions = np.frompyfunc(_fma_of_fractions, 3, 1)


def as_tf32(x: Array) -> Array:
    """What tensor cores read of f32 numbers, sign, exponent and the first 10 bits of the mantissa; given as f64."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32).astype(np.float64)
