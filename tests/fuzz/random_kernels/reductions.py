"""Operations along axes: reductions, scans, orders, places and counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .arithmetic import like
from .bounds import Known, Reject, result, summed
from .building import Builder
from .kinds import BF16, F16, F32, F64, I8, I16, I32, I64, NUMBERS, U8, U32, Array, Kind
from .loads import places_along
from .places import random_mask
from .statements import Variable


class Axis:
    """The axis of a reduction, what is left of a tile, and its text."""

    def __init__(self, b: Builder, a: Variable, whole: bool) -> None:
        self.keep = b.chance(0.3) and not whole
        self.place = b.rng.randrange(len(a.shape))
        self.numpy = tuple(range(1, len(a.shape) + 1)) if whole else self.place + 1
        self.terms = a.size if whole else a.shape[self.place]
        kept = [
            1 if axis == self.place else size for axis, size in enumerate(a.shape) if self.keep or axis != self.place
        ]
        self.shape = () if whole else tuple(kept)
        self.kept = ", keep_dims=True" if self.keep else ""
        self.text = ("axis=None" if whole else f"axis={self.place}") + self.kept

    def fit(self, values: Array) -> Array:
        return values.reshape(-1, *self.shape)

    def largest(self, x: Known) -> Array | None:
        """The largest error along the axis."""
        return None if x.exact else self.fit(x.slack.max(self.numpy))


def reduce(b: Builder) -> None:
    a = b.pick(lambda v: bool(v.shape) and v.kind in NUMBERS)
    whole = b.chance(0.15)
    axis, styles = Axis(b, a, whole), (_sum, _sum, _extremum, _xor)
    b.choose(*(styles if whole else (*styles, _extremum, _place, _place_and_value, _combined, _tuple, _best)))(
        b, a, axis
    )


def _sum(b: Builder, a: Variable, axis: Axis) -> None:
    kind = a.kind
    if kind.is_integer:
        to, more = _summed_as(kind), ""
        if b.chance(0.3):
            to, more = I64, ", dtype=tl.int64"
        made = [(axis.shape, to)]
        meaning = lambda x: Known(axis.fit(x.values.astype(to.numpy).sum(axis.numpy, dtype=to.numpy)))  # noqa: E731
        b.emit(f"tl.sum({a}, {axis.text}{more})", [a], made, meaning)
        return
    text, to = f"tl.sum({a}, {axis.text})", kind
    if kind is BF16:
        text, to = f"tl.sum({a}.to(tl.float32), {axis.text})", F32
    made = [(axis.shape, to)]
    b.emit(text, [a], made, lambda x: summed(x, to, lambda d: axis.fit(d.sum(axis.numpy)), axis.terms))


def _summed_as(kind: Kind) -> Kind:
    return kind if kind.bits >= 32 else I32 if kind.is_signed else U32


def _extremum(b: Builder, a: Variable, axis: Axis) -> None:
    name = b.choose("max", "min")
    text, run = f"tl.{name}({a}, {axis.text}).to({a.kind.spelled})", getattr(np, name)
    b.emit(text, [a], [(axis.shape, a.kind)], lambda x: Known(axis.fit(run(x.values, axis.numpy)), axis.largest(x)))


def _xor(b: Builder, a: Variable, axis: Axis) -> None:
    if a.kind not in (I8, I16, I32, I64, U32):
        raise Reject("of integers")
    text = f"tl.xor_sum({a}, {axis.text}).to({a.kind.spelled})"
    meaning = lambda x: Known(axis.fit(np.bitwise_xor.reduce(x.values, axis.numpy)))  # noqa: E731
    b.emit(text, [a], [(axis.shape, a.kind)], meaning)


def _place(b: Builder, a: Variable, axis: Axis) -> None:
    name = b.choose("argmax", "argmin")
    run = getattr(np, name)
    meaning = lambda x: Known(axis.fit(run(x.settled(), axis.place + 1).astype(np.int32)))  # noqa: E731
    b.emit(f"tl.{name}({a}, {axis.text})", [a], [(axis.shape, I32)], meaning)


def _first_best(x: Known, axis: Axis) -> list[Known]:
    values = x.settled()
    place = np.argmax(values, axis.place + 1).astype(np.int32)
    return [Known(axis.fit(values.max(axis.numpy))), Known(axis.fit(place))]


def _place_and_value(b: Builder, a: Variable, axis: Axis) -> None:
    if a.kind.bits < 32:
        raise Reject("narrow types are widened")
    text, made = f"tl.max({a}, {axis.text}, return_indices=True)", [(axis.shape, a.kind), (axis.shape, I32)]
    b.emit(text, [a], made, lambda x: _first_best(x, axis))


COMBINED: dict[str, np.ufunc] = {"f_add": np.add, "f_max": np.maximum, "f_mul": np.multiply}


def _combined(b: Builder, a: Variable, axis: Axis) -> None:
    made = [(axis.shape, a.kind)]
    if a.kind.is_integer:
        name = b.choose(*COMBINED)
        run = COMBINED[name]
        meaning = lambda x: Known(axis.fit(run.reduce(x.values, axis.numpy, dtype=a.kind.numpy)))  # noqa: E731
        b.emit(f"tl.reduce({a}, {axis.place}, {name}{axis.kept})", [a], made, meaning)
        return
    meaning = lambda x: summed(x, a.kind, lambda d: axis.fit(d.sum(axis.numpy)), axis.terms)  # noqa: E731
    b.emit(f"tl.reduce({a}, {axis.place}, f_add{axis.kept})", [a], made, meaning)


def _tuple(b: Builder, a: Variable, axis: Axis) -> None:
    """A sum and an extremum at once."""
    if a.kind is BF16:
        raise Reject("sums of bf16 are f32")
    o = like(b, a.shape, b.choose(I32, F32, I64))

    def meaning(x: Known, y: Known) -> list[Known]:
        if a.kind.is_integer:
            total = Known(axis.fit(x.values.sum(axis.numpy, dtype=a.kind.numpy)))
        else:
            total = summed(x, a.kind, lambda d: axis.fit(d.sum(axis.numpy)), axis.terms)
        return [total, Known(axis.fit(y.values.min(axis.numpy)), axis.largest(y))]

    text = f"tl.reduce(({a}, {o}), {axis.place}, f_sum_min{axis.kept})"
    b.emit(text, [a, o], [(axis.shape, a.kind), (axis.shape, o.kind)], meaning)


def _best(b: Builder, a: Variable, axis: Axis) -> None:
    """The first of the largest elements, by a function of the kernel's module."""
    places = places_along(b, a.shape, axis.place)
    text = f"tl.reduce(({a}, {places}), {axis.place}, f_best{axis.kept})"
    b.emit(text, [a, places], [(axis.shape, a.kind), (axis.shape, I32)], lambda x, i: _first_best(x, axis))


