"""Atomics as inline assembly: LLVM's own ``atomicrmw`` drops ordering and scope on this target."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UnsupportedOp
from ...gpu.scratch import is_shared_by_threads
from ...ir.core import Value
from ...ir.types import BF16, F16, F32, F64, Element, Scalar
from ...tile.memory import AtomicCAS, AtomicRMW
from .convert import from_integer, to_integer
from .lowering import Lowering, rule
from .types import CONSTRAINTS, register_type
from .vectors import load_shared

_PTX_SCOPE = {"cta": "cta", "gpu": "gpu", "sys": "sys"}


@dataclass(frozen=True, slots=True)
class _Instruction:
    """One PTX atom: operation, type, and the LLVM type in which its operands travel."""

    operation: str
    type: str
    word: str


@rule(AtomicRMW)
def _rmw(state: Lowering, op: AtomicRMW) -> None:
    elem = op.value.type.scalar
    order = f"{op.semantics}.{_PTX_SCOPE[op.scope]}"
    pointer, value = state.values[op.pointer], state.values[op.value]
    mask = state.values[op.mask] if op.mask is not None else None
    alone = state.only_thread(op.pointer.type.layout)
    made: list[str | None] = [None] * len(pointer)
    for i in pointer.unique():
        predicate = state.both(alone, mask[i] if mask is not None else None)
        if elem in (F32, F64) and op.kind in ("min", "max"):
            made[i] = _float_extremum(state, op, order, pointer[i], value[i], predicate)
            continue
        instruction = _choose(state, op, elem)
        operand = _to_word(state, value[i], elem, instruction.word)
        result = _emit(state, instruction, order, pointer[i], [operand], predicate)
        made[i] = _from_word(state, result, elem, instruction.word)
    _give(state, op.result, made, alone, state.scratch(op) if op in state.allocation.places else 0)


def _choose(state: Lowering, op: AtomicRMW, elem: Scalar) -> _Instruction:
    bits = elem.bits
    if elem.is_float and op.kind == "add":
        if elem in (F16, BF16):
            if elem == BF16 and state.target.capability < 90:
                raise UnsupportedOp(
                    f"atomic_add of bf16 needs sm_90 or newer, the target is {state.target}",
                    location=op.location,
                    hint="add in f32",
                )
            return _Instruction("add.noftz", elem.name, "i16")
        return _Instruction("add", elem.name, register_type(elem))
    word = f"i{bits}"
    match op.kind:
        case "and" | "or" | "xor":
            return _Instruction(op.kind, f"b{bits}", word)
        case "xchg":
            return _Instruction("exch", f"b{bits}", word)
        case "add":
            return _Instruction("add", f"u{bits}", word)
        case _:
            return _Instruction(op.kind, f"{'s' if elem.is_signed else 'u'}{bits}", word)


def _float_extremum(state: Lowering, op: AtomicRMW, order: str, address: str, value: str, predicate: str | None) -> str:
    """Floats compare like integers: in order where the sign is plus, in reverse order where it is minus."""
    elem = op.value.type.scalar
    word = f"i{elem.bits}"
    bits = state.text.op(f"bitcast {register_type(elem)} {value} to {word}")
    positive = state.text.op(f"icmp sge {word} {bits}, 0")
    negative = state.text.op(f"xor i1 {positive}, true")
    reverse = "min" if op.kind == "max" else "max"
    up = _Instruction(op.kind, f"s{elem.bits}", word)
    down = _Instruction(reverse, f"u{elem.bits}", word)
    first = _emit(state, up, order, address, [bits], state.both(predicate, positive))
    second = _emit(state, down, order, address, [bits], state.both(predicate, negative))
    chosen = state.text.op(f"select i1 {positive}, {word} {first}, {word} {second}")
    return from_integer(state, chosen, elem)


def _emit(
    state: Lowering,
    instruction: _Instruction,
    order: str,
    address: str,
    operands: list[str],
    predicate: str | None,
) -> str:
    letter = CONSTRAINTS[instruction.word]
    inputs = ", ".join(f"${i + 2}" for i in range(len(operands)))
    text = f"atom.{order}.global.{instruction.operation}.{instruction.type} $0, [$1], {inputs};"
    constraints = f"={letter},l" + f",{letter}" * len(operands)
    every = [("ptr addrspace(1)", address), *((instruction.word, o) for o in operands)]
    if predicate is not None:
        text = f"@${len(operands) + 2} {text}"
        constraints += ",b,0"
        zero = "0.0" if instruction.word in ("float", "double") else "0"
        every += [("i1", predicate), (instruction.word, zero)]
    return state.text.asm([instruction.word], text, constraints + ",~{memory}", every)[0]


@rule(AtomicCAS)
def _cas(state: Lowering, op: AtomicCAS) -> None:
    elem = op.value.type.elem
    word = f"i{elem.bits}"
    order = f"{op.semantics}.{_PTX_SCOPE[op.scope]}"
    pointer = state.values[op.pointer]
    expected, value = state.values[op.expected], state.values[op.value]
    alone = state.only_thread(op.pointer.type.layout)
    made: list[str | None] = [None] * len(pointer)
    for i in pointer.unique():
        operands = [to_integer(state, side[i], elem) for side in (expected, value)]
        instruction = _Instruction("cas", f"b{elem.bits}", word)
        result = _emit(state, instruction, order, pointer[i], operands, alone)
        made[i] = from_integer(state, result, elem)
    _give(state, op.result, made, alone, state.scratch(op) if op in state.allocation.places else 0)


def _to_word(state: Lowering, value: str, elem: Element, word: str) -> str:
    return value if register_type(elem) == word else to_integer(state, value, elem)


def _from_word(state: Lowering, value: str, elem: Element, word: str) -> str:
    return value if register_type(elem) == word else from_integer(state, value, elem)


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
        target = state.text.op(f"ptrtoint ptr addrspace(3) {address} to i32")
        kind = f"i{elem.bits}"
        state.text.asm(
            [],
            f"@$2 st.shared.b{elem.bits} [$0], $1;",
            f"r,{CONSTRAINTS[kind]},b,~{{memory}}",
            [("i32", target), (kind, bits), ("i1", alone)],
        )
    state.barrier()
    state.define(
        result,
        [load_shared(state, elem, 1, places[i])[0] if i in places else None for i in range(len(made))],
    )


def _place(state: Lowering, thread: str, bases: tuple[list[int], list[int]], offset: int, start: int) -> str:
    reach = 0
    for basis in (*bases[0], *bases[1]):
        reach |= basis
    own = state.add_bits(thread, reach, offset)
    if not own.startswith("%"):
        return str(int(own) + start)
    return state.text.op(f"add nuw nsw i32 {own}, {start}") if start else own
