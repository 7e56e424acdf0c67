"""Loop unrolling: short loops without their turns, as loads that are on their way together are one wait for memory.

A loop that is known to run a few times leaves none, whether it records or not. Of one that only loads and computes,
``GROUP`` iterations become one turn, and the loads of those that there are not any more are masked off::

    for i in range(lower, upper, step):          for turn in range(turns):
        total += load(x + i)                         i = lower + turn * GROUP * step
                                                     first = total + load(x + i)
                                                     exists = upper - i > step
                                                     second = first + load(x + i + step, mask=exists)
                                                     ...
                                                     total = second if exists else first

So the last turn, often the only one, does not wait for its loads one after the other, as a loop over the rest would.
Short branches of such loops become straight code first (:mod:`.branches`).
"""

from __future__ import annotations

from ...ir.core import Block, Function, Op, Value
from ...ir.types import SCALARS, Scalar, Tile
from ...tile import elementwise as ew
from ...tile.control import For, Yield
from ...tile.passes.numbers import known_number, known_trips
from ...tile.passes.unroll import copies_of
from ...tile.records import Record
from ..ops import VectorLoad, VectorStore
from .branches import is_short, spread, straighten
from .plain import is_plain

#: Iterations of a turn.
GROUP = 4
#: Most registers that the operations of a body write if its iterations are grouped: a thread has one or two elements.
#: Those of longer ones have enough loads.
MOST_GROUPED = 48
#: The same for all iterations of a loop that disappears.
MOST_UNROLLED = 256
#: The same, and how often it may run, where iterations load and store: an assembler that sees all addresses begins the
#: loads of later ones before the stores of earlier ones. Sums of eight states that replace each other take 0.3 of the
#: time (benchmarks/results/2026-11-30-h200-loads).
MOST_STORING, MOST_STORING_TRIPS = 2048, 16


def unroll_short_loops(function: Function) -> None:
    """Unroll the loops of ``function`` for which it pays, in place; layouts are chosen."""
    _Unrolling(function).block(function.body)


class _Unrolling:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.replaced: dict[Value, Value] = {}

    def block(self, block: Block) -> None:
        """Unroll the loops in ``block``, inner ones first."""
        out: list[Op] = []
        for op in block.ops:
            op.replace_operands(self.replaced)
            for nested in op.blocks:
                self.block(nested)
            made = self._in_place_of(op, out) if isinstance(op, For) else None
            if made is None:
                out.append(op)
            else:
                self.replaced.update(zip(op.results, made, strict=True))
        block.ops = out

    def _in_place_of(self, loop: For, out: list[Op]) -> tuple[Value, ...] | None:
        """What stands for the results of ``loop``, once what stands for the loop is in ``out``; None: it stays."""
        branches = [op for op in loop.body.ops if not is_plain(op)]
        if not all(is_short(op) for op in branches):
            return None
        size, trips = sum(map(_size, loop.body.nest())), known_trips(loop)
        if branches:
            stay = size > MOST_GROUPED or (known_number(loop.step) or 0) <= 0
            if stay or any(isinstance(op, VectorStore | Record) for op in loop.body.ops):
                return None
            self.replaced |= straighten(loop)
        loads = any(isinstance(op, VectorLoad) for op in loop.body.ops)
        stores = any(isinstance(op, VectorStore) for op in loop.body.ops)
        if trips is not None:
            most = MOST_STORING if loads and stores and trips <= MOST_STORING_TRIPS else MOST_UNROLLED
            if trips * size <= most:
                return _Turns(loop, out).all(trips)
        writes = stores or any(isinstance(op, Record) for op in loop.body.ops)
        if not loads or writes or size > MOST_GROUPED or (known_number(loop.step) or 0) <= 0:
            return None
        return _Turns(loop, out).grouped(whole=trips is not None and trips % GROUP == 0)


def _size(body: Block) -> int:
    """Registers that the operations of ``body`` write."""
    made = (value.type for op in body.ops for value in op.results if not isinstance(op, ew.Constant))
    return sum(type.layout.registers if type.layout is not None else 1 for type in made)


def _unsigned(scalar: Scalar) -> Scalar:
    return SCALARS[f"u{scalar.bits}"]