def beside_its_extremum(b: Builder) -> None:
    """A tile less its own largest elements."""
    a = b.pick(lambda v: len(v.shape) >= 2 and v.kind in (F16, F32, F64, I32, I64))
    place = b.rng.randrange(len(a.shape))
    thin = tuple(1 if axis == place else size for axis, size in enumerate(a.shape))

    def largest(x: Known) -> Known:
        return Known(x.values.max(place + 1, keepdims=True), None if x.exact else x.slack.max(place + 1, keepdims=True))

    text = f"tl.max({a}, axis={place}, keep_dims=True).to({a.kind.spelled})"
    most = b.emit(text, [a], [(thin, a.kind)], largest)

    def less(x: Known, y: Known) -> Known:
        if a.kind.is_integer:
            return Known(x.values - y.values)
        return result(x.values - y.values, None if x.exact and y.exact else x.slack + y.slack, a.kind)

    b.emit(f"{a} - {most}", [a, most], [(a.shape, a.kind)], less)


# Scans --------------------------------------------------------------------------------------------------------


class Direction:
    """The axis of a scan, and from which end."""

    def __init__(self, b: Builder, a: Variable) -> None:
        self.place = b.rng.randrange(len(a.shape))
        self.numpy, self.backwards = self.place + 1, b.chance(0.35)
        self.text = ", reverse=True" if self.backwards else ""

    def turned(self, values: Array) -> Array:
        return np.flip(values, self.numpy) if self.backwards else values

    def each(self, run: Callable[..., Array]) -> Callable[..., Array]:
        """``run``, which scans arrays from their beginning."""
        return lambda *arrays: self.turned(run(*map(self.turned, arrays)))


def scan(b: Builder) -> None:
    a = b.pick(lambda v: bool(v.shape) and v.kind in (I8, I16, I32, I64, U32, F16, F32, F64))
    way = Direction(b, a)
    styles: tuple[Callable[[Builder, Variable, Direction], None], ...] = (_running_sum, _running_sum, _running_max)
    if a.kind.is_integer:
        styles = (*styles, _recurrence, _last, _running_product)
    b.choose(*styles)(b, a, way)


def _running_sum(b: Builder, a: Variable, way: Direction) -> None:
    plain = b.chance(0.6)
    to = _summed_as(a.kind) if plain and a.kind.is_integer else a.kind
    text = (
        f"tl.cumsum({a}, axis={way.place}{way.text})"
        if plain
        else f"tl.associative_scan({a}, {way.place}, f_add{way.text})"
    )
    run = way.each(lambda d: np.cumsum(d, way.numpy, dtype=d.dtype))
    made = [(a.shape, to)]
    if a.kind.is_integer:
        b.emit(text, [a], made, lambda x: Known(run(x.values.astype(to.numpy))))
    else:
        b.emit(text, [a], made, lambda x: summed(x, to, run, a.shape[way.place]))


def _running_max(b: Builder, a: Variable, way: Direction) -> None:
    run = way.each(lambda d: np.maximum.accumulate(d, way.numpy))
    text = f"tl.associative_scan({a}, {way.place}, f_max{way.text}).to({a.kind.spelled})"
    meaning = lambda x: Known(run(x.values), None if x.exact else run(x.slack))  # noqa: E731
    b.emit(text, [a], [(a.shape, a.kind)], meaning)


