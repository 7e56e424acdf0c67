"""Layout conversions: renaming, shuffles or a round trip through shared memory, as the layout room plans them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...gpu.layouts.operands import LocalLoad, LocalStore, OperandPlan
from ...gpu.memory.scratch import choose_conversion
from ...gpu.ops import ConvertLayout
from ...ir.core import Value
from ...ir.types import Element, Pointer
from ...layout import (
    Exchange,
    Identity,
    MatrixAccess,
    RegisterPermute,
    SharedAccess,
    SharedMemory,
    WarpShuffle,
)
from .lowering import Lowering, reach_of, rule
from .registers import Registers, register_type
from .vectors import Words, define_words, load_shared, pack, packed_words, store_words, words_of


@rule(ConvertLayout)
def _convert(state: Lowering, op: ConvertLayout) -> None:
    plan = choose_conversion(op)
    match plan:
        case LocalLoad():
            _local_load(state, plan, op)
            return
        case LocalStore():
            _local_store(state, plan, op)
            return
        case _:
            pass
    registers = state.values[op.x]
    match plan:
        case Identity():
            state.define_lazily(op.result, [registers], lambda i: registers[i])
        case RegisterPermute():
            indices = plan.indices
            state.define_lazily(op.result, [registers], lambda i: registers[indices[i]])
        case WarpShuffle():
            state.define(op.result, _shuffle(state, plan, registers, op.x.type.elem))
        case SharedMemory():
            state.define(op.result, _through_shared(state, plan, op.x, state.scratch(op)))
        case OperandPlan():
            words = _by_matrices(state, plan, op.x, state.scratch(op))
            define_words(state, op.result, words, 4 // plan.read.element_bytes)


# Tiles in shared memory --------------------------------------------------------------------------------------


def _local_load(state: Lowering, plan: LocalLoad, op: ConvertLayout) -> None:
    place = state.places[op.x]
    if isinstance(plan.read, MatrixAccess):
        words = _read_matrices(state, plan.read, place)
        define_words(state, op.result, words, 4 // plan.read.element_bytes)
        return
    names: list[str | None] = [None] * len(plan.read.canonical)
    reads = addresses(state, plan.read, place)
    for i, group in enumerate(plan.read.registers):
        loaded = load_shared(state, op.x.type.elem, plan.read.vector, reads(i))
        for register, name in zip(group, loaded, strict=True):
            names[register] = name
    state.define(op.result, [names[c] for c in plan.read.canonical])


def _local_store(state: Lowering, plan: LocalStore, op: ConvertLayout) -> None:
    start = state.scratch(op)
    store_tile(state, plan, op.x, start)
    if not op.unfenced:
        state.machine.publish_shared(state)
    if not op.unfinished:
        state.barrier()
    state.places[op.result] = str(start)


def store_tile(state: Lowering, plan: LocalStore, value: Value, start: int | str) -> None:
    """Write ``value`` to byte ``start`` of shared memory."""
    if isinstance(plan.write, MatrixAccess):
        store_matrices(state, value, plan.write, range(plan.bytes), start)
        return
    writes = addresses(state, plan.write, start)
    for i, group in enumerate(plan.write.registers):
        store_registers(state, value, group, writes(i))


# Shared memory -----------------------------------------------------------------------------------------------


def _through_shared(state: Lowering, plan: SharedMemory, source: Value, start: int) -> list[str | None]:
    elem = source.type.elem
    names: list[str | None] = [None] * len(plan.read.canonical)
    writes = addresses(state, plan.write, start)
    reads = addresses(state, plan.read, start)
    write_step = len(plan.write.registers) // plan.rounds
    read_step = len(plan.read.registers) // plan.rounds
    for turn in range(plan.rounds):
        if turn:
            state.barrier()
        for i in range(turn * write_step, (turn + 1) * write_step):
            store_registers(state, source, plan.write.registers[i], writes(i))
        state.barrier()
        for i in range(turn * read_step, (turn + 1) * read_step):
            loaded = load_shared(state, elem, plan.read.vector, reads(i))
            for register, name in zip(plan.read.registers[i], loaded, strict=True):
                names[register] = name
    return [names[c] for c in plan.read.canonical]


def store_registers(state: Lowering, source: Value, registers: Sequence[int], address: str) -> None:
    """Store consecutive elements of ``source`` to shared memory, as one vector."""
    words = words_of(source.type.elem, len(registers))
    store_words(state, words, packed_words(state, source, registers), address)


class addresses:
    """Addresses of the accesses of one plan, by number."""

    def __init__(self, state: Lowering, access: SharedAccess, start: int | str) -> None:
        self.state = state
        self.access = access
        #: What is known of the place at compile time is added to every address as an immediate.
        self.start = int(start) if not str(start).startswith("%") else 0
        self.dynamic = "" if not str(start).startswith("%") else str(start)
        self.thread = state.thread_bits(access.lane, access.warp)
        self.reach = reach_of((*access.lane, *access.warp))
        self.bases: dict[int, str] = {}

    def __call__(self, number: int) -> str:
        xored, added = self.access.split_offset(number)
        base = self.bases.get(xored)
        if base is None:
            offset = self.state.add_bits(self.thread, self.reach, xored)
            if self.dynamic:
                offset = self.state.plus(self.dynamic, offset)
            base = self.bases[xored] = self.state.shared(offset)
        added += self.start
        if not added:
            return base
        return self.state.text.op(f"getelementptr inbounds i8, ptr addrspace(3) {base}, i32 {added}")


# Tensor core operands ---------------------------------------------------------------------------------------


def _by_matrices(state: Lowering, plan: OperandPlan, source: Value, start: int) -> dict[int, str]:
    """The words of the operand's fragments, by their first register."""
    writes = addresses(state, plan.write, start)
    for i, group in enumerate(plan.write.registers):
        store_registers(state, source, group, writes(i))
    state.barrier()
    return _read_matrices(state, plan.read, str(start))


