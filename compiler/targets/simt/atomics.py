"""Atomics: one thread performs each element's, and hands the old value to all that hold a copy, as it does with what
they are to agree on.

An atomic that is in order costs two fences (on sm_90a a MEMBAR before it, and CCTL.IVALL behind it, which empties the
first-level cache). A thread that has several of a tile's elements passes them once for all of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...gpu.memory.scratch import is_shared_by_threads
from ...gpu.ops import Agree, VectorUpdate
from ...ir.core import Value
from ...ir.types import SCALARS
from ...tile.memory import AtomicCAS, AtomicRMW
from .convert import from_integer, to_integer
from .elementwise import intrinsic
from .lowering import Lowering, reach_of, rule
from .registers import register_type
from .vectors import groups_of, load_shared, packed_words, words_of


@rule(AtomicRMW)
def _rmw(state: Lowering, op: AtomicRMW) -> None:
    elem = op.value.type.scalar
    pointer, value = state.values[op.pointer], state.values[op.value]
    mask = state.values[op.mask] if op.mask is not None else None
    alone = state.only_thread(op.pointer.type.layout)
    made: list[str | None] = [None] * len(pointer)
    extremum = elem.is_float and op.kind in ("min", "max")
    with _ordered(state, op, several=len(pointer.unique()) > 1) as order:
        for i in pointer.unique():
            predicate = state.both(alone, mask[i] if mask is not None else None)
            if extremum and elem.bits == 16:
                made[i] = _half_extremum(state, op, order, pointer[i], value[i], predicate)
            elif extremum:
                made[i] = _float_extremum(state, op, order, pointer[i], value[i], predicate)
            else:
                made[i] = state.machine.atomic(state, op, order, op.kind, elem, pointer[i], value[i], predicate)
    _give(state, op.result, made, alone, state.scratch(op) if op in state.allocation.places else 0)


@rule(VectorUpdate)
def _vector_update(state: Lowering, op: VectorUpdate) -> None:
    pointer = state.values[op.pointer]
    mask = state.values[op.mask] if op.mask is not None else None
    words = words_of(op.value.type.elem, op.vector)
    alone = state.only_thread(op.pointer.type.layout)
    firsts = groups_of(pointer, op.vector)
    with _ordered(state, op, several=True):
        for first in firsts:
            packed = packed_words(state, op.value, range(first, first + op.vector))
            predicate = state.both(alone, mask[first] if mask is not None else None)
            state.machine.update(state, op, words, pointer[first], packed, predicate)
    state.define(op.result, [None] * len(pointer))


@contextmanager
def _ordered(state: Lowering, op: AtomicRMW | AtomicCAS, *, several: bool) -> Iterator[str]:
    """The order that each of a thread's atomics has: that of ``op``, or relaxed between fences."""
    if not several or op.semantics == "relaxed":
        yield op.semantics
        return
    if op.semantics != "acquire":
        state.machine.fence(state, op.scope)
    yield "relaxed"
    if op.semantics != "release":
        state.machine.fence(state, op.scope)


def _float_extremum(state: Lowering, op: AtomicRMW, order: str, address: str, value: str, predicate: str | None) -> str:
    """Floats compare like integers: in order where the sign is plus, in reverse order where it is minus.

    A thread performs one of two atomics. Each has ``order``, whose fences stand in its branch then, so that threads
    that perform neither pass them by.
    """
    elem = op.value.type.scalar
    word = f"i{elem.bits}"
    bits = state.text.op(f"bitcast {register_type(elem)} {value} to {word}")
    positive = state.text.op(f"icmp sge {word} {bits}, 0")
    negative = state.text.op(f"xor i1 {positive}, true")
    reverse = "min" if op.kind == "max" else "max"
    signed, unsigned = SCALARS[f"i{elem.bits}"], SCALARS[f"u{elem.bits}"]
    first = state.machine.atomic(state, op, order, op.kind, signed, address, bits, state.both(predicate, positive))
    second = state.machine.atomic(state, op, order, reverse, unsigned, address, bits, state.both(predicate, negative))
    chosen = state.text.op(f"select i1 {positive}, {word} {first}, {word} {second}")
    return from_integer(state, chosen, elem)


