"""Casts among all types, and the bits of one type as those of another."""

from __future__ import annotations

import numpy as np

from .bounds import Known, Reject, result, rounded, ulp
from .building import Builder
from .kinds import (
    BF16,
    E4,
    EIGHT_BITS,
    F16,
    F32,
    F64,
    FLOATS,
    I1,
    I16,
    I32,
    I64,
    INTEGERS,
    STORED,
    Array,
    Kind,
    encoded,
)
from .statements import Variable


def convert(b: Builder) -> None:
    a = b.pick()
    cast(b, a, b.choose(*INTEGERS, *FLOATS) if a.kind is I1 else b.choose(*STORED, I1))


def cast(b: Builder, a: Variable, to: Kind) -> Variable:
    """``a`` in another type; its values are kept within it."""
    kind = a.kind
    if kind is to:
        return a
    if kind.is_float and to is I1 or (kind.is_integer or kind is I1) and to in EIGHT_BITS:
        raise Reject("no such cast")
    if kind.is_float:
        a = _within(b, a, to)
    text = f"{a}.to({to.spelled})" if b.chance(0.8) else f"tl.cast({a}, {to.spelled})"
    return b.emit(text, [a], [(a.shape, to)], lambda x: converted(x, kind, to))


def _within(b: Builder, a: Variable, to: Kind) -> Variable:
    if to.is_float:
        narrow = to in EIGHT_BITS or (to is F16 and a.kind not in EIGHT_BITS)
        return bounded(b, a, 400.0 if to is E4 else 8000.0) if narrow else a
    if not to.is_signed:
        a = b.emit(f"tl.abs({a})", [a], [(a.shape, a.kind)], lambda x: Known(np.abs(x.values), x.error), pooled=False)
    return bounded(b, a, 100.0 if not to.is_signed or to.bits == 8 else 30000.0 if to.bits == 16 else 1e6)


def converted(x: Known, kind: Kind, to: Kind) -> Known:
    """What a cast gives."""
    if kind.is_float and to.is_float:
        return result(x.values, x.error, to)
    if kind.is_float:
        return Known(_truncated(x.settled(), to))
    if to.is_float:
        values = x.values.astype(np.float64)
        large = kind.bits == 64 and np.abs(values).max(initial=0) > 2.0**53
        return result(values, ulp(values, to) if large else None, to)
    return Known(x.values != 0 if to is I1 else x.values.astype(to.numpy))


def _truncated(values: Array, to: Kind) -> Array:
    whole, info = np.trunc(values), np.iinfo(to.numpy)
    if np.abs(whole).max(initial=0) > 2**62 or whole.min(initial=0) < info.min or whole.max(initial=0) > info.max:
        raise Reject("out of range")
    return whole.astype(to.numpy)


def bounded(b: Builder, a: Variable, most: float) -> Variable:
    """``a``, not beyond ``most`` on either side."""
    if a.kind in EIGHT_BITS:
        return a
    if not b.loops and not b.depth and b.state[a].size.max(initial=0) <= most:
        return a
    text = f"tl.minimum(tl.maximum({a}, {-most}), {most}).to({a.kind.spelled})"
    if a.kind is F32 and b.chance(0.5):
        text = f"tl.clamp({a}, {-most}, {most})"
    edge = rounded(np.array(most), a.kind)
    made = [(a.shape, a.kind)]
    return b.emit(text, [a], made, lambda x: Known(np.clip(x.values, -edge, edge), x.error), pooled=False)


def bits(b: Builder) -> None:
    """The bits of one type as another of its size."""
    a = b.pick(lambda v: v.kind in (*INTEGERS, *FLOATS))
    kind = a.kind
    if kind.is_integer:
        to = b.rng.choice([other for other in INTEGERS if other.bits == kind.bits and other is not kind])
        text = f"{a}.to({to.spelled}, bitcast=True)"
        b.emit(text, [a], [(a.shape, to)], lambda x: Known(np.ascontiguousarray(x.values).view(to.numpy)))
        return
    text, made = f"(tl.abs({a}) + 1.0).to({kind.spelled})", [(a.shape, kind)]
    a = b.emit(text, [a], made, lambda x: result(np.abs(x.values) + 1, x.error, kind), pooled=False)
    to = {64: I64, 32: I32, 16: I16}[kind.bits]
    text = f"{a}.to({to.spelled}, bitcast=True)"
    b.emit(text, [a], [(a.shape, to)], lambda x: Known(encoded(x.settled(), kind).view(to.numpy)))


def bits_back(b: Builder) -> None:
    """Integers whose bits are floats between 1 and 2."""
    a = b.pick(lambda v: v.kind in (I16, I32, I64))
    to, least = {I16: (b.choose(F16, BF16), 0), I32: (F32, 0), I64: (F64, 0)}[a.kind]
    least = int(np.asarray(1.0, to.memory).view(a.kind.numpy))
    step = 1 << max(0, to.digits - 5)  # of few digits, so that sums of them are exact
    mask = a.kind.numpy(15 * step)
    made = [(a.shape, a.kind)]
    text = f"({a} & {mask}) | {least}"
    few = b.emit(text, [a], made, lambda x: Known((x.values & mask) | a.kind.numpy(least)), pooled=False)
    text = f"{few}.to({to.spelled}, bitcast=True)"
    b.emit(
        text, [few], [(a.shape, to)], lambda x: Known(np.ascontiguousarray(x.values).view(to.memory).astype(np.float64))
    )