def _read_matrices(state: Lowering, read: MatrixAccess, start: str) -> dict[int, str]:
    """The words of a tile at byte ``start`` of shared memory, by their first register."""
    fixed = 0 if start.startswith("%") else int(start)
    thread = state.thread_bits(read.lane, read.warp)
    reach = reach_of((*read.lane, *read.warp))
    per_word = 4 // read.element_bytes
    words: dict[int, str] = {}
    bases: dict[int, str] = {}
    for group, offset in zip(read.registers, read.offsets, strict=True):
        xored = offset & reach
        if xored not in bases:
            place = state.add_bits(thread, reach, xored)
            bases[xored] = state.shared(place if start == str(fixed) else state.plus(start, place))
        loaded = state.machine.load_matrices(state, read, bases[xored], fixed + (offset & ~reach))
        words.update(zip(group[::per_word], loaded, strict=True))
    return words


def store_matrices(state: Lowering, value: Value, write: MatrixAccess, part: range, start: int | str) -> None:
    """Write the registers of ``value`` whose bytes of the tile lie in ``part``, each ``start`` bytes from there."""
    fixed, dynamic = (0, start) if isinstance(start, str) and start.startswith("%") else (int(start), "")
    thread = state.thread_bits(write.lane, write.warp)
    reach = reach_of((*write.lane, *write.warp))
    per_word = 4 // write.element_bytes
    bases: dict[int, str] = {}
    for group, offset in zip(write.registers, write.offsets, strict=True):
        if offset not in part:
            continue
        xored = offset & reach
        if xored not in bases:
            place = state.add_bits(thread, reach, xored)
            bases[xored] = state.shared(state.plus(dynamic, place) if dynamic else place)
        words = [_word(state, value, group[i : i + per_word]) for i in range(0, len(group), per_word)]
        state.machine.store_matrices(state, write, bases[xored], fixed + (offset & ~reach), words)


def _word(state: Lowering, value: Value, registers: Sequence[int]) -> str:
    """The 32 bits of ``registers``; a float of so many fills them by itself."""
    (word,) = packed_words(state, value, registers)
    type = words_of(value.type.elem, len(registers)).type
    return word if type == "i32" else state.text.op(f"bitcast {type} {word} to i32")


# Shuffles ----------------------------------------------------------------------------------------------------


def _shuffle(state: Lowering, plan: WarpShuffle, registers: Registers, elem: Element) -> list[str | None]:
    units = [_join_unit(state, elem, [registers[r] for r in group]) for group in plan.gather]
    word = "i64" if elem.bits > 32 else "i32"
    for exchange, wanted in zip(plan.before, plan.wanted, strict=True):
        units = _exchange(state, exchange, units, word, wanted)
    lane = ""
    if not plan.is_butterfly:
        lane = state.thread_bits(plan.lane, plan.warp)
    moved = []
    for step in plan.rounds:
        if plan.is_butterfly:
            unit = units[step.source]
            moved.append(butterfly(state, unit, word, step.lane_xor) if step.lane_xor else unit)
            continue
        source = lane
        if step.lane_xor:
            source = state.text.op(f"xor i32 {lane}, {step.lane_xor}")
        moved.append(_from_lane(state, units[step.source], word, source))
    for exchange in plan.after:
        moved = _exchange(state, exchange, moved, word, range(len(moved)))
    parts: dict[int, list[str]] = {}
    names: list[str | None] = []
    for unit_number, element_number in plan.scatter:
        if unit_number not in parts:
            parts[unit_number] = _split_unit(state, elem, moved[unit_number], len(plan.gather[0]))
        names.append(parts[unit_number][element_number])
    return names


def _exchange(state: Lowering, exchange: Exchange, units: list[str], word: str, wanted: Collection[int]) -> list[str]:
    """The ``wanted`` units after an exchange; the others are what they were."""
    bit = exchange.bit + (5 if exchange.dimension == "warp" else 0)
    masked = state.text.op(f"and i32 {state.thread}, {1 << bit}")
    swap = state.text.op(f"icmp ne i32 {masked}, 0")
    return [
        state.text.op(f"select i1 {swap}, {word} {units[u ^ exchange.flip]}, {word} {unit}") if u in wanted else unit
        for u, unit in enumerate(units)
    ]