def _running_product(b: Builder, a: Variable, way: Direction) -> None:
    if a.kind.bits < 32:
        raise Reject("narrow types are widened")
    run = way.each(lambda d: np.multiply.accumulate(d, way.numpy, dtype=d.dtype))
    text = f"tl.cumprod({a}, axis={way.place}{way.text})"
    b.emit(text, [a], [(a.shape, a.kind)], lambda x: Known(run(x.values)))


def _last(b: Builder, a: Variable, way: Direction) -> None:
    """The last element that is not zero."""
    number, made = a.kind.numpy, [(a.shape, a.kind)]

    def run(values: Array) -> Array:
        moved = np.moveaxis(values.copy(), way.numpy, 0)
        for at in range(1, len(moved)):
            moved[at] = np.where(moved[at] != 0, moved[at], moved[at - 1])
        return np.moveaxis(moved, 0, way.numpy)

    thinned = lambda x: Known(np.where((x.values & number(3)) == 0, x.values, number(0)))  # noqa: E731
    sparse = b.emit(f"tl.where(({a} & 3) == 0, {a}, 0).to({a.kind.spelled})", [a], made, thinned, pooled=False)
    text, scanned = f"tl.associative_scan({sparse}, {way.place}, f_last{way.text})", way.each(run)
    b.emit(text, [sparse], made, lambda x: Known(scanned(x.values)))


def _recurrence(b: Builder, a: Variable, way: Direction) -> None:
    """x -> b + a * x, one after the other: the order of operands matters."""
    if a.kind.bits < 32:
        raise Reject("narrow types are widened")
    o = like(b, a.shape, a.kind)

    def meaning(x: Known, y: Known) -> list[Known]:
        p = np.moveaxis(way.turned(x.values).copy(), way.numpy, 0)
        q = np.moveaxis(way.turned(y.values).copy(), way.numpy, 0)
        for at in range(1, len(p)):
            q[at] = q[at - 1] * p[at] + q[at]
            p[at] = p[at - 1] * p[at]
        return [Known(way.turned(np.moveaxis(d, 0, way.numpy))) for d in (p, q)]

    text = f"tl.associative_scan(({a}, {o}), {way.place}, f_after{way.text})"
    b.emit(text, [a, o], [(a.shape, a.kind)] * 2, meaning)


# Orders and places --------------------------------------------------------------------------------------------


def sort(b: Builder) -> None:
    kinds = (U8, I8, I16, I32, U32, I64, F16, F32)
    a = b.pick(lambda v: bool(v.shape) and v.kind in kinds and v.shape[-1] >= 2 and v.size <= 2048)
    falling, few = b.chance(0.5), b.chance(0.35) and a.shape[-1] >= 4
    kept = b.choose(2, a.shape[-1] // 2) if few else a.shape[-1]

    def meaning(x: Known) -> Known:
        values = np.sort(x.values, -1)
        values = np.flip(values, -1) if falling or few else values
        values = values[..., :kept]
        error = None if x.exact else np.broadcast_to(x.slack.max(-1, keepdims=True), values.shape)
        return Known(values, error)

    text = f"tl.topk({a}, {kept}).to({a.kind.spelled})" if few else f"tl.sort({a}, descending={falling})"
    b.emit(text, [a], [((*a.shape[:-1], kept), a.kind)], meaning)


def gather(b: Builder) -> None:
    a = b.pick(lambda v: bool(v.shape) and v.kind in (I8, I16, I32, I64, U32, F16, BF16, F32))
    axis = b.rng.randrange(len(a.shape))
    most = np.int32(a.shape[axis] - 1)
    index = like(b, a.shape, I32)
    index = b.emit(f"{index} & {most}", [index], [(a.shape, I32)], lambda x: Known(x.values & most))

    def meaning(x: Known, i: Known) -> Known:
        return x.moved(lambda d: np.take_along_axis(d, i.values.astype(np.int64), axis + 1))

    b.emit(f"tl.gather({a}, {index}, {axis})", [a, index], [(a.shape, a.kind)], meaning)


def histogram(b: Builder) -> None:
    a, bins = b.pick(lambda v: v.kind is I32 and bool(v.shape)), b.choose(2, 8, 16, 64, 128)
    if len(a.shape) > 1:
        text, made = f"tl.ravel({a})", [((a.size,), I32)]
        a = b.emit(text, [a], made, lambda x: x.moved(lambda d: d.reshape(len(d), -1)), pooled=False)
    few = lambda x: Known(x.values & np.int32(bins - 1))  # noqa: E731
    places = b.emit(f"{a} & {bins - 1}", [a], [(a.shape, I32)], few, pooled=False)
    condition, mask = random_mask(b, places.shape) if b.chance(0.4) else ("", np.ones(places.shape, bool))
    counted = lambda x: Known(np.stack([np.bincount(row[mask], minlength=bins) for row in x.values]).astype(np.int32))  # noqa: E731
    text = f"tl.histogram({places}, {bins}{f', mask={condition}' if condition else ''})"
    b.emit(text, [places], [((bins,), I32)], counted)
