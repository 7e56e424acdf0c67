"""What a kernel consists of: statements, each with its text and its meaning for all programs of a launch at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from .bounds import Discard, Known
from .kinds import OPAQUE, Array, Kind

#: Iterations after which a loop counts as endless.
MOST_TURNS = 200


@dataclass(frozen=True, eq=False)
class Variable:
    """A name in a kernel, of a tile or a number, or of something opaque."""

    name: str
    shape: tuple[int, ...]
    kind: Kind

    def __str__(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, eq=False)
class Input:
    """An array that is read. The kernel gets the address of an element that lies ``start`` behind an allocation's."""

    name: str
    kind: Kind
    values: Array
    start: int


@dataclass(frozen=True, eq=False)
class Output:
    """An array that is written."""

    name: str
    kind: Kind
    initial: Array
    start: int


@dataclass(frozen=True, eq=False)
class Contents:
    """What an output holds: of elements that are not ``touched`` what it held before."""

    values: Array
    error: Array
    touched: Array

    @classmethod
    def of(cls, output: Output) -> Contents:
        """Before anything is stored."""
        return cls(output.initial, np.zeros(len(output.initial)), np.zeros(len(output.initial), bool))

    def written(self, places: Array, known: Known, mask: Array) -> Contents:
        """After a store of the elements in ``mask``."""
        made = replace(self, values=self.values.copy(), error=self.error.copy(), touched=self.touched.copy())
        made.values[places[mask]] = known.values[mask]
        made.error[places[mask]] = known.slack[mask]
        made.touched[places[mask]] = True
        return made


class State:
    """Where a launch stands: what each variable and output is, and which programs run the present statement.

    ``fixed``: arguments and other names that never change.
    """

    def __init__(self, programs: int, fixed: dict[str, Known]) -> None:
        self.programs, self.fixed = programs, fixed
        self.known: dict[str, Known] = {}
        self.contents: dict[str, Contents] = {}
        self.active = np.ones(programs, bool)
        self.staying = self.active  # in the innermost loop
        self.gone = np.zeros(programs, bool)

    def copy(self) -> State:
        """Another one that goes on from here; arrays are never changed in place."""
        made = State(self.programs, self.fixed)
        made.known, made.contents = dict(self.known), dict(self.contents)
        made.active, made.staying, made.gone = self.active, self.staying, self.gone
        return made

    def __getitem__(self, variable: Variable) -> Known:
        return self.known[variable.name] if variable.name in self.known else self.fixed[variable.name]

    def knows(self, variable: Variable) -> bool:
        """Whether it has values: a descriptor has none."""
        return variable.name in self.known or variable.name in self.fixed

    def number(self, variable: Variable) -> Array:
        """A scalar of each program, in i64."""
        return self[variable].values.astype(np.int64)

    def lanes(self, shape: tuple[int, ...]) -> Array:
        """The active programs, beside tiles of ``shape``."""
        return beside(self.active, shape)

    def held(self, output: Output) -> Contents:
        """What an output holds."""
        return self.contents.get(output.name) or Contents.of(output)

    def store(self, output: Output, places: Array, known: Known, mask: Array) -> None:
        """Write the elements in ``mask`` to their places."""
        self.contents[output.name] = self.held(output).written(places, known, mask)

    def run(self, block: Sequence[Statement]) -> None:
        """Run statements one after the other."""
        with np.errstate(all="ignore"):
            for statement in block:
                statement.run(self)


def beside(scalars: Array, shape: Sequence[int]) -> Array:
    """A number of each program, as it meets tiles of ``shape``."""
    return scalars.reshape(scalars.shape + (1,) * len(shape))


@dataclass(frozen=True, eq=False)
class Statement:
    """``uses``: the variables without which it cannot stand; ``makes``: those that it gives a value."""

    uses: tuple[Variable, ...] = ()
    makes: tuple[Variable, ...] = ()

    def run(self, state: State) -> None:
        raise NotImplementedError

    def lines(self) -> Iterator[str]:
        raise NotImplementedError

    @property
    def blocks(self) -> tuple[list[Statement], ...]:
        """Those inside."""
        return ()

    @property
    def removable(self) -> bool:
        """Whether it can be left out by itself; what belongs to another statement goes with that one alone."""
        return True

    def with_blocks(self, *blocks: list[Statement]) -> Statement:
        """The same around other blocks."""
        return self


Meaning = Callable[..., "Known | Sequence[Known]"]


