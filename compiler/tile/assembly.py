"""Assembly that a kernel's author writes for one target."""

from __future__ import annotations

import re

from ..ir.core import Effect, Op, Value
from ..ir.types import SCALARS, Element, Pointer, Tile
from .elementwise import Constant
from .shape import Broadcast, Splat

#: Bits of a register, by its letter in constraints (LLVM, "NVPTX" under "Supported Constraint Code List").
REGISTERS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64}
#: The letters of operands that stand in the text as numbers, as ``lop3``'s table of truth has to.
IMMEDIATES = "ni"
_CONSTRAINT = re.compile(rf"(?P<output>=&?)?(?P<letter>[hrlfd])|(?P<immediate>[{IMMEDIATES}])|(?P<tied>\d+)")
#: What may follow a dollar sign: itself, or an operand's number.
_REFERENCE = re.compile(r"\$(?:\$|(\d+)|\{(\d+)\}|(?P<other>.?))", re.DOTALL)


class InlineAssembly(Op, mnemonic="inline_assembly"):
    """``text`` for every ``pack`` elements of ``inputs``, some ``pack`` that one thread holds.

    Registers are those of the results, then those of the operands, in order; elements below 32 bits share registers of
    32 bits as far as ``pack`` goes. ``constraints`` are LLVM's, ``results_in`` the element types of the results, with a
    space between them.
    """

    inputs: tuple[Value, ...]
    text: str
    constraints: str
    results_in: str
    pack: int = 1

    @property
    def written(self) -> str:
        """The function of the language."""
        return "inline_asm_elementwise"

    def infer(self) -> tuple[Tile, ...]:
        """Results: the element types in the operands' shape; scalars without operands.

        Raises TypeMismatch: operands of several shapes, constraints that are not understood or do not fit the number
        of registers, and text that refers to operands that do not exist.
        """
        if len({v.type.shape for v in self.inputs}) > 1:
            raise self.fail("all operands must have one shape")
        kinds = [SCALARS[name] for name in self.results_in.split()]
        made = tuple(self.inputs[0].type.with_elem(kind) if self.inputs else Tile(kind) for kind in kinds)
        outputs = sum(self.registers_of(t.elem) for t in made)
        inputs = sum(self.registers_of(v.type.elem) for v in self.inputs)
        self._check(outputs, inputs)
        return made

    def elements_in(self, element: Element) -> int:
        """How many elements share a register."""
        return min(max(1, 32 // width_of(element)), self.pack)

    def registers_of(self, element: Element) -> int:
        """Registers that ``pack`` elements take."""
        return self.pack // self.elements_in(element)

    @property
    def letters(self) -> list[str]:
        """The letter of each register, results first; of a tied operand the letter of its result."""
        made: list[str] = []
        for part in self.operand_constraints:
            match = _CONSTRAINT.fullmatch(part)
            if match is not None:
                made.append(made[int(match["tied"])] if match["tied"] else match["letter"] or match["immediate"])
        return made

    @property
    def operand_constraints(self) -> list[str]:
        """The constraints of registers, without those that say what else changes."""
        return [part for part in self._parts if not part.startswith("~")]

    @property
    def written_constraints(self) -> str:
        """All of them as LLVM reads them."""
        return ",".join(self._parts)

    @property
    def _parts(self) -> list[str]:
        return [part.strip() for part in self.constraints.split(",") if part.strip()]

    def _check(self, outputs: int, inputs: int) -> None:
        parts = self.operand_constraints
        if len(parts) != outputs + inputs:
            raise self.fail(
                f"{len(parts)} constraints for {outputs} registers of results and {inputs} of operands",
                hint="elements below 32 bits share registers of 32 bits, as far as pack goes",
            )
        for place, part in enumerate(parts):
            match = _CONSTRAINT.fullmatch(part)
            if match is None or bool(match["output"]) != (place < outputs) or int(match["tied"] or 0) >= outputs:
                kind = "a result" if place < outputs else "an operand"
                example = '"=r"' if place < outputs else '"r"'
                raise self.fail(
                    f"{part!r} is no constraint of {kind}",
                    hint=f"registers are {', '.join(REGISTERS)}, such as {example}; results come first",
                )
        held = (v for v in self.inputs for _ in range(self.registers_of(v.type.elem)))
        for value, part in zip(held, parts[outputs:], strict=True):
            if part in IMMEDIATES and not (_is_known(value) and value.type.is_integer):
                raise self.fail(f"an operand of {part!r} is an integer that is known at compile time")
        for match in _REFERENCE.finditer(self.text):
            number = match[1] or match[2]
            if match["other"] is not None or (number is not None and int(number) >= len(parts)):
                raise self.fail(
                    f"{match[0]!r} in the assembly stands for nothing",
                    hint=f"operands are $0 to ${len(parts) - 1}, and $$ is a dollar sign",
                )
        for part in self._parts:
            if part.startswith("~") and not re.fullmatch(r"~\{\w+\}", part):
                raise self.fail(f"{part!r} is no constraint", hint='what else changes is written "~{memory}"')


class EffectfulAssembly(InlineAssembly, mnemonic="effectful_assembly", effect=Effect.WRITE):
    """Inline assembly that does more than compute its results: it stays where it is, and is run though nobody reads
    them."""


def _is_known(value: Value) -> bool:
    """Whether a constant fills ``value``."""
    while isinstance(value.op, Splat | Broadcast):
        value = value.op.x
    return isinstance(value.op, Constant)


def width_of(element: Element) -> int:
    """Bits of one element in a register: a boolean takes 8, a pointer 64."""
    return 64 if isinstance(element, Pointer) else max(8, element.bits)
