"""Stores of all kinds: each program, and each turn of a loop, writes places of its own."""

from __future__ import annotations

import numpy as np

from .bounds import Reject
from .building import Builder
from .casts import cast
from .kinds import I1, I8
from .loads import declare_block_pointer, declare_descriptor, fits_descriptor, places_in_box, row_major
from .places import listed, offsets, random_mask, strides_of
from .statements import State, Variable, beside

#: Turns of a loop that store at places of their own.
TURNS = 16


def store(b: Builder, a: Variable) -> None:
    """A value, whole or under a mask.

    Raises:
        Reject: in loops within loops, whose turns would meet.
    """
    if a.kind is I1:
        a = cast(b, a, I8)
    if len(b.loops) > 1:
        raise Reject("turns would meet")
    loop = b.loops[-1] if b.loops else None
    if not a.shape:
        _scalar(b, a, loop)
        return
    how = b.choose("pointers", "pointers", "mask", "mask", "box", "descriptor")
    if how == "descriptor" and not fits_descriptor(a.shape, a.kind) or loop and how in ("descriptor", "box"):
        how = "pointers"
    b.tags.add(f"store: {how}")
    if how in ("pointers", "mask"):
        _through_pointers(b, a, loop, how == "mask")
    else:
        _box(b, a, how == "descriptor")


def any_store(b: Builder) -> None:
    store(b, b.pick(lambda v: v.kind is not I1 and v.size <= 4096))


def try_store(b: Builder, a: Variable) -> bool:
    """Store a value in one way of several."""
    return any(b.attempt(lambda b: store(b, a)) for _ in range(3))


def _turn(b: Builder, state: State, loop: Variable | None) -> np.ndarray:
    return state.number(loop) & (TURNS - 1) if loop else np.zeros(b.programs, np.int64)


def _scalar(b: Builder, a: Variable, loop: Variable | None) -> None:
    each = TURNS if loop else 1
    o = b.output(a.kind, b.programs * each)

    def effect(state: State) -> None:
        state.store(o, state.number(b.pid) * each + _turn(b, state, loop), state[a], state.active)

    turn = f" + ({loop} & {TURNS - 1})" if loop else ""
    b.effect(f"tl.store({o.name} + pid * {each}{turn}, {a})", [a, *([loop] if loop else [])], effect)


def _through_pointers(b: Builder, a: Variable, loop: Variable | None, masked: bool) -> None:
    strides, step = strides_of(b, a.shape)
    each = step * (TURNS if loop else 1)
    text, places = offsets(b, a.shape, strides)
    o = b.output(a.kind, b.programs * each)
    address = f"{o.name} + {text} + pid * {each}" + (f" + ({loop} & {TURNS - 1}) * {step}" if loop else "")
    computed = [v for v in b.pool if v.shape == a.shape and v.kind is I1]
    chosen = b.rng.choice(computed) if masked and computed and b.chance(0.5) else None
    condition, mask = random_mask(b, a.shape) if masked and not chosen else (str(chosen or ""), np.ones(a.shape, bool))

    def effect(state: State) -> None:
        at = places + beside(state.number(b.pid) * each + _turn(b, state, loop) * step, a.shape)
        kept = state[chosen].values if chosen else mask
        state.store(o, at, state[a], state.lanes(a.shape) & kept)

    more = f", mask={condition}" if condition else ""
    b.effect(f"tl.store({address}, {a}{more})", [v for v in (a, loop, chosen) if v], effect)


def _box(b: Builder, a: Variable, descriptor: bool) -> None:
    """Blocks of one array, one below the other; what sticks out is left out."""
    sizes = [max(1, size - b.choose(0, 0, 1, 3)) for size in a.shape]
    sizes[0] += (b.programs - 1) * a.shape[0]
    strides, length = row_major(sizes, a.kind) if descriptor else strides_of(b, sizes)
    o = b.output(a.kind, length + 64, aligned=True if descriptor else None)

    def effect(state: State) -> None:
        starts = [state.number(b.pid) * a.shape[0]] + [np.zeros(b.programs, np.int64)] * (len(a.shape) - 1)
        at, inside = places_in_box(starts, a.shape, sizes, strides)
        inside = inside & state.lanes(a.shape)
        state.store(o, np.where(inside, at, 0), state[a], inside)

    bounds = [b.number(size) for size in sizes]
    starts = [f"pid * {a.shape[0]}", *["0"] * (len(a.shape) - 1)]
    if descriptor:
        made = declare_descriptor(b, o.name, bounds, [str(stride) for stride in strides[:-1]], a.shape)
        b.effect(f"{made}.store([{', '.join(starts)}], {a})", [a, made], effect)
        return
    made = declare_block_pointer(b, o.name, bounds, list(map(str, strides)), starts, a.shape, strides, [])
    b.effect(f"tl.store({made}, {a}, boundary_check={listed(range(len(a.shape)))})", [a, made], effect)
