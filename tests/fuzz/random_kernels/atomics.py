"""Atomic operations, in whatever order programs come: those whose results do not depend on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .arithmetic import like
from .bounds import Known, Reject, grain, rounded
from .building import Builder
from .kinds import BF16, F16, F32, F64, I32, I64, U32, U64, Array
from .loads import declare_descriptor, fits_descriptor, new_load, places_in_box, row_major
from .places import offsets, random_mask, strides_of
from .statements import Output, State, Variable, beside

UPDATES: dict[str, np.ufunc] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def update(state: State, output: Output, places: Array, known: Known, mask: Array, run: np.ufunc) -> None:
    """Update elements at places that may meet.

    Raises:
        Reject: their order would show in a float.
    """
    values, held = known.settled(), state.held(output)
    at, given = places[mask], values[mask]
    if output.kind.is_float:
        finest = min(grain(values), grain(held.values))
        if (np.abs(given).sum() + np.abs(held.values).max(initial=0)) / finest > 2.0**output.kind.digits:
            raise Reject("inexact sums")
    made = replace(held, values=held.values.copy(), touched=held.touched.copy())
    run.at(made.values, at, given)
    made.touched[at] = True
    state.contents[output.name] = made


def atomic(b: Builder) -> None:
    """Updates that meet and whose old values nobody reads."""
    a = b.pick(lambda v: bool(v.shape) and v.kind in (I32, U32, I64, U64, F16, BF16, F32, F64) and v.size <= 4096)
    names = ["add"] if a.kind.is_float else ["add", "max", "min"] if a.kind.bits == 64 else list(UPDATES)
    name, length = b.rng.choice(names), b.choose(1, 4, 16, 64, 128)
    places = like(b, a.shape, I32)
    few = lambda x: Known(x.values & np.int32(length - 1))  # noqa: E731
    places = b.emit(f"{places} & {length - 1}", [places], [(a.shape, I32)], few, pooled=False)
    o = b.output(a.kind, length, b.data(a.kind, length, "small"))
    condition, mask = random_mask(b, a.shape) if b.chance(0.5) else ("", np.ones(a.shape, bool))

    def effect(state: State) -> None:
        here = np.broadcast_to(state.lanes(a.shape) & mask, (b.programs, *a.shape))
        update(state, o, state[places].values.astype(np.int64), state[a], here, UPDATES[name])

    order = b.choose("", "", ', sem="relaxed"', ', sem="release"', ', scope="cta"' if b.programs == 1 else "")
    more = f", mask={condition}" if condition else ""
    b.effect(f"tl.atomic_{name}({o.name} + {places}, {a}{more}{order})", [a, places], effect)


def atomic_box(b: Builder) -> None:
    """All programs update one box, through a descriptor."""
    a = b.pick(lambda v: fits_descriptor(v.shape, v.kind) and v.kind in (I32, U32, F16, BF16, F32) and v.size <= 4096)
    names = ["add"] if a.kind.is_float else list(UPDATES)
    name, sizes = b.rng.choice(names), [max(1, size - b.choose(0, 0, 1, 3)) for size in a.shape]
    strides, length = row_major(sizes, a.kind)
    o = b.output(a.kind, length + 64, b.data(a.kind, length + 64, "small"), aligned=True)

    def effect(state: State) -> None:
        starts = [np.zeros(b.programs, np.int64)] * len(sizes)
        at, inside = places_in_box(starts, a.shape, sizes, strides)
        inside = inside & state.lanes(a.shape)
        update(state, o, np.where(inside, at, 0), state[a], inside, UPDATES[name])

    made = declare_descriptor(b, o.name, [b.number(size) for size in sizes], list(map(str, strides[:-1])), a.shape)
    b.effect(f"{made}.atomic_{name}([{', '.join('0' * len(sizes))}], {a})", [a, made], effect)


def atomic_old(b: Builder) -> None:
    """Updates of places of each element's own, whose old values are used."""
    if b.depth:
        raise Reject("a second turn would find the first one's")
    a = b.pick(lambda v: bool(v.shape) and v.kind in (I32, U32, I64, F32) and v.size <= 4096)
    name = b.choose("add", "xchg") if a.kind is F32 else b.choose("add", "xchg", "cas", "max")
    strides, step = strides_of(b, a.shape)
    text, places = offsets(b, a.shape, strides)
    o = b.output(a.kind, step * b.programs, b.data(a.kind, step * b.programs, "small"))
    address, at = f"{o.name} + {text} + pid * {step}", places + beside(np.arange(b.programs) * step, a.shape)
    if name == "cas":
        _compare_and_swap(b, a, o, address, at)
        return
    condition, mask = random_mask(b, a.shape) if b.chance(0.5) else ("", np.ones(a.shape, bool))
    updates: dict[str, Callable[[Array, Array], Array]] = {**UPDATES, "xchg": lambda old, new: new}
    run = updates[name]
    here = np.broadcast_to(mask, at.shape)
    old = o.initial[at]

    def found(x: Known) -> Known:
        new = run(old, x.settled())
        if a.kind.is_float and np.any(rounded(new, a.kind) != new):
            raise Reject("inexact")
        return Known(np.where(here, old, np.zeros((), old.dtype)))

    call = f"tl.atomic_{name}({address}, {a}{f', mask={condition}' if condition else ''})"
    if condition:
        call = f"tl.where({condition}, {call}, {0.0 if a.kind.is_float else 0}).to({a.kind.spelled})"
    made = b.emit(call, [a], [(a.shape, a.kind)], found)

    def effect(state: State) -> None:
        state.store(o, at, Known(run(old, state[a].values)), here & state.lanes(a.shape))

    b.effect("", [a, made], effect, bound=True)


def _compare_and_swap(b: Builder, a: Variable, o: Output, address: str, at: Array) -> None:
    wanted, old = new_load(b, a.shape, a.kind, "small", "pointers"), o.initial[at]
    text = f"tl.atomic_cas({address}, {wanted}, {a})"
    made = b.emit(text, [a, wanted], [(a.shape, a.kind)], lambda x, y: Known(old))

    def effect(state: State) -> None:
        new = np.where(old == state[wanted].values, state[a].values, old)
        state.store(o, at, Known(new), np.broadcast_to(state.lanes(a.shape), at.shape))

    b.effect("", [a, wanted, made], effect, bound=True)
