"""Values that are known up to an error: what a target may make of an operation that the language does not fix.

Fixed are integers, comparisons, and everything that moves elements. Of floats, sums may be added in any order, a
product and a sum may be one instruction (``enable_fp_fusion``), quotients of f32 are within an ulp and functions within
a few. Most inputs are small integers, of which all of that is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .kinds import BF16, E4, E5, F16, F32, F64, Array, Kind


class Reject(Exception):
    """An operation that is not wanted on these values; nothing of it stays."""


class Discard(Exception):
    """A kernel that is not wanted."""


@dataclass(frozen=True, eq=False)
class Known:
    """The values of a variable, a row for each program; a right result is off by ``error`` at most (None: by
    nothing)."""

    values: Array
    error: Array | None = None

    @property
    def exact(self) -> bool:
        return self.error is None or not np.any(self.error > 0)

    @property
    def slack(self) -> Array:
        """The error as an array of the values' shape."""
        return np.broadcast_to(0.0 if self.error is None else self.error, self.values.shape)

    @property
    def size(self) -> Array:
        """What the absolute values are at most."""
        return np.abs(self.values) + self.slack

    def settled(self) -> Array:
        """The values, for operations that make something else of any other.

        Raises:
            Reject: they may be others.
        """
        if not self.exact:
            raise Reject("inexact")
        return self.values

    def moved(self, move: Callable[[Array], Array]) -> Known:
        """The same elements elsewhere, some of them more than once or not at all."""
        return Known(move(self.values), None if self.error is None else move(self.slack))


def rounded(values: Array, kind: Kind) -> Array:
    """The nearest numbers of a type."""
    if kind in (F64, F32, F16):
        with np.errstate(over="ignore"):
            return values.astype(kind.memory).astype(np.float64)
    quantum = ulp(values, kind)
    nearest: Array = np.rint(values / quantum) * quantum
    return nearest


def ulp(values: Array, kind: Kind) -> Array:
    """The distance of neighbours around values."""
    _, exponent = np.frexp(np.abs(values))
    step: Array = np.ldexp(1.0, np.maximum(exponent - 1, kind.least) - (kind.digits - 1))
    return step


def uses_last_bits(values: Array) -> Array:
    """Whether the last bits of f64 are set: of an operation that says that it was rounded when it was computed here."""
    mantissa, _ = np.frexp(values)
    used: Array = (mantissa * 2.0**53).astype(np.int64) & 31 != 0
    return used


def result(values: Array, error: Array | float | None, kind: Kind) -> Known:
    """What an operation gives in ``kind`` whose real result is off by up to ``error``.

    Raises:
        Reject: it may overflow, or says next to nothing.
    """
    values = np.asarray(values, np.float64)
    near = rounded(values, kind)
    largest = float(np.abs(near).max(initial=0))
    if not np.isfinite(near).all() or largest > kind.most * 0.4:
        raise Reject("overflow")
    inexact = near != values if kind is not F64 else uses_last_bits(values)
    if error is not None:
        inexact = inexact | (np.asarray(error) > 0)
    if not inexact.any():
        return Known(near)
    off = np.zeros(values.shape) + (0.0 if error is None else error)
    off = off + np.where(inexact, ulp(np.abs(values) + off, kind), 0.0)
    if off.max() > 0.02 * (largest + 1e-3) and off.max() > 1e3:
        raise Reject("no accuracy")
    return Known(near, off)


def total_error(*parts: Known) -> Array | None:
    """Of a sum or difference."""
    return None if all(part.exact for part in parts) else np.add.reduce([part.slack for part in parts])


def product_error(x: Known, y: Known) -> Array | None:
    """Of a product of elements."""
    if x.exact and y.exact:
        return None
    off: Array = np.abs(x.values) * y.slack + np.abs(y.values) * x.slack + x.slack * y.slack
    return off


def larger_error(*parts: Known) -> Array | None:
    """Of a choice or an extremum."""
    return None if all(part.exact for part in parts) else np.maximum.reduce([part.slack for part in parts])


def grain(values: Array) -> float:
    """The power of two of which all values are multiples."""
    found = np.abs(values[values != 0])
    if not found.size:
        return 1.0
    mantissa, exponent = np.frexp(found)
    whole = (mantissa * 2.0**53).astype(np.int64)
    lowest = (whole & -whole).astype(np.float64)
    return float(2.0 ** (np.log2(lowest) + exponent - 53).min())


def summed(x: Known, kind: Kind, add: Callable[[Array], Array], terms: int) -> Known:
    """``add``, a sum of ``terms`` elements in any order."""
    largest = add(np.abs(x.values))
    if x.exact and largest.max(initial=0) / grain(x.values) <= 2.0**kind.digits:
        return result(add(x.values), None, kind)
    off = terms * 2.0 ** (1 - kind.digits) * largest
    return result(add(x.values), off + (0 if x.exact else add(x.slack)), kind)


#: What a product of matrices adds in, as bits of a mantissa, and its error by a term's size, by the type of operands.
DOT_DIGITS = {E4: 13, E5: 13}
DOT_ERROR = {F64: 2.0**-50, E4: 2.0**-12, E5: 2.0**-12, BF16: 2.0**-21, F16: 2.0**-21, F32: 2.0**-21}


def multiplied(x: Known, y: Known, start: Known | None, operands: Kind, to: Kind, precision: str | None) -> Known:
    """``start + x @ y`` of operands of a type. ``precision``: of f32, as ``tl.dot`` calls it (None: tf32)."""
    if operands.is_integer:
        whole = np.matmul(x.values.astype(np.float64), y.values.astype(np.float64)).astype(np.int64)
        return Known((whole if start is None else whole + start.values).astype(np.int32))
    a, b = x.values, y.values
    values, sizes = np.matmul(a, b), np.matmul(np.abs(a), np.abs(b))
    error: Array | None = None
    if operands is F32 and precision in ("tf32", None) and (np.any(_tf32(a) != a) or np.any(_tf32(b) != b)):
        error = sizes * 2.0**-10 * 2.1
    if not (x.exact and y.exact):
        ex, ey = np.abs(x.slack), np.abs(y.slack)
        error = _plus(error, np.matmul(np.abs(a), ey) + np.matmul(ex, np.abs(b)) + np.matmul(ex, ey))
    finest = grain(a) * grain(b)
    if start is not None:
        values, sizes, finest = values + start.values, sizes + np.abs(start.values), min(finest, grain(start.values))
        error = error if start.exact else _plus(error, start.slack)
    digits = F16.digits if to is F16 else DOT_DIGITS.get(operands, F32.digits)
    if error is None and sizes.max(initial=0) / finest <= 2.0**digits:
        return result(values, None, to)
    relative = 2.0**-9 if to is F16 else 2.0**-18 if precision == "tf32x3" else DOT_ERROR[operands]
    return result(values, _plus(error, sizes * relative * (2 + a.shape[-1] ** 0.5)), to)


def _plus(error: Array | None, more: Array) -> Array:
    return more if error is None else error + more


def _tf32(values: Array) -> Array:
    kept = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return kept.view(np.float32).astype(np.float64)