def _half_extremum(state: Lowering, op: AtomicRMW, order: str, address: str, value: str, predicate: str | None) -> str:
    """Compare and swap until nobody came between: integers of 16 bits have no extrema. The first guess is zero, which
    is also what threads find that do not take part, and leave with."""
    elem = op.value.type.scalar
    text, kind = state.text, register_type(elem)
    before, again, after = state.block, text.fresh("again"), text.fresh("after")
    text.do(f"br label %{again}")
    state.begin(again)
    head = text.current
    text.chunk()
    guess = "%" + text.fresh("guess")
    old = text.op(f"bitcast i16 {guess} to {kind}")
    best = intrinsic(state, f"{op.kind}num", kind, old, value)
    new = text.op(f"bitcast {kind} {best} to i16")
    found = state.machine.compare_and_swap(state, op, order, address, guess, new, predicate)
    head.append(f"  {guess} = phi i16 [0, %{before}], [{found}, %{again}]")
    done = text.op(f"icmp eq i16 {found}, {guess}")
    text.do(f"br i1 {done}, label %{after}, label %{again}")
    state.begin(after)
    return from_integer(state, found, elem)


@rule(AtomicCAS)
def _cas(state: Lowering, op: AtomicCAS) -> None:
    elem = op.value.type.elem
    pointer = state.values[op.pointer]
    expected, value = state.values[op.expected], state.values[op.value]
    alone = state.only_thread(op.pointer.type.layout)
    made: list[str | None] = [None] * len(pointer)
    with _ordered(state, op, several=len(pointer.unique()) > 1) as order:
        for i in pointer.unique():
            old, new = (to_integer(state, side[i], elem) for side in (expected, value))
            result = state.machine.compare_and_swap(state, op, order, pointer[i], old, new, alone)
            made[i] = from_integer(state, result, elem)
    _give(state, op.result, made, alone, state.scratch(op) if op in state.allocation.places else 0)


@rule(Agree)
def _agree(state: Lowering, op: Agree) -> None:
    held = state.values[op.x]
    made: list[str | None] = [None] * len(held)
    for i in held.unique():
        made[i] = held[i]
    _give(state, op.result, made, state.only_thread(op.x.type.layout), state.scratch(op))


def _give(state: Lowering, result: Value, made: list[str | None], alone: str | None, start: int) -> None:
    """Hand the results to all threads that hold the elements, through shared memory if there are several."""
    if result not in state.used or not is_shared_by_threads(result) or alone is None:
        state.define(result, made)
        return
    elem, layout = result.type.elem, result.type.layout
    size = elem.bytes
    lane = [f * size for f in layout.flat_lane] if layout is not None else []
    warp = [f * size for f in layout.flat_warp] if layout is not None else []
    offsets = layout.register_offsets() if layout is not None else (0,)
    thread = state.thread_bits(lane, warp) if layout is not None else "0"
    places = {
        i: state.shared(_place(state, thread, (lane, warp), offsets[i] * size, start))
        for i, name in enumerate(made)
        if name is not None
    }
    for i, address in places.items():
        bits = to_integer(state, made[i] or "0", elem)
        state.machine.store_shared(state, elem.bits, bits, address, alone)
    state.barrier()
    state.define(
        result,
        [load_shared(state, elem, 1, places[i])[0] if i in places else None for i in range(len(made))],
    )


def _place(state: Lowering, thread: str, bases: tuple[list[int], list[int]], offset: int, start: int) -> str:
    own = state.add_bits(thread, reach_of((*bases[0], *bases[1])), offset)
    if not own.startswith("%"):
        return str(int(own) + start)
    return state.text.op(f"add nuw nsw i32 {own}, {start}") if start else own
