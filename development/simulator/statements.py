"""Inline assembly as statements: operands, registers of the block, predicates."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .barriers import Wait
from .parse import split_commas
from .values import LANES, SMS, Array, Held, HeldOperand, SimulationError
from .warp import Lanes, Warp

Read = Callable[[Warp], Array]
Run = Callable[[Warp, Lanes], Wait | None]

_LABEL = re.compile(r"^[\w$]+(?:\$\{:uid\})?:(?=\s|$)")
_PREDICATE = re.compile(r"^@(!?)(\S+)\s+")
_NUMBER = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)")
_PLACE = re.compile(r"\[\s*([^\s+,\]]+)\s*(?:\+\s*(-?\d+)\s*)?\]")


def _clock(warp: Warp) -> Array:
    return np.full(LANES, warp.steps, np.int64)


def _sm_number(warp: Warp) -> Array:
    return np.full(LANES, warp.program.number % SMS, np.int32)


#: Registers that tell when and where a warp runs. Time is what the warp has done: every step takes one cycle, and one
#: nanosecond, so that the same launch always reads the same clock.
SPECIAL_REGISTERS: dict[str, Callable[[Warp], Array]] = {
    "%clock64": _clock,
    "%clock": lambda warp: _clock(warp).astype(np.int32),
    "%globaltimer": _clock,
    "%smid": _sm_number,
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

    def has(self, modifier: str) -> bool:
        """Whether the name has a suffix."""
        return modifier in self.opcode.split(".")


Maker = Callable[[Statement, Assembly], Run]


def split_statements(text: str) -> list[Statement]:
    """The instructions of a block of assembly; declarations of registers and labels fall away."""
    text = " ".join(text.replace("\\0A", " ").replace("\\09", " ").split())
    if text.startswith("{"):
        text = text[1:].removesuffix("}")
    statements = []
    for part in text.split(";"):
        part = part.strip()
        while match := _LABEL.match(part):
            part = part[match.end() :].strip()
        if not part or part.startswith(".reg"):
            continue
        predicate = _PREDICATE.match(part)
        opcode, _, operands = part[predicate.end() if predicate else 0 :].partition(" ")
        made = Statement(opcode, split_commas(operands))
        if predicate:
            made.predicate, made.negated = predicate[2], bool(predicate[1])
        statements.append(made)
    return statements


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
