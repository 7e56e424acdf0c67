"""The scalars that polynomials are made of, by number."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Block, Function, Op, Value
from .. import elementwise as e
from ..control import For, While
from .polynomial import Polynomial, number, unknown

#: Operations on scalars that a launcher can repeat on the arguments.
_HOST = (e.Add, e.Sub, e.Mul, e.IntDiv, e.Min, e.Max, e.Neg, e.Cast, e.Hint, e.Constant)


@dataclass(frozen=True, eq=False)
class Trips:
    """How many iterations of ``loop`` have ended: so far, or in all. Never negative."""

    loop: For
    all: bool = False


#: A scalar; a loop and whether all its iterations are meant; an unknown as it was before loops went on.
_Key = Value | tuple[For, bool] | tuple[int, For | While]


class Unknowns:
    """Numbers scalars and trip counts of one function, and knows where they come from."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.parameters = {p.value: p.name for p in function.parameters}
        self.loops: dict[Block, For] = {}
        self._held: list[Value | Trips] = []
        self._numbers: dict[_Key, int] = {}
        self._homes: dict[Value, Block] = {}
        self._around: dict[Block, Block] = {}
        self._host: dict[Value, bool] = {}
        self._enter(function.body)

    def _enter(self, block: Block) -> None:
        self._homes.update(dict.fromkeys(block.args, block))
        for op in block.ops:
            self._homes.update(dict.fromkeys(op.results, block))
            for nested in op.blocks:
                self._around[nested] = block
                self._enter(nested)
            if isinstance(op, For):
                self.loops[op.body] = op

    def __getitem__(self, index: int) -> Value | Trips:
        """What the unknown ``index`` is; it is no coordinate, so not below zero."""
        return self._held[index]

    def scalar(self, value: Value) -> Polynomial:
        """The unknown that stands for a scalar integer."""
        bits = value.type.scalar.bits
        return unknown(self._number(value, value), bits > 32)

    def trips(self, loop: For) -> Polynomial:
        """The unknown that stands for the iterations of ``loop`` that have ended."""
        return unknown(self._number((loop, False), Trips(loop)))

    def all_trips(self, loop: For) -> Polynomial:
        """The unknown that stands for all iterations of ``loop``, which has ended."""
        return unknown(self._number((loop, True), Trips(loop, all=True)))

    def _number(self, key: _Key, held: Value | Trips) -> int:
        found = self._numbers.setdefault(key, len(self._held))
        if found == len(self._held):
            self._held.append(held)
        return found

    def loop_of_index(self, value: Value) -> For | None:
        """The loop that counts in ``value``, if one does."""
        loop = self.loops.get(value.owner) if isinstance(value.owner, Block) else None
        return loop if loop is not None and value is loop.body.args[0] else None

    def adopt(self, op: Op, beside: Op) -> None:
        """``op``, which is new, will stand where ``beside`` stands."""
        home = self._homes[beside.results[0]]
        self._homes.update(dict.fromkeys(op.results, home))

    def changes_in(self, polynomial: Polynomial, loop: For) -> bool:
        """Whether an unknown is defined inside ``loop``; its own trip count is."""
        return any(self.is_inside(self._held[u], loop) for u in polynomial.unknowns if u >= 0)

    def is_inside(self, held: Value | Trips, loop: For | While) -> bool:
        """Whether ``held`` may be something else in each iteration of ``loop``."""
        if isinstance(held, Value):
            block = self._homes[held]
        else:
            block = self._around[held.loop.body] if held.all else held.loop.body
        return self._is_in(block, loop)

    def _is_in(self, block: Block | None, loop: For | While) -> bool:
        while block is not None and block not in loop.blocks:
            block = self._around.get(block)
        return block is not None

    def in_earlier_iterations(self, polynomial: Polynomial, loop: For | While | None) -> Polynomial:
        """``polynomial`` as it was before ``loop`` went on: unknowns of its own for what the loop changes, and its trip
        count by one and another unknown less."""
        if loop is None:
            return polynomial
        names = {}
        for index in polynomial.unknowns:
            held = self._held[index] if index >= 0 else None
            if held is None or not self.is_inside(held, loop):
                continue
            earlier = names[index] = self._number((index, loop), held)
            if isinstance(held, Trips) and held.loop is loop and not held.all:
                since = number(-1) - unknown(earlier)
                polynomial = polynomial.with_value(index, unknown(index) + since)
                del names[index]
        return polynomial.renamed(names)

    def is_host(self, index: int) -> bool:
        """Whether a launcher can compute the unknown from the arguments."""
        held = self._held[index] if index >= 0 else None
        return isinstance(held, Value) and self._from_arguments(held)

    def _from_arguments(self, value: Value) -> bool:
        if value in self.parameters or value.type.rank or value.op is None:
            return value in self.parameters
        known = self._host.get(value)
        if known is None:
            op = value.op
            known = isinstance(op, _HOST) and value.type.is_integer and all(map(self._from_arguments, op.operands))
            self._host[value] = known
        return known
