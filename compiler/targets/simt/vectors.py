"""Vector accesses: how consecutive elements travel as 32- and 64-bit words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...hardware import REGISTER_BITS
from ...ir.core import Value
from ...ir.types import Element, Pointer
from .lowering import Lowering
from .registers import Registers, memory_type, register_type


@dataclass(frozen=True, slots=True)
class Words:
    """``count`` words of LLVM type ``type`` that hold ``vector`` elements.

    Elements of 32 and 64 bits are words themselves; narrower ones are packed, lowest address first.
    """

    element: Element
    vector: int
    count: int
    type: str

    @property
    def per_word(self) -> int:
        """Elements in one word."""
        return self.vector // self.count


def groups_of(registers: Registers, vector: int) -> list[int]:
    """First register of every vector, copies left out."""
    return [i for i in registers.unique() if i % vector == 0]


def words_of(element: Element, vector: int) -> Words:
    """How ``vector`` elements (at most 16 bytes) travel."""
    bits = 8 * element.bytes
    if bits >= REGISTER_BITS:
        name = "i64" if isinstance(element, Pointer) else register_type(element)
        return Words(element, vector, vector, name)
    total = bits * vector
    if total <= 16:
        # GPUs have no 8-bit registers: a lone byte sits in a 16-bit one.
        return Words(element, vector, 1, "i16")
    return Words(element, vector, total // REGISTER_BITS, "i32")


def pack(state: Lowering, words: Words, values: Sequence[str]) -> list[str]:
    """The words that hold ``values``."""
    text = state.text
    kept = memory_type(words.element)
    name = register_type(words.element)
    if kept != name:  # booleans
        values = [text.op(f"zext i1 {v} to i8") for v in values]
    if words.per_word == 1:
        if isinstance(words.element, Pointer):
            return [text.op(f"ptrtoint {name} {v} to i64") for v in values]
        if kept == words.type:
            return list(values)
        if kept == "i8":
            return [text.op(f"zext i8 {v} to i16") for v in values]
        return [text.op(f"bitcast {kept} {v} to {words.type}") for v in values]
    step = words.per_word
    packed = []
    for start in range(0, len(values), step):
        packed.append(_pack_word(state, words, values[start : start + step]))
    return packed


def _pack_word(state: Lowering, words: Words, values: Sequence[str]) -> str:
    kept, known = memory_type(words.element), [state.narrowed.get((v, words.element)) for v in values]
    wide = [exact for exact in known if exact is not None]
    if isinstance(words.element, Pointer) or len(wide) < len(values):
        return _joined(state, kept, values, words.type)
    # Rounded as pairs. LLVM would often find those of 16 bits, but not behind a loop, where it rounds what the loop
    # begins with and what it ends with apart from each other.
    if kept == "i8":
        pairs = zip(wide[::2], wide[1::2], strict=True)
        codes = [state.machine.narrow_to_eight_bit(state, low, high, words.element) for low, high in pairs]
        return _joined(state, "i16", codes, words.type)
    count = len(wide)
    whole = state.text.op(f"fptrunc <{count} x float> {_vector(state, 'float', wide)} to <{count} x {kept}>")
    return state.text.op(f"bitcast <{count} x {kept}> {whole} to {words.type}")


def _joined(state: Lowering, kind: str, values: Sequence[str], word: str) -> str:
    if len(values) == 1:
        return values[0]
    return state.text.op(f"bitcast <{len(values)} x {kind}> {_vector(state, kind, values)} to {word}")


def _vector(state: Lowering, kind: str, values: Sequence[str]) -> str:
    if all(not v.startswith("%") for v in values):
        return "<" + ", ".join(f"{kind} {v}" for v in values) + ">"
    whole = "poison"
    for i, value in enumerate(values):
        whole = state.text.op(f"insertelement <{len(values)} x {kind}> {whole}, {kind} {value}, i32 {i}")
    return whole


def unpack(state: Lowering, words: Words, packed: Sequence[str]) -> list[str]:
    """The elements in ``packed``: the inverse of :func:`pack`."""
    text = state.text
    kept = memory_type(words.element)
    name = register_type(words.element)
    if words.per_word > 1:
        values = []
        for word in packed:
            whole = text.op(f"bitcast {words.type} {word} to <{words.per_word} x {kept}>")
            for i in range(words.per_word):
                values.append(text.op(f"extractelement <{words.per_word} x {kept}> {whole}, i32 {i}"))
                if kept == "bfloat":
                    state.halves[values[-1]] = word, i
    elif isinstance(words.element, Pointer):
        return [text.op(f"inttoptr i64 {v} to {name}") for v in packed]
    elif kept == words.type:
        values = list(packed)
    elif kept == "i8":
        values = [text.op(f"trunc i16 {v} to i8") for v in packed]
    else:
        values = [text.op(f"bitcast {words.type} {v} to {kept}") for v in packed]
    if kept == name:
        return values
    return [text.op(f"icmp ne i8 {v}, 0") for v in values]


def define_words(state: Lowering, value: Value, words: dict[int, str], per_word: int) -> None:
    """Give ``value`` registers that are taken out of 32-bit words only when somebody wants them one by one."""
    state.words[value] = words
    elem = value.type.elem
    kind = Words(elem, per_word, 1, "i32")
    parts: dict[int, list[str]] = {}

    def element(index: int) -> str:
        first = index - index % per_word
        if first not in parts:
            parts[first] = unpack(state, kind, [words[first]])
        return parts[first][index - first]

    state.define_lazily(value, [], element)


def packed_words(state: Lowering, value: Value, registers: Sequence[int]) -> list[str]:
    """The words that hold ``registers`` of ``value``, without taking apart words that are there."""
    elem = value.type.elem
    words = words_of(elem, len(registers))
    known = state.words.get(value)
    if known is not None and words.type == "i32":
        firsts = registers[:: words.per_word]
        runs = [list(range(f, f + words.per_word)) for f in firsts]
        if [r for run in runs for r in run] == list(registers) and all(f in known for f in firsts):
            return [known[f] for f in firsts]
    held = state.values[value]
    return pack(state, words, [held[r] for r in registers])


def load_shared(state: Lowering, element: Element, vector: int, address: str) -> list[str]:
    """``vector`` consecutive elements of shared memory; ``address`` is aligned to all of them."""
    words = words_of(element, vector)
    bytes_each = element.bytes * vector
    if bytes_each == 1:
        byte = state.text.op(f"load i8, ptr addrspace(3) {address}, align 1")
        return unpack(state, words, [state.text.op(f"zext i8 {byte} to i16")])
    if words.count == 1:
        value = state.text.op(f"load {words.type}, ptr addrspace(3) {address}, align {bytes_each}")
        return unpack(state, words, [value])
    whole = f"<{words.count} x {words.type}>"
    value = state.text.op(f"load {whole}, ptr addrspace(3) {address}, align {bytes_each}")
    parts = [state.text.op(f"extractelement {whole} {value}, i32 {i}") for i in range(words.count)]
    return unpack(state, words, parts)


def store_shared(state: Lowering, element: Element, values: Sequence[str], address: str) -> None:
    """Store consecutive elements to shared memory; ``address`` is aligned to all of them."""
    words = words_of(element, len(values))
    store_words(state, words, pack(state, words, values), address)


def store_words(state: Lowering, words: Words, packed: Sequence[str], address: str) -> None:
    """Store words to shared memory; ``address`` is aligned to all of them."""
    align = words.element.bytes * words.vector
    if align == 1:
        byte = state.text.op(f"trunc i16 {packed[0]} to i8")
        state.text.do(f"store i8 {byte}, ptr addrspace(3) {address}, align 1")
        return
    if words.count == 1:
        state.text.do(f"store {words.type} {packed[0]}, ptr addrspace(3) {address}, align {align}")
        return
    whole = "poison"
    kind = f"<{words.count} x {words.type}>"
    for i, word in enumerate(packed):
        whole = state.text.op(f"insertelement {kind} {whole}, {words.type} {word}, i32 {i}")
    state.text.do(f"store {kind} {whole}, ptr addrspace(3) {address}, align {align}")
