"""Inline assembly as statements: operands, registers of the block, predicates."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .barriers import Wait
from .parse import split_commas
from .values import LANES, PROCESSORS, Array, Held, HeldOperand, SimulationError
from .warp import Lanes, Warp

Read = Callable[[Warp], Array]
Run = Callable[[Warp, Lanes], Wait | None]

#: A label, or a brace of a block.
_OPENING = re.compile(r"^(?:([\w$]+(?:\$\{:uid\}\w*)?):(?=\s|$)|[{}])")
_PREDICATE = re.compile(r"^@(!?)(\S+)\s+")
_NUMBER = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)")
#: Statements of one piece of assembly as it runs; more are taken for a loop without an end.
_LONGEST_RUN = 100_000
_PLACE = re.compile(r"\[\s*([^\s+,\]]+)\s*(?:\+\s*(-?\d+)\s*)?\]")


def _clock(warp: Warp) -> Array:
    return np.full(LANES, warp.steps, np.int64)


def _processor(warp: Warp) -> Array:
    return np.full(LANES, warp.program.number % PROCESSORS, np.int32)


#: Registers that tell when and where a warp runs. Time is what the warp has done: every step takes one cycle, and one
#: nanosecond, so that the same launch always reads the same clock.
SPECIAL_REGISTERS: dict[str, Callable[[Warp], Array]] = {
    "%clock64": _clock,
    "%clock": lambda warp: _clock(warp).astype(np.int32),
    "%globaltimer": _clock,
    "%smid": _processor,
}


@dataclass
class Assembly:
    """The operands of a call of inline assembly: ``$0`` to ``$outputs - 1`` are results, the inputs follow.

    ``tied``: which input shares the register of a result.
    """

    outputs: int
    inputs: list[HeldOperand]
    tied: dict[int, int] = field(default_factory=dict)

    def held(self, token: str) -> Callable[[Warp], Held]:
        """How to read an operand that may be in flight."""
        if token.startswith("$"):
            number = int(token[1:])
            if number < self.outputs:
                if number not in self.tied:
                    return lambda warp: warp.registers[token]
                value = self.inputs[self.tied[number]]
                # What an instruction before in the same assembly wrote there counts.
                return lambda warp: warp.registers[token] if token in warp.registers else value(warp.env)
            value = self.inputs[number - self.outputs]
            return lambda warp: value(warp.env)
        if _NUMBER.fullmatch(token):
            number = int(token, 0)
            made = np.full(LANES, number, np.int64)
            return lambda warp: made
        if token in SPECIAL_REGISTERS:
            special = SPECIAL_REGISTERS[token]
            return lambda warp: special(warp)
        return lambda warp: warp.registers[token]

    def read(self, token: str) -> Read:
        """How to read an operand: a number of the call's, a constant, or a register of the block."""
        held = self.held(token)

        def read(warp: Warp) -> Array:
            value = held(warp)
            if isinstance(value, tuple):
                raise SimulationError(f"{token} is a struct")
            return value if isinstance(value, np.ndarray) else value.read()

        return read

    def place(self, token: str) -> Read:
        """How to read an address: ``[$0]``, ``[$0 + 16]``."""
        match = _PLACE.fullmatch(token)
        if match is None:
            raise SimulationError(f"cannot read the address {token!r}")
        base, offset = self.read(match[1]), int(match[2] or 0)
        return lambda warp: base(warp).astype(np.int64) + offset


@dataclass
class Statement:
    """One instruction: its name with all suffixes, its operands as text, and when it runs (None: always)."""

    opcode: str
    operands: list[str]
    predicate: str | None = None
    negated: bool = False
    labels: tuple[str, ...] = ()

    def has(self, modifier: str) -> bool:
        """Whether the name has a suffix."""
        return modifier in self.opcode.split(".")


Maker = Callable[[Statement, Assembly], Run]


def split_statements(text: str) -> list[Statement]:
    """The instructions of a piece of assembly with the labels before them; braces and declarations fall away."""
    text = " ".join(text.replace("\\0A", " ").replace("\\09", " ").split())
    statements = []
    labels: list[str] = []
    for part in text.split(";"):
        part = part.strip()
        while match := _OPENING.match(part):
            labels += [match[1]] if match[1] else []
            part = part[match.end() :].strip()
        if not part or part.startswith((".reg", ".pragma")):
            continue
        predicate = _PREDICATE.match(part)
        opcode, _, operands = part[predicate.end() if predicate else 0 :].partition(" ")
        made = Statement(opcode, split_commas(operands))
        if predicate:
            made.predicate, made.negated = predicate[2], bool(predicate[1])
        made.labels, labels = tuple(labels), []
        statements.append(made)
    return statements


def follow_loops(statements: list[Statement]) -> list[Statement]:
    """The statements in the order in which they run, where branches lead back as long as a constant is counted down.

    Other branches stay as they are. Raises SimulationError for a loop that does not end.
    """
    starts = {label: place for place, statement in enumerate(statements) for label in statement.labels}
    constants: dict[str, int] = {}
    run: list[Statement] = []
    place = 0
    while place < len(statements):
        statement = statements[place]
        place += 1
        if statement.opcode != "bra" or statement.predicate not in constants:
            _follow_constants(statement, constants)
            run.append(statement)
        elif bool(constants[statement.predicate]) != statement.negated:
            place = starts[statement.operands[0]]
        if len(run) > _LONGEST_RUN:
            raise SimulationError(f"the loop at {statement.opcode} {', '.join(statement.operands)} does not end")
    return run


def _follow_constants(statement: Statement, constants: dict[str, int]) -> None:
    """What is known of registers after a statement."""
    kind = statement.opcode.partition(".")[0]
    result, *operands = statement.operands or [""]
    values = [int(x, 0) if _NUMBER.fullmatch(x) else constants.get(x) for x in operands]
    constants.pop(result, None)
    numbers = [value for value in values if value is not None]
    if statement.predicate is not None or len(numbers) < len(values):
        return
    if kind == "mov":
        constants[result] = numbers[0]
    elif kind == "add":
        constants[result] = sum(numbers)
    elif kind == "setp" and statement.has("ne"):
        constants[result] = int(numbers[0] != numbers[1])


def vector(token: str) -> list[str]:
    """The operands in braces."""
    if not (token.startswith("{") and token.endswith("}")):
        raise SimulationError(f"cannot read the list of operands {token!r}")
    return split_commas(token[1:-1])


def active_lanes(statement: Statement, assembly: Assembly) -> Callable[[Warp], Lanes]:
    """Which lanes run a statement."""
    if statement.predicate is None:
        return lambda warp: warp.active
    read, negated = assembly.read(statement.predicate), statement.negated
    return lambda warp: warp.active & (read(warp).astype(np.bool_) != negated)


def uniform(values: Array, lanes: Lanes, what: str) -> int:
    """The value that all ``lanes`` agree on."""
    here = values[lanes]
    if (here != here[0]).any():
        raise SimulationError(f"{what} differs between the lanes of a warp")
    return int(here[0])


def require_all(warp: Warp, lanes: Lanes, statement: Statement) -> None:
    """Raises SimulationError if branches or a predicate leave lanes out of what needs the whole warp."""
    warp.require_all_lanes(statement.opcode)
    if not lanes.all():
        raise SimulationError(f"{statement.opcode} needs all threads of {warp}; a predicate leaves some out")
