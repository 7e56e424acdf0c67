"""Assembly that a kernel's author wrote: elements into registers, and back."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.types import Element
from ...tile.assembly import IMMEDIATES, REGISTERS, EffectfulAssembly, InlineAssembly, width_of
from ..simt.convert import from_integer, to_integer
from ..simt.lowering import Lowering, rule
from ..simt.registers import register_type
from .machine import RULES

_FLOATS = {"f": "float", "d": "double"}


@rule(InlineAssembly, RULES)
def _inline(state: Lowering, op: InlineAssembly) -> None:
    inputs = [state.values[v] for v in op.inputs]
    registers = inputs[0].unique() if inputs else [0]
    made: list[list[str | None]] = [[None] * (1 + max(registers)) for _ in op.results]
    for first in range(0, len(registers), op.pack):
        taken = registers[first : first + op.pack]
        # A thread that holds fewer elements than a run takes gives the last one several times.
        padded = [*taken, *[taken[-1]] * (op.pack - len(taken))]
        results = _run(state, op, [[x[r] for r in padded] for x in inputs])
        for names, values in zip(made, results, strict=True):
            for register, value in zip(taken, values, strict=False):
                names[register] = value
    for result, names in zip(op.results, made, strict=True):
        state.define(result, names)


@rule(EffectfulAssembly, RULES)
def _effectful(state: Lowering, op: EffectfulAssembly) -> None:
    _inline(state, op)


def _run(state: Lowering, op: InlineAssembly, elements: Sequence[Sequence[str]]) -> list[list[str]]:
    """One run: the elements of each result from those of each operand."""
    letters = op.letters
    kinds = [r.type.elem for r in op.results]
    outputs = sum(op.registers_of(kind) for kind in kinds)
    operands: list[tuple[str, str]] = []
    for value, values in zip(op.inputs, elements, strict=True):
        each = op.elements_in(value.type.elem)
        for start in range(0, op.pack, each):
            letter = letters[outputs + len(operands)]
            bits, width = _joined(state, value.type.elem, values[start : start + each])
            if letter in IMMEDIATES:
                operands.append((f"i{width}", bits))
            else:
                operands.append((_llvm_type(letter), _as_register(state, bits, width, letter)))
    returned = [_llvm_type(letter) for letter in letters[:outputs]]
    effects = isinstance(op, EffectfulAssembly)
    words = iter(state.text.asm(returned, op.text, op.written_constraints, operands, effects=effects))
    made, place = [], 0
    for kind in kinds:
        each, parts = op.elements_in(kind), []
        for _ in range(op.registers_of(kind)):
            width = each * width_of(kind)
            bits = _from_register(state, next(words), width, letters[place])
            parts += _split(state, kind, bits, each)
            place += 1
        made.append(parts)
    return made


def _llvm_type(letter: str) -> str:
    return _FLOATS.get(letter) or f"i{REGISTERS[letter]}"


def _joined(state: Lowering, element: Element, values: Sequence[str]) -> tuple[str, int]:
    """Elements as one integer, the first in its lowest bits, and how many bits it has."""
    width = width_of(element)
    parts = [to_integer(state, value, element) for value in values]
    if register_type(element) == "i1":
        parts = [state.text.op(f"zext i1 {part} to i8") for part in parts]
    total = width * len(parts)
    whole = parts[0] if len(parts) == 1 else state.text.op(f"zext i{width} {parts[0]} to i{total}")
    for place, part in enumerate(parts[1:], 1):
        wide = state.text.op(f"zext i{width} {part} to i{total}")
        moved = state.text.op(f"shl i{total} {wide}, {place * width}")
        whole = state.text.op(f"or disjoint i{total} {whole}, {moved}")
    return whole, total


def _split(state: Lowering, element: Element, bits: str, count: int) -> list[str]:
    """The inverse of :func:`_joined`."""
    width, made = width_of(element), []
    for place in range(count):
        part = bits
        if place:
            part = state.text.op(f"lshr i{width * count} {bits}, {place * width}")
        if count > 1:
            part = state.text.op(f"trunc i{width * count} {part} to i{width}")
        if register_type(element) == "i1":
            made.append(state.text.op(f"icmp ne i8 {part}, 0"))
        else:
            made.append(from_integer(state, part, element))
    return made


def _as_register(state: Lowering, bits: str, width: int, letter: str) -> str:
    """An integer of ``width`` bits in a register of another width, or one of floats."""
    wanted = REGISTERS[letter]
    if width != wanted:
        how = "zext" if width < wanted else "trunc"
        bits = state.text.op(f"{how} i{width} {bits} to i{wanted}")
    return state.text.op(f"bitcast i{wanted} {bits} to {_FLOATS[letter]}") if letter in _FLOATS else bits


def _from_register(state: Lowering, value: str, width: int, letter: str) -> str:
    """The inverse of :func:`_as_register`."""
    held = REGISTERS[letter]
    if letter in _FLOATS:
        value = state.text.op(f"bitcast {_FLOATS[letter]} {value} to i{held}")
    if width == held:
        return value
    return state.text.op(f"{'trunc' if width < held else 'zext'} i{held} {value} to i{width}")
