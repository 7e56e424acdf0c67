"""Global loads and stores: up to 16 bytes a thread, predicated, never touching what is masked off."""

from __future__ import annotations

from ...gpu.ops import VectorLoad, VectorStore, WarpBarrier
from ...tile.blocks import BlockLoad, BlockStore
from ...tile.debug import Assume
from ...tile.memory import Barrier, Load, Store
from .lowering import RULES, Lowering, rule
from .vectors import Words, define_words, groups_of, packed_words, unpack, words_of

for _kind, _because in (
    (Load, "the layout pass turns it into a vector access"),
    (Store, "the layout pass turns it into a vector access"),
    (BlockLoad, "it is expanded to pointers before, or streamed"),
    (BlockStore, "it is expanded to pointers before, or streamed"),
):
    RULES.unsupported(_kind, _because)


@rule(Barrier)
def _barrier(state: Lowering, op: Barrier) -> None:
    state.barrier()


@rule(WarpBarrier)
def _warp_barrier(state: Lowering, op: WarpBarrier) -> None:
    state.machine.warp_barrier(state)


@rule(Assume)
def _assume(state: Lowering, op: Assume) -> None:
    state.text.call("void", "llvm.assume", [("i1", state.scalar(op.condition))])


@rule(VectorLoad)
def _load(state: Lowering, op: VectorLoad) -> None:
    pointer = state.values[op.pointer]
    mask = state.values[op.mask] if op.mask is not None else None
    other = state.values[op.other] if op.other is not None else None
    words = words_of(op.result.type.elem, op.vector)
    plain = mask is None and not (op.volatile or op.cache or op.eviction)
    names: list[str | None] = [None] * len(pointer)
    kept: dict[int, str] = {}
    for first in groups_of(pointer, op.vector):
        members = range(first, first + op.vector)
        if plain:
            loaded = _plain_load(state, words, pointer[first])
        else:
            preset = [other[i] for i in members] if other is not None else None
            predicate = mask[first] if mask is not None else None
            loaded = state.machine.load_global(state, op, words, pointer[first], predicate, preset)
        if words.type == "i32" and words.per_word > 1:
            kept.update(zip(members[:: words.per_word], loaded, strict=True))
        else:
            names[first : first + op.vector] = unpack(state, words, loaded)
    if kept:
        define_words(state, op.result, kept, words.per_word)
    else:
        state.define(op.result, names)


def _plain_load(state: Lowering, words: Words, address: str) -> list[str]:
    align = words.element.bytes * words.vector
    if align == 1:
        byte = state.text.op(f"load i8, ptr addrspace(1) {address}, align 1")
        return [state.text.op(f"zext i8 {byte} to i16")]
    if words.count == 1:
        word = state.text.op(f"load {words.type}, ptr addrspace(1) {address}, align {align}")
        return [word]
    whole = f"<{words.count} x {words.type}>"
    value = state.text.op(f"load {whole}, ptr addrspace(1) {address}, align {align}")
    return [state.text.op(f"extractelement {whole} {value}, i32 {i}") for i in range(words.count)]


@rule(VectorStore)
def _store(state: Lowering, op: VectorStore) -> None:
    pointer = state.values[op.pointer]
    mask = state.values[op.mask] if op.mask is not None else None
    words = words_of(op.value.type.elem, op.vector)
    alone = state.only_thread(op.pointer.type.layout)
    for first in groups_of(pointer, op.vector):
        packed = packed_words(state, op.value, range(first, first + op.vector))
        predicate = state.both(alone, mask[first] if mask is not None else None)
        state.machine.store_global(state, op, words, pointer[first], packed, predicate)
