"""A random kernel as it grows. Everything is drawn from one generator of random numbers, and each statement is run as
soon as it is there: what it gives decides whether it stays, and what may come next."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from .bounds import Discard, Known, Reject, rounded
from .kinds import I32, OPAQUE, Array, Kind
from .statements import Assignment, Branch, Effect, Input, Loop, Meaning, Operation, Output, State, Statement, Variable

Drawn = TypeVar("Drawn")
#: What an output holds before the launch.
UNTOUCHED = 80


class Builder:
    """Appends to a kernel. ``programs``: of its launch; ``assembly``: whether PTX may be in it; ``pool``: the variables
    that operations may use; ``limit``: the most elements of a tile; ``loops``: the indices of the loops around."""

    def __init__(self, rng: random.Random, programs: int, assembly: bool) -> None:
        self.rng, self.programs, self.assembly = rng, programs, assembly
        self.values = np.random.default_rng(rng.getrandbits(60))
        self.limit, self.clean = 8192, False
        self.inputs: list[Input] = []
        self.outputs: list[Output] = []
        self.numbers: dict[str, int] = {}
        self.options: dict[str, int | bool] = {}
        self.tags: set[str] = set()
        self.used: set[str] = set()
        self.loops: list[Variable] = []
        self.in_branch = False
        self.depth = 0
        self.body: list[Statement] = []
        self.fixed: dict[str, Known] = {}
        self.state = State(programs, self.fixed)
        self.pid = self.constant("pid", np.arange(programs))
        self.pool: list[Variable] = [self.pid]
        self._names = 0

    # Drawing

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def choose(self, *choices: Drawn) -> Drawn:
        return self.rng.choice(choices)

    def pick(self, wanted: Callable[[Variable], bool] = lambda v: True) -> Variable:
        """A variable of the pool, a recent one most of the time.

        Raises:
            Reject: none is wanted.
        """
        found = [variable for variable in self.pool if variable.kind is not OPAQUE and wanted(variable)]
        if not found:
            raise Reject("nothing fits")
        return self.rng.choice(found[-6:] if self.chance(0.7) else found)

    # Names

    def fresh(self, letter: str = "v") -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def constant(self, name: str, values: Array | int) -> Variable:
        """A scalar that is the same throughout, of each program or of all."""
        self.fixed[name] = Known(np.broadcast_to(np.asarray(values, np.int32), (self.programs,)))
        return Variable(name, (), I32)

    def hidden(self, value: int) -> Variable:
        """A number that the text does not name."""
        return self.constant(self.fresh("hidden"), value)

    def argument(self, value: int) -> Variable:
        """A number that the launch passes."""
        name = f"n{len(self.numbers)}"
        self.numbers[name] = int(value)
        return self.constant(name, value)

    def number(self, value: int) -> str:
        """The text of a number: itself, or an argument."""
        return str(value) if self.chance(0.5) else str(self.argument(value))

    # Statements

    def append(self, statement: Statement) -> None:
        self.state.run([statement])
        self.body.append(statement)
        self.used.update(variable.name for variable in statement.uses)

    def emit(
        self,
        text: str,
        uses: Sequence[Variable],
        made: Sequence[tuple[Sequence[int], Kind]],
        meaning: Meaning,
        name: str | None = None,
        pooled: bool = True,
    ) -> Variable:
        """Append ``v, ... = text``; ``meaning`` maps what is known of ``uses`` to what is known of the new ones.
        Returns the first of them."""
        variables = [Variable(name or self.fresh(), tuple(shape), kind) for shape, kind in made]
        self.append(Operation(tuple(uses), tuple(variables), text, meaning))
        if pooled:
            self.pool.extend(variables)
        return variables[0]

    def declare(self, letter: str, text: str, uses: Sequence[Variable] = ()) -> Variable:
        """Append a name for something that is no number, such as a descriptor."""
        variable = Variable(self.fresh(letter), (), OPAQUE)
        self.append(Operation(tuple(uses), (variable,), text))
        return variable

    def effect(self, text: str, uses: Sequence[Variable], effect: Callable[[State], None], bound: bool = False) -> None:
        """Append a statement that changes memory; ``bound``: one that belongs to what it uses."""
        self.append(Effect(tuple(uses), (), text, effect, bound))

    def assign(self, target: Variable, value: Variable, text: str = "") -> None:
        """Append ``target = value``."""
        self.append(Assignment((value,), (target,), text))

    def attempt(self, operation: Callable[[Builder], object]) -> bool:
        """Run an operation; nothing of it stays if it is rejected."""
        kept = (list(self.pool), len(self.inputs), len(self.outputs), list(self.loops), self.depth, self.in_branch)
        numbers, state, block, count = dict(self.numbers), self.state.copy(), self.body, len(self.body)
        try:
            operation(self)
        except Reject:
            self.pool, inputs, outputs, self.loops, self.depth, self.in_branch = kept
            del self.inputs[inputs:], self.outputs[outputs:], block[count:]
            self.numbers, self.state, self.body = numbers, state, block
            return False
        self.tags.update({operation.__name__} - {"<lambda>"})
        return True

    # Blocks

    def block(self, make: Callable[[], None]) -> list[Statement]:
        """The statements that ``make`` appends; what they make is not in the pool afterwards."""
        outer, pool, self.body = self.body, list(self.pool), []
        self.depth += 1
        make()
        self.depth -= 1
        made, self.body, self.pool = self.body, outer, pool
        return made

    def loop(
        self, header: str, start: Variable, count: Variable, step: int, index: Variable, make: Callable[[], None]
    ) -> None:
        """Append a loop whose body ``make`` appends, as it is in the first turn."""
        before = self.state.copy()
        self.state.known[index.name] = self.state[start]
        self.loops.append(index)
        self.pool.append(index)
        body = self.block(make)
        self.loops.pop()
        self.pool.remove(index)
        self.finish(before, Loop((start, count), (), header, index, start, count, step, body=body))

    def loop_while(
        self, header: str, uses: Sequence[Variable], going: Callable[[State], Array], make: Callable[[], None]
    ) -> None:
        """Append a loop of an unknown number of turns."""
        before = self.state.copy()
        self.finish(before, Loop(tuple(uses), (), header, going=going, body=self.block(make)))

    def branch(self, condition: Variable, make: Callable[[], None], other: Callable[[], None] | None = None) -> None:
        """Append ``if condition``. Both sides are made as if every program came there."""
        before, outside, self.in_branch = self.state.copy(), self.in_branch, True
        body = self.block(make)
        self.state = before.copy()
        rest = self.block(other) if other else []
        self.in_branch = outside
        self.finish(before, Branch((condition,), (), body, rest))

    def finish(self, before: State, statement: Statement) -> None:
        """Run a statement with blocks from the beginning, as it is now."""
        self.state = before
        try:
            self.append(statement)
        except Reject as reason:
            raise Discard(f"in a block: {reason}") from reason

    # Arrays

    def data(self, kind: Kind, length: int, style: str | None = None) -> Array:
        """Elements of an array: small integers most of the time."""
        rng = self.values
        if kind.is_integer:
            low, high = {"tiny": (-2, 3), "small": (-9, 10)}.get(style or self.choose("small", "small", "wide"), (0, 0))
            if high:
                return rng.integers(low if kind.is_signed else 0, high, length).astype(kind.numpy)
            info = np.iinfo(kind.numpy)
            return rng.integers(info.min, info.max, length, dtype=kind.numpy, endpoint=True)
        style = style or self.choose("small", "small", "tiny", "real")
        if style == "real":
            return rounded(rng.standard_normal(length) * 1.5, kind)
        low, high = {"tiny": (-2, 3)}.get(style, (-8, 9))
        return rng.integers(low, high, length).astype(np.float64)

    def input(self, kind: Kind, length: int, style: str | None = None, aligned: bool | None = None) -> Input:
        aligned = self.chance(0.8) if aligned is None else aligned
        start = self.choose(0, 256) if aligned else self.choose(1, 3, 5)
        self.inputs.append(Input(f"x{len(self.inputs)}", kind, self.data(kind, length, style), start))
        return self.inputs[-1]

    def output(self, kind: Kind, length: int, initial: Array | None = None, aligned: bool | None = None) -> Output:
        aligned = self.chance(0.8) if aligned is None else aligned
        held = np.full(length, UNTOUCHED, kind.numpy) if initial is None else initial
        self.outputs.append(Output(f"o{len(self.outputs)}", kind, held, 0 if aligned else self.choose(1, 3, 5)))
        return self.outputs[-1]
