"""Structured control flow. Values that change in a region are carried explicitly; regions end in ``yield``.

What hands values on says itself which, and what decides where it goes, for passes to follow: ``handed_together`` and
``deciding`` of ``for``, ``while`` and ``if``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.core import Block, Effect, Op, Value
from ..ir.types import I1, Tile


class Yield(Op, mnemonic="yield", effect=Effect.TERMINATOR):
    """Hands values to the enclosing operation."""

    values: tuple[Value, ...]


class Condition(Op, mnemonic="condition", effect=Effect.TERMINATOR):
    """Ends the ``before`` region of a while loop: go on if ``condition``; ``values`` go to the body or out."""

    condition: Value
    values: tuple[Value, ...]

    def infer(self) -> tuple[Tile, ...]:
        """No results. The condition is a scalar i1, else TypeMismatch."""
        if self.condition.type != Tile(I1):
            raise self.fail("the condition must be a scalar i1")
        return ()


def _types(values: tuple[Value, ...] | list[Value]) -> tuple[Tile, ...]:
    return tuple(v.type for v in values)


def handed_on(block: Block) -> tuple[Value, ...]:
    """What a block of a loop or branch gives to its next iteration, or as results; nothing where it ends otherwise."""
    end = block.terminator
    return end.values if isinstance(end, Yield | Condition) else ()


def _yielded(block: Block) -> tuple[Tile, ...]:
    return _types(handed_on(block))


class For(Op, mnemonic="for", effect=Effect.CONTROL):
    """for i in range(lower, upper, step), with loop-carried values.

    ``body`` takes (i, carried...) and yields the next carried values; the results are the last ones. ``num_stages``
    (0: the kernel's) and ``unroll`` (1: none) are the author's schedule hints.
    """

    lower: Value
    upper: Value
    step: Value
    inits: tuple[Value, ...]
    num_stages: int
    unroll: int
    body: Block

    def infer(self) -> tuple[Tile, ...]:
        """Results have the types of ``inits``; bounds and step are scalars of one integer type, which is the index's.

        Raises TypeMismatch where the body takes or yields other types.
        """
        bound = self.lower.type
        if bound.rank or not bound.is_integer or {bound, self.upper.type, self.step.type} != {bound}:
            raise self.fail("bounds and step must be scalars of one integer type")
        carried = _types(self.inits)
        if _types(self.body.args) != (bound, *carried):
            raise self.fail("the body must take the index and the carried values")
        if _yielded(self.body) != carried:
            raise self.fail("the body must yield the carried types")
        return carried

    @property
    def carried(self) -> tuple[Value, ...]:
        """What an iteration begins with, in the order of ``inits``."""
        return tuple(self.body.args[1:])

    @property
    def leaving(self) -> tuple[Value, ...]:
        """What becomes the results when there is no further iteration."""
        return self.carried

    @property
    def handed_together(self) -> list[tuple[Value, ...]]:
        """For each result: itself, and all values that are handed on in its place."""
        return list(zip(self.results, self.inits, self.carried, handed_on(self.body), strict=True))

    @property
    def deciding(self) -> tuple[Value, ...]:
        """What decides how often the body runs."""
        return self.lower, self.upper, self.step

    def carrying(self, inits: Iterable[Value], following: Iterable[Value]) -> For:
        """A loop in place of this one that carries more values, the last arguments of the body, which has them already:
        ``inits`` at first, then what ``following`` were. It takes over the body; its first results are this one's."""
        (*ops, _) = self.body.ops
        self.body.ops = [*ops, Yield((*handed_on(self.body), *following))]
        made = For(self.lower, self.upper, self.step, (*self.inits, *inits), self.num_stages, self.unroll, self.body)
        made.location = self.location
        return made


class If(Op, mnemonic="if", effect=Effect.CONTROL):
    """One of two regions by a scalar i1; both yield the results."""

    condition: Value
    then: Block
    otherwise: Block

    def infer(self) -> tuple[Tile, ...]:
        """Results have the types that both regions yield.

        Raises TypeMismatch where they differ, or where the condition is no scalar i1.
        """
        if self.condition.type != Tile(I1):
            raise self.fail("the condition must be a scalar i1")
        if _yielded(self.then) != _yielded(self.otherwise):
            raise self.fail("both branches must yield the same types")
        return _yielded(self.then)

    @property
    def handed_together(self) -> list[tuple[Value, ...]]:
        """For each result: itself, and what either region yields for it."""
        return list(zip(self.results, handed_on(self.then), handed_on(self.otherwise), strict=True))

    @property
    def deciding(self) -> tuple[Value, ...]:
        """What decides which region runs."""
        return (self.condition,)


class While(Op, mnemonic="while", effect=Effect.CONTROL):
    """``before`` takes the carried values and ends in ``condition``; ``body`` takes them and yields the next ones."""

    inits: tuple[Value, ...]
    before: Block
    body: Block

    def infer(self) -> tuple[Tile, ...]:
        """Results have the types of ``inits``, which both regions take and hand on, else TypeMismatch."""
        carried = _types(self.inits)
        regions = (self.before, self.body)
        if any(_types(b.args) != carried or _yielded(b) != carried for b in regions):
            raise self.fail("both regions must take and yield the carried types")
        return carried

    @property
    def carried(self) -> tuple[Value, ...]:
        """What an iteration begins with, in the order of ``inits``."""
        return tuple(self.before.args)

    @property
    def leaving(self) -> tuple[Value, ...]:
        """What becomes the results when there is no further iteration, or goes to the body."""
        return handed_on(self.before)

    @property
    def handed_together(self) -> list[tuple[Value, ...]]:
        """For each result: itself, and all values that are handed on in its place."""
        taken = (self.inits, self.before.args, self.body.args)
        return list(zip(self.results, *taken, handed_on(self.before), handed_on(self.body), strict=True))

    @property
    def deciding(self) -> tuple[Value, ...]:
        """What decides how often the body runs: the condition."""
        end = self.before.terminator
        return (end.condition,) if isinstance(end, Condition) else ()
