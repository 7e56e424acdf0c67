"""Global loads and stores: up to 16 bytes a thread, predicated, never touching what is masked off."""

from __future__ import annotations

from ...gpu.ops import VectorLoad, VectorStore
from ...tile.debug import Assume
from ...tile.memory import Barrier, Load, Store
from .lowering import RULES, Lowering, rule
from .registers import Registers
from .vectors import Words, define_words, pack, packed_words, unpack, words_of

for _kind in (Load, Store):
    RULES.unsupported(_kind, "the layout pass turns it into a vector access")


@rule(Barrier)
def _barrier(state: Lowering, op: Barrier) -> None:
    state.barrier()


@rule(Assume)
def _assume(state: Lowering, op: Assume) -> None:
    state.text.call("void", "llvm.assume", [("i1", state.scalar(op.condition))])


def _modifiers(cache: str, eviction: str) -> str:
    """The PTX spelling of a cache operator and an eviction priority; they exclude each other."""
    if cache:
        return cache
    return f".L1::{eviction}" if eviction else ""


def _groups(registers: Registers, vector: int) -> list[int]:
    """First register of every vector, copies left out."""
    return [i for i in registers.unique() if i % vector == 0]


@rule(VectorLoad)
def _load(state: Lowering, op: VectorLoad) -> None:
    pointer = state.values[op.pointer]
    mask = state.values[op.mask] if op.mask is not None else None
    other = state.values[op.other] if op.other is not None else None
    words = words_of(op.result.type.elem, op.vector)
    space = ".volatile.global" if op.volatile else f".global{_modifiers(op.cache, op.eviction)}"
    names: list[str | None] = [None] * len(pointer)
    kept: dict[int, str] = {}
    for first in _groups(pointer, op.vector):
        members = range(first, first + op.vector)
        if mask is None and space == ".global":
            loaded = _plain_load(state, words, pointer[first])
        else:
            preset = [other[i] for i in members] if other is not None else None
            predicate = mask[first] if mask is not None else None
            loaded = _predicated_load(state, words, pointer[first], predicate, preset, space)
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


def _predicated_load(
    state: Lowering,
    words: Words,
    address: str,
    predicate: str | None,
    other: list[str] | None,
    space: str,
) -> list[str]:
    outputs = ", ".join(f"${i}" for i in range(words.count))
    place = f"{{{outputs}}}" if words.count > 1 else outputs
    instruction = f"ld{space}{words.suffix} {place}, [${words.count}];"
    constraints = ",".join([f"={words.constraint}"] * words.count) + ",l"
    operands = [("ptr addrspace(1)", address)]
    if predicate is not None:
        # Outputs are tied to what they hold where the load does not happen.
        instruction = f"@${words.count + 1} {instruction}"
        constraints += ",b," + ",".join(map(str, range(words.count)))
        preset = pack(state, words, other) if other is not None else ["0"] * words.count
        operands.append(("i1", predicate))
        operands += [(words.type, _zero(words.type) if p == "0" else p) for p in preset]
    return state.text.asm([words.type] * words.count, instruction, constraints, operands)


def _zero(type: str) -> str:
    return "0.0" if type in ("float", "double") else "0"


@rule(VectorStore)
def _store(state: Lowering, op: VectorStore) -> None:
    pointer = state.values[op.pointer]
    mask = state.values[op.mask] if op.mask is not None else None
    words = words_of(op.value.type.elem, op.vector)
    modifiers = _modifiers(op.cache, op.eviction)
    alone = state.only_thread(op.pointer.type.layout)
    for first in _groups(pointer, op.vector):
        packed = packed_words(state, op.value, range(first, first + op.vector))
        predicate = state.both(alone, mask[first] if mask is not None else None)
        _predicated_store(state, words, pointer[first], packed, predicate, modifiers)


def _predicated_store(
    state: Lowering,
    words: Words,
    address: str,
    packed: list[str],
    predicate: str | None,
    modifiers: str,
) -> None:
    inputs = ", ".join(f"${i + 1}" for i in range(words.count))
    place = f"{{{inputs}}}" if words.count > 1 else inputs
    instruction = f"st.global{modifiers}{words.suffix} [$0], {place};"
    constraints = "l," + ",".join([words.constraint] * words.count)
    operands = [("ptr addrspace(1)", address), *((words.type, p) for p in packed)]
    if predicate is not None:
        instruction = f"@${words.count + 1} {instruction}"
        constraints += ",b"
        operands.append(("i1", predicate))
    state.text.asm([], instruction, constraints + ",~{memory}", operands)