@dataclass(frozen=True, eq=False)
class Operation(Statement):
    """``makes = text``; without ``meaning`` what it makes is known from the text alone (a descriptor)."""

    text: str = ""
    meaning: Meaning | None = None

    def run(self, state: State) -> None:
        if self.meaning is None:
            return
        made = self.meaning(*(state[variable] for variable in self.uses if state.knows(variable)))
        for variable, known in zip(self.makes, [made] if isinstance(made, Known) else made, strict=True):
            if variable.kind is not OPAQUE:
                wanted = (state.programs, *variable.shape)
                assert known.values.dtype == variable.kind.numpy, (self.text, known.values.dtype, variable.kind)
                assert known.values.shape == wanted, (self.text, known.values.shape, wanted)
            state.known[variable.name] = replace(known, error=None) if known.exact else known

    @property
    def removable(self) -> bool:
        return bool(self.text)

    def lines(self) -> Iterator[str]:
        if self.text:
            yield f"{', '.join(map(str, self.makes))} = {self.text}" if self.makes else self.text


@dataclass(frozen=True, eq=False)
class Effect(Statement):
    """A statement that changes memory; ``bound``: one that belongs to a statement that it uses."""

    text: str = ""
    effect: Callable[[State], None] = lambda state: None
    bound: bool = False

    @property
    def removable(self) -> bool:
        return not self.bound

    def run(self, state: State) -> None:
        self.effect(state)

    def lines(self) -> Iterator[str]:
        if self.text:
            yield self.text


@dataclass(frozen=True, eq=False)
class Assignment(Statement):
    """``makes[0] = uses[0]``, a name that had a value, or has one from each side of a branch."""

    text: str = ""

    def run(self, state: State) -> None:
        (target,), (value,) = self.makes, self.uses
        new, old = state[value], state.known.get(target.name)
        if old is not None:
            here = beside(state.active, new.values.shape[1:])
            values = np.where(here, new.values, old.values).astype(new.values.dtype)
            new = Known(values, None if new.exact and old.exact else np.where(here, new.slack, old.slack))
        state.known[target.name] = new

    def lines(self) -> Iterator[str]:
        yield self.text or f"{self.makes[0]} = {self.uses[0]}"


@dataclass(frozen=True, eq=False)
class Loop(Statement):
    """A loop of ``count`` turns from ``start`` in steps of ``step``, or, without ``index``, while ``going``."""

    header: str = ""
    index: Variable | None = None
    start: Variable | None = None
    count: Variable | None = None
    step: int = 1
    going: Callable[[State], Array] | None = None
    body: list[Statement] = field(default_factory=list)

    def run(self, state: State) -> None:
        outer, staying = state.active, state.staying
        state.staying = outer
        for turn in range(MOST_TURNS):
            state.active = state.staying & ~state.gone & self._goes_on(state, turn)
            if not state.active.any():
                break
            if self.index is not None and self.start is not None:
                index = state.number(self.start) + turn * self.step
                state.known[self.index.name] = Known(index.astype(np.int32))
            state.run(self.body)
        else:
            raise Discard("endless")
        state.active, state.staying = outer & ~state.gone, staying

    def _goes_on(self, state: State, turn: int) -> Array:
        if self.going is not None:
            return self.going(state)
        assert self.count is not None
        return turn < state.number(self.count)

    def lines(self) -> Iterator[str]:
        yield self.header
        yield from indented(self.body)

    @property
    def blocks(self) -> tuple[list[Statement], ...]:
        return (self.body,)

    def with_blocks(self, *blocks: list[Statement]) -> Statement:
        return replace(self, body=blocks[0])


@dataclass(frozen=True, eq=False)
class Branch(Statement):
    """``if uses[0]``; ``other``: what else, if it is not empty."""

    body: list[Statement] = field(default_factory=list)
    other: list[Statement] = field(default_factory=list)

    def run(self, state: State) -> None:
        outer, taken = state.active, state[self.uses[0]].values
        state.active = outer & taken
        state.run(self.body)
        left = state.active
        state.active = outer & ~taken
        state.run(self.other)
        state.active = left | state.active

    def lines(self) -> Iterator[str]:
        yield f"if {self.uses[0]}:"
        yield from indented(self.body)
        if self.other:
            yield "else:"
            yield from indented(self.other)

    @property
    def blocks(self) -> tuple[list[Statement], ...]:
        return (self.body, self.other)

    def with_blocks(self, *blocks: list[Statement]) -> Statement:
        return replace(self, body=blocks[0], other=blocks[1])


@dataclass(frozen=True, eq=False)
class Exit(Statement):
    """``if uses[0]: break``, ``continue`` or ``return``."""

    word: str = "break"

    def run(self, state: State) -> None:
        leaving = state[self.uses[0]].values & state.active
        state.active = state.active & ~leaving
        if self.word == "break":
            state.staying = state.staying & ~leaving
        elif self.word == "return":
            state.gone = state.gone | leaving

    def lines(self) -> Iterator[str]:
        yield f"if {self.uses[0]}:"
        yield f"    {self.word}"


def indented(block: Sequence[Statement]) -> Iterator[str]:
    """The lines of a block, in it."""
    lines = [line for statement in block for line in statement.lines()]
    for line in lines or ["pass"]:
        yield f"    {line}"
