"""Backward slice of a loop's addresses: what has to run ahead of the rest for copies to be begun early."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from ...ir.core import Effect, Op, Value
from ...ir.slices import backward_slice
from ...tile.control import For, If, Yield
from ...tile.memory import Load
from ..arrays import Arrays
from ..layouts.costs import ARITHMETIC
from ..layouts.views import is_view


@dataclass(frozen=True, eq=False)
class Ahead:
    """``fetching``: what some values of an iteration are made of; ``carried``: the loop-carried values among that,
    which ``advancing`` takes to the next iteration. Operations are in the order of the loop's body."""

    loop: For
    fetching: list[Op]
    carried: list[Value]
    advancing: list[Op]

    @property
    def inits(self) -> tuple[Value, ...]:
        """The carried values of the first iteration."""
        return tuple(self.loop.inits[value.index - 1] for value in self.carried)

    @property
    def branches(self) -> bool:
        """Whether a branch decides both where an iteration reads and what becomes of the next one: better done once."""
        advancing = set(self.advancing)
        return any(isinstance(op, If) and op in advancing for op in self.fetching)

    def advance(self, env: dict[Value, Value]) -> list[Op]:
        """The operations that make the next iteration's values from those in ``env``; they are added to it, and what
        was made on the way."""
        ops = [op.clone(env) for op in self.advancing]
        env.update({value: env.get(v, v) for value, v in zip(self.carried, self._following(), strict=True)})
        return ops

    def fetch(self, env: dict[Value, Value]) -> list[Op]:
        """The operations that make the wanted values from those in ``env``, less what it has from advancing; what they
        make is added to it."""
        return [op.clone(env) for op in self.fetching if not all(value in env for value in op.results)]

    def _following(self) -> list[Value]:
        end = self.loop.body.terminator
        values = end.values if isinstance(end, Yield) else ()
        return [values[value.index - 1] for value in self.carried]


def run_ahead(loop: For, wanted: Sequence[Value], arrays: Arrays, tables: Set[Op] = frozenset()) -> Ahead | None:
    """What ``wanted`` values of the loop's body are made of, if that can run ahead of the rest of it.

    None if they depend on numbers in memory that the loop changes, or on loops inside it. Numbers in other arrays, such
    as a table of pages, are read ahead of time; what is carried from iteration to iteration, and what branches choose,
    follows from arithmetic alone, and from ``tables``, loads that read nothing of iterations that do not exist.
    """
    written = arrays.written(loop.body)
    end = loop.body.terminator
    fetching = _slice(loop, wanted)
    if fetching is None or not all(_is_steady(op, arrays, written) for op in fetching):
        return None
    carried: list[Value] = []
    advancing: set[Op] = set()
    found = _carried(loop, wanted, fetching)
    while found:
        carried += found
        following = [end.values[value.index - 1] for value in found] if isinstance(end, Yield) else []
        more = _slice(loop, following)
        if more is None or not all(op in tables or _is_address(op) for op in more):
            return None
        advancing |= more
        found = [value for value in _carried(loop, following, more) if value not in carried]
    body = loop.body.ops
    return Ahead(loop, [op for op in body if op in fetching], carried, [op for op in body if op in advancing])


def _slice(loop: For, wanted: Sequence[Value]) -> set[Op] | None:
    """The operations of the body that ``wanted`` are made of; None if there are loops among them."""
    needed = backward_slice(wanted, loop.body.ops)
    return None if any(op.blocks and not isinstance(op, If) for op in needed) else needed


def _carried(loop: For, wanted: Sequence[Value], ops: set[Op]) -> list[Value]:
    """The loop-carried values among ``wanted`` and what ``ops`` read."""
    read = {*wanted, *(value for op in ops for value in op.reads)}
    return [value for value in loop.carried if value in read]


def _is_steady(op: Op, arrays: Arrays, written: set[Value | None]) -> bool:
    """Whether ``op`` computes, or reads what stays the same while the loop runs, as far as the kernel writes it."""
    if not isinstance(op, Load):
        return _is_address(op)
    return not op.is_awaited and may_precede(arrays.of(op.pointer), written)


def _is_address(op: Op) -> bool:
    """Whether ``op`` is scalar code, arithmetic of a tile's addresses or a choice between such: it is done twice where
    others need it, too."""
    if isinstance(op, If):
        return all(isinstance(inner, Yield) or _is_address(inner) for block in op.blocks for inner in block.ops)
    if op.effect is not Effect.PURE:
        return False
    return type(op) in ARITHMETIC or is_view(op) or not any(v.type.rank for v in (*op.operands, *op.results))


def may_precede(array: Value | None, written: set[Value | None]) -> bool:
    """Whether reading ``array`` may change places with writing the arrays in ``written``; None stands for any."""
    return not written or (array is not None and None not in written and array not in written)