class _Turns:
    """Writes what stands for ``loop`` into ``out``."""

    def __init__(self, loop: For, out: list[Op]) -> None:
        self.loop = loop
        self.out = out
        self.type = loop.lower.type
        self.step = known_number(loop.step) or 0

    def all(self, trips: int) -> tuple[Value, ...]:
        """All iterations one after the other."""
        first = known_number(self.loop.lower) or 0
        indices = [self._constant(first + i * self.step, self.type) for i in range(trips)]
        return copies_of(self.loop.body, indices, self.loop.inits, self.out)

    def grouped(self, *, whole: bool) -> tuple[Value, ...]:
        """Turns of GROUP iterations; ``whole``: the last one is not cut short."""
        loop, outside = self.loop, self.out
        distance = GROUP * self.step
        length = self._length()
        span = self._constant(distance, length.type)
        rest = self._add(ew.Compare(self._add(ew.Rem(length, span)), self._constant(0, length.type), "gt"))
        turns = self._add(ew.Add(self._add(ew.IntDiv(length, span)), self._as(rest, length.type)))
        zero, one = self._constant(0, length.type), self._constant(1, length.type)

        body = Block()
        turn = body.add_argument(length.type, "turn")
        carried = tuple(body.add_argument(value.type, value.name) for value in loop.carried)
        self.out = body.ops
        done = self._add(ew.Mul(turn, span))
        start = self._add(ew.Add(loop.lower, self._as(done, self.type)))
        left = self._add(ew.Sub(length, done))
        self._add_yield(self._turn(start, None if whole else left, carried))
        made = For(zero, turns, one, loop.inits, loop.num_stages, unroll=1, body=body)
        made.location = loop.location
        self.out = outside
        self.out.append(made)
        return made.results

    def _turn(self, start: Value, left: Value | None, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        """The iterations from index ``start`` on; ``left``: how far it is to the end, None if farther than a turn."""
        kept: tuple[Value, ...] = ()
        for place in range(GROUP):
            distance = place * self.step
            index = self._add(ew.Add(start, self._constant(distance, self.type))) if place else start
            # Where this iteration does not exist those after it do not either: they may go on from what it makes.
            exists = None
            if place and left is not None:
                exists = self._add(ew.Compare(left, self._constant(distance, left.type), "gt"))
            first = len(self.out)
            carried = copies_of(self.loop.body, [index], carried, self.out)
            if exists is None:
                kept = carried
                continue
            self._mask(first, exists)
            kept = tuple(self._chosen(exists, new, old) for new, old in zip(carried, kept, strict=True))
        return kept

    def _chosen(self, exists: Value, new: Value, old: Value) -> Value:
        return new if new is old else self._add(ew.Select(self._spread(exists, new.type), new, old))

    def _mask(self, first: int, exists: Value) -> None:
        """Mask the loads behind place ``first`` with ``exists``."""
        added, self.out[first:] = self.out[first:], []
        for op in added:
            if isinstance(op, VectorLoad):
                mask = self._spread(exists, op.pointer.type)
                op.mask = mask if op.mask is None else self._add(ew.And(op.mask, mask))
            self.out.append(op)

    def _spread(self, flag: Value, like: Tile) -> Value:
        return spread(flag, like, self._add)

    def _length(self) -> Value:
        """From the lower to the upper bound, 0 if that is not above: an unsigned number, which does not overflow."""
        loop = self.loop
        apart = self._add(ew.Sub(loop.upper, loop.lower))
        runs = self._add(ew.Compare(loop.lower, loop.upper, "lt"))
        length = self._add(ew.Select(runs, apart, self._constant(0, self.type)))
        return self._as(length, self.type.with_elem(_unsigned(self.type.scalar)))

    def _constant(self, value: int, type: Tile) -> Value:
        return self._add(ew.Constant(value, type))

    def _as(self, value: Value, type: Tile) -> Value:
        return value if value.type == type else self._add(ew.Cast(value, type.elem))

    def _add(self, op: Op) -> Value:
        op.location = self.loop.location
        self.out.append(op)
        return op.results[0]

    def _add_yield(self, values: tuple[Value, ...]) -> None:
        end = Yield(values)
        end.location = self.loop.location
        self.out.append(end)