def _join_unit(state: Lowering, elem: Element, values: list[str]) -> str:
    """Up to 32 bits of elements in an i32, lowest first; one 64-bit element in an i64."""
    text = state.text
    if elem.bits == 64:
        return to_integer(state, values[0], elem)
    if len(values) == 1:
        integer = to_integer(state, values[0], elem)
        return text.op(f"zext i{elem.bits} {integer} to i32") if elem.bits < 32 else integer
    bits = max(8, elem.bits) * len(values)
    joined = pack(state, Words(elem, len(values), 1, f"i{bits}"), values)[0]
    return joined if bits == 32 else text.op(f"zext i{bits} {joined} to i32")


def _split_unit(state: Lowering, elem: Element, unit: str, count: int) -> list[str]:
    text = state.text
    name = register_type(elem)
    if elem.bits == 64:
        return [from_integer(state, unit, elem)]
    if count == 1:
        if elem.bits < 32:
            unit = text.op(f"trunc i32 {unit} to i{elem.bits}")
        return [from_integer(state, unit, elem)]
    stored = "i8" if name == "i1" else name
    bits = max(8, elem.bits) * count
    if bits < 32:
        unit = text.op(f"trunc i32 {unit} to i{bits}")
    kind = f"<{count} x {stored}>"
    whole = text.op(f"bitcast i{bits} {unit} to {kind}")
    values = [text.op(f"extractelement {kind} {whole}, i32 {i}") for i in range(count)]
    return [text.op(f"trunc i8 {v} to i1") for v in values] if name == "i1" else values


def to_integer(state: Lowering, value: str, elem: Element) -> str:
    """The bits of ``value`` as an integer of its width."""
    name = register_type(elem)
    if isinstance(elem, Pointer):
        return state.text.op(f"ptrtoint {name} {value} to i64")
    if name.startswith("i"):
        return value
    return state.text.op(f"bitcast {name} {value} to i{elem.bits}")


def from_integer(state: Lowering, bits: str, elem: Element) -> str:
    """The inverse of :func:`to_integer`."""
    name = register_type(elem)
    if isinstance(elem, Pointer):
        return state.text.op(f"inttoptr i64 {bits} to {name}")
    if name.startswith("i"):
        return bits
    return state.text.op(f"bitcast i{elem.bits} {bits} to {name}")


def butterfly(state: Lowering, value: str, word: str, lane_xor: int) -> str:
    """``value`` (i32, i64 or float) of the lane whose number differs by ``lane_xor``."""
    return _by_halves(state, value, word, lambda part, kind: state.machine.shuffle_xor(state, part, kind, lane_xor))


def _from_lane(state: Lowering, value: str, word: str, lane: str) -> str:
    return _by_halves(state, value, word, lambda part, kind: state.machine.shuffle_from(state, part, kind, lane))


def _by_halves(state: Lowering, value: str, word: str, shuffle: Callable[[str, str], str]) -> str:
    """Machines move 32 bits from lane to lane: an i64 travels as two halves."""
    if word != "i64":
        return shuffle(value, word)
    text = state.text
    low = text.op(f"trunc i64 {value} to i32")
    shifted = text.op(f"lshr i64 {value}, 32")
    high = text.op(f"trunc i64 {shifted} to i32")
    parts = [shuffle(part, "i32") for part in (low, high)]
    wide = [text.op(f"zext i32 {part} to i64") for part in parts]
    upper = text.op(f"shl i64 {wide[1]}, 32")
    return text.op(f"or disjoint i64 {upper}, {wide[0]}")


def shared_by_shuffle(elem: Element) -> int:
    """How many elements travel together in the 32 bits that machines move from lane to lane."""
    return max(1, 32 // max(8, elem.bits))


def shuffle_elements(state: Lowering, values: Sequence[str], elem: Element, lane_xor: int) -> list[str]:
    """A power of two of elements of any type of the lane that differs by ``lane_xor``; narrow ones travel together."""
    name = register_type(elem)
    if name == "float":
        return [butterfly(state, value, "float", lane_xor) for value in values]
    word = "i64" if elem.bits == 64 else "i32"
    count = shared_by_shuffle(elem)
    moved: list[str] = []
    for first in range(0, len(values), count):
        together = list(values[first : first + count])
        unit = butterfly(state, _join_unit(state, elem, together), word, lane_xor)
        moved += _split_unit(state, elem, unit, len(together))
    return moved


def shuffle_from(state: Lowering, value: str, elem: Element, lane: str) -> str:
    """One element of any type from the lane whose number (modulo 32) is ``lane``."""
    unit = _join_unit(state, elem, [value])
    word = "i64" if elem.bits == 64 else "i32"
    return _split_unit(state, elem, _from_lane(state, unit, word, lane), 1)[0]
