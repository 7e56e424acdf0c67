"""Operations that move elements."""

from __future__ import annotations

from math import prod

import numpy as np

from .arithmetic import like
from .bounds import Known, Reject
from .building import Builder
from .places import random_shape


def reshape(b: Builder) -> None:
    a = b.pick(lambda v: bool(v.shape))
    shape = random_shape(b, a.size)
    if prod(shape) != a.size:
        raise Reject("another size")
    text = b.choose(f"tl.reshape({a}, {list(shape)})", f"{a}.reshape({list(shape)})", f"tl.view({a}, {list(shape)})")
    b.emit(text, [a], [(shape, a.kind)], lambda x: x.moved(lambda d: d.reshape(-1, *shape)))


def ravel(b: Builder) -> None:
    a = b.pick(lambda v: len(v.shape) > 1)
    b.emit(f"tl.ravel({a})", [a], [((a.size,), a.kind)], lambda x: x.moved(lambda d: d.reshape(len(d), -1)))


def permute(b: Builder) -> None:
    a = b.pick(lambda v: len(v.shape) > 1)
    order = b.rng.sample(range(len(a.shape)), len(a.shape))
    text = b.choose(f"tl.permute({a}, {order})", f"tl.trans({a}, {order})", f"{a}.permute({order})")
    if order == [1, 0] and b.chance(0.6):
        text = b.choose(f"{a}.T", f"tl.trans({a})")
    shape = tuple(a.shape[axis] for axis in order)
    b.emit(text, [a], [(shape, a.kind)], lambda x: x.moved(lambda d: d.transpose(0, *(axis + 1 for axis in order))))


def broadcast(b: Builder) -> None:
    a = b.pick(lambda v: 0 < len(v.shape) < 4 and v.size * 2 <= b.limit)
    axis = b.rng.randint(0, len(a.shape))
    thin = (*a.shape[:axis], 1, *a.shape[axis:])
    index = ", ".join([":"] * axis + ["None"] + [":"] * (len(a.shape) - axis))
    text = b.choose(f"{a}[{index}]", f"tl.expand_dims({a}, {axis})")
    x = b.emit(text, [a], [(thin, a.kind)], lambda v: v.moved(lambda d: np.expand_dims(d, axis + 1)))
    if b.chance(0.2):
        return
    times = b.choose(2, 4, 8, 16)
    while a.size * times > b.limit:
        times //= 2
    wide = (*thin[:axis], times, *thin[axis + 1 :])
    text = f"tl.broadcast_to({x}, {list(wide)})"
    b.emit(text, [x], [(wide, a.kind)], lambda v: v.moved(lambda d: np.broadcast_to(d, (len(d), *wide))))


def join(b: Builder) -> None:
    a = b.pick(lambda v: bool(v.shape) and v.size * 2 <= b.limit and len(v.shape) < 5)
    o = like(b, a.shape, a.kind)

    def pairs(x: Known, y: Known) -> Known:
        error = None if x.exact and y.exact else np.stack([x.slack, y.slack], -1)
        return Known(np.stack([x.values, y.values], -1), error)

    if b.chance(0.6):
        b.emit(f"tl.join({a}, {o})", [a, o], [((*a.shape, 2), a.kind)], pairs)
        return
    shape = (*a.shape[:-1], a.shape[-1] * 2)
    text = f"tl.interleave({a}, {o})"
    b.emit(text, [a, o], [(shape, a.kind)], lambda x, y: pairs(x, y).moved(lambda d: d.reshape(len(d), *shape)))


def cat(b: Builder) -> None:
    """Two vectors, one behind the other."""
    a = b.pick(lambda v: len(v.shape) == 1 and v.size * 2 <= b.limit)
    o = like(b, a.shape, a.kind)

    def behind(x: Known, y: Known) -> Known:
        error = None if x.exact and y.exact else np.concatenate([x.slack, y.slack], 1)
        return Known(np.concatenate([x.values, y.values], 1), error)

    b.emit(f"tl.cat({a}, {o})", [a, o], [((a.size * 2,), a.kind)], behind)


def split(b: Builder) -> None:
    a = b.pick(lambda v: bool(v.shape) and 4 <= v.size <= b.limit)
    if len(a.shape) < 2 or a.shape[-1] != 2:
        pairs = (a.size // 2, 2)
        text = f"tl.reshape({a}, {list(pairs)})"
        a = b.emit(text, [a], [(pairs, a.kind)], lambda v: v.moved(lambda d: d.reshape(-1, *pairs)))
    halves = [(a.shape[:-1], a.kind)] * 2
    b.emit(f"tl.split({a})", [a], halves, lambda v: [v.moved(lambda d: d[..., 0]), v.moved(lambda d: d[..., 1])])


def flip(b: Builder) -> None:
    a = b.pick(lambda v: bool(v.shape))
    axis = b.rng.randrange(len(a.shape))
    text = f"tl.flip({a}, {axis})"
    b.emit(text, [a], [(a.shape, a.kind)], lambda x: x.moved(lambda d: np.flip(d, axis + 1)))


def barrier(b: Builder) -> None:
    b.effect("tl.debug_barrier()", [], lambda state: None)


MOVES = (reshape, permute, permute, broadcast, join, split, split, flip, ravel, cat, barrier)
