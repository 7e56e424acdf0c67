"""Software pipelining of products: loops of chained ones, turned so that one is done in the next iteration.

Attention multiplies queries by keys, takes exponents of the scores, and multiplies these by values. One after the
other, the tensor cores wait for the exponents. So the last product is left for the next iteration, where it does not
depend on the first one::

    s = dot(q, k[i])                      s = dot(q, k[0]); p, acc = exponents(s, acc)
    p, acc = exponents(s, acc)     ->     for i from 1 on:
    acc = dot(p, v[i], acc)                   s = dot(q, k[i]); acc = dot(p, v[i - 1], acc)
                                              p, acc = exponents(s, acc)
                                          acc = dot(p, v[-1], acc)

and both run while the exponents are computed (:mod:`.flight`). A product whose right operand threads make, as of
weights of few bits, is left for the next iteration likewise, and the operand of that one is made under it::

    w = cast(weights[i])                  w' = cast(weights[0])
    acc = dot(x[i], w, acc)        ->     for i from 1 on:
                                              acc = dot(x[i - 1], w', acc); w' = cast(weights[i])
                                          acc = dot(x[-1], w', acc)

It is written to a ring of two slots: one that the product reads, and one for the next. Threads wait for each other once
in an iteration, between the products. The first iteration stands before the loop, under the
condition that there is one, so all of its code is there twice: loops that cannot run long stay as they are
(:mod:`.trips`). Slots of rings are received and released where their product went; the producer fills them in the same
order as before: when the consumers come to wait for k[i + 1] they have released v[i - 1], so v[i], which stands before
it, finds room in any ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...hardware import REGISTER_BITS, threads_of
from ...ir.core import Block, Effect, Function, Op, Value, uses
from ...ir.types import Tile
from ...layout import SharedLayout
from ...options import Schedule
from ...tile import elementwise as ew
from ...tile.control import For, If, Yield
from ...tile.matmul import Dot
from ...tile.records import Record
from ...tile.shape import Permute
from ..asynchronous import Advance, Deposit, Pipe, Receive, Release, RingBuffer, Slot
from ..estimates import ROTATED_OTHER_REGISTERS, ROTATED_REGISTERS_OF_8_BITS
from ..layouts.coalesce import order_in_shared_memory
from ..layouts.views import unpermuted
from ..streams.rings import ring_tile
from ..streams.roles import consumer_registers
from .trips import most_trips

#: A loop that never runs longer stays as it is: little would overlap, and turned it has its products twice. Of causal
#: attention with 128 queries and 64 keys, whose second loop is that over the diagonal, it is a quarter of the code.
SHORT_TRIPS = 3
#: One that a product reads, and one that threads write meanwhile.
OPERAND_SLOTS = 2


def rotate_loops(function: Function, schedule: Schedule) -> None:
    """Rotate the loops of ``function`` that end in such a product, in place."""
    for op in function.walk():
        if isinstance(op, Slot):  # what is computed from it does not lie where it does
            op.result.type = op.result.type.with_layout(None)
    readers = uses(function)
    replaced: dict[Value, Value] = {}
    memory: list[Op] = []
    for block in list(function.body.nest()):
        block.ops = [made for op in block.ops for made in _rotated(op, readers, schedule, replaced, memory)]
    function.body.ops[:0] = memory
    for op in function.walk():
        op.replace_operands(replaced)
        if isinstance(op, Slot):
            op.result.type = op.ring.type


def _rotated(
    op: Op, readers: dict[Value, list[Op]], schedule: Schedule, replaced: dict[Value, Value], memory: list[Op]
) -> list[Op]:
    late = _find(op, readers) if isinstance(op, For) and not _is_short(op) else None
    if late is None or late.registers(threads_of(schedule.num_warps)) > _most_registers(late, schedule):
        return [op]
    memory += late.memory
    ops = _Rotation(late).run()
    replaced.update(zip(op.results, ops[-1].results, strict=True))
    return ops


def _most_registers(late: _Late, schedule: Schedule) -> int:
    if late.dot.a.type.elem.bits == 8:
        return ROTATED_REGISTERS_OF_8_BITS
    return consumer_registers(schedule) - ROTATED_OTHER_REGISTERS


def _is_short(loop: For) -> bool:
    trips = most_trips(loop)
    return trips is not None and trips <= SHORT_TRIPS


@dataclass(frozen=True)
class _Late:
    """The product of ``loop`` that can wait for the next iteration, ``place`` that of its result among what the loop
    carries. ``ops``: itself and what receives and releases its slots; ``early``: what comes first in an iteration;
    ``sums``: elements of the accumulators that are in use then; ``operand``: what the iteration makes for the product.
    That is handed on in registers, or lies in a ``slot``: then the product leads, and what is early is done under it.
    """

    loop: For
    dot: Dot
    ops: list[Op]
    early: list[Op]
    place: int
    sums: int
    operand: Value
    slot: Slot | None = None

    @property
    def handed_on(self) -> tuple[Value, ...]:
        return (self.operand,) if self.slot is None else ()

    @property
    def memory(self) -> tuple[Op, ...]:
        """What makes the slot's ring and pipe."""
        made = () if self.slot is None else (self.slot.pipe.op, self.slot.ring.op)
        return tuple(op for op in made if op is not None)

    def registers(self, threads: int) -> int:
        """Of a thread, for the accumulators and for the operand, of which there are two for a while where it is handed
        on in registers."""
        operand = (1 + len(self.handed_on)) * self.operand.type.size * self.operand.type.elem.bits // REGISTER_BITS
        return (self.sums + operand) // threads


def _find(loop: For, readers: dict[Value, list[Op]]) -> _Late | None:
    dots = [op for op in loop.body.ops if isinstance(op, Dot)]
    end = loop.body.terminator
    if not dots or not isinstance(end, Yield) or readers.get(dots[-1].result) != [end]:
        return None
    if any(isinstance(op, Record) for op in loop.body.walk()):  # the product would leave the scope that it is in
        return None
    place = end.values.index(dots[-1].result)
    match dots:
        case [first, last]:
            return _chained(loop, first, last, place, readers)
        case [dot]:
            return _prepared(loop, dot, place, readers)
    return None


def _chained(loop: For, first: Dot, last: Dot, place: int, readers: dict[Value, list[Op]]) -> _Late | None:
    """The second of two products, if its left operand is made of the result of the first one."""
    ops = loop.body.ops
    around = _with_its_slot(last, last.b, ops, readers)
    if around is None:
        return None
    rest = [op for op in ops if op not in around]
    needed = _needed(first.operands, rest[: rest.index(first)], set(loop.carried))
    if needed is None or not _depends(last.a, first, ops) or last.a.type.elem.bits > 16:
        return None
    sums = first.acc.type.size + last.acc.type.size
    return _Late(loop, last, around, [*needed, first], place, sums, last.a)


def _prepared(loop: For, dot: Dot, place: int, readers: dict[Value, list[Op]]) -> _Late | None:
    """The only product, if threads make its right operand of what lies in rings, as of weights of few bits."""
    ops, carried = loop.body.ops, loop.carried
    around = _with_its_slot(dot, dot.a, ops, readers)
    operand = unpermuted(dot.b)
    if around is None or dot.acc is not carried[place] or len(readers[dot.acc]) != 1:
        return None
    views = [op for op in ops if isinstance(op, Permute) and unpermuted(op.result) is operand]
    before = [op for op in ops[: ops.index(dot)] if op not in around and op not in views]
    needed = _needed([operand], before, {dot.acc})
    tile = None if needed is None else _ring_of(operand.type, needed)
    if needed is None or tile is None or any(reader not in (dot, *views) for reader in readers[operand]):
        return None
    ring, pipe = RingBuffer(tile, OPERAND_SLOTS).result, Pipe(OPERAND_SLOTS, 0, "threads").result
    slot = Slot(ring, pipe)
    released = [op for op in needed if isinstance(op, Release)]
    made = [op for op in needed if op not in released]
    early = [*made, Deposit(ring, pipe, operand), Advance(pipe), *released]
    late = [Receive(pipe), slot, *views, *around, Release(pipe)]
    return _Late(loop, dot, late, early, place, dot.acc.type.size, operand, slot)


def _ring_of(operand: Tile, needed: Sequence[Op]) -> Tile | None:
    """The place in a ring of an operand of 16 bits, neighbours where those of the slot are that it is made of, also
    where that has packed numbers, which are fewer."""
    slots = [op for op in reversed(needed) if isinstance(op, Slot | Permute)]
    places = [(op.result.type, place) for op in slots if (place := _place_of(op.result)) is not None]
    alike = [(tile, place) for tile, place in places if place.shape == operand.shape]
    found = alike or [(tile, place) for tile, place in places if len(place.shape) == operand.rank]
    if not found or operand.elem.bits != 16:
        return None
    return ring_tile(operand, order_in_shared_memory(*found[0]).axis)


def _place_of(value: Value) -> SharedLayout | None:
    """Where the slot lies that ``value`` is a view of; None if it is none."""
    match value.op:
        case Slot(ring=ring):
            return ring.type.shared
        case Permute(x=x, order=order):
            seen = _place_of(x)
            return None if seen is None else seen.permute(order)
    return None


def _with_its_slot(dot: Dot, operand: Value, ops: Sequence[Op], readers: dict[Value, list[Op]]) -> list[Op] | None:
    """``dot`` with the operations around ``operand``, a slot that nothing else reads; None if it is not one."""
    views: list[Op] = []
    made = operand.op
    while isinstance(made, Permute):
        views.append(made)
        made = made.x.op
    if not isinstance(made, Slot) or any(len(readers[v.results[0]]) != 1 for v in (*views, made)):
        return None
    pipe = made.pipe
    same = [op for op in ops if isinstance(op, Receive | Slot | Release) and op.pipe is pipe]
    alone = [type(op) for op in same] == [Receive, Slot, Release]
    return [op for op in ops if op in same or op in views or op is dot] if alone else None


def _needed(values: Sequence[Value], before: Sequence[Op], carried: set[Value]) -> list[Op] | None:
    """What of the operations ``before`` a product has to run for these operands of it; None if that depends on what is
    ``carried``, or where anything has an effect, with which others would change places."""
    needed: list[Op] = []
    wanted = set(values)
    for op in reversed(before):
        if op.effect not in (Effect.PURE, Effect.READ) and not isinstance(op, Receive | Release):
            return None
        if wanted.intersection(op.results) or isinstance(op, Receive | Release):
            needed.append(op)
            wanted |= op.reads
    return None if wanted & carried else needed[::-1]


def _depends(value: Value, dot: Dot, ops: Sequence[Op]) -> bool:
    """Whether ``value`` is computed from the result of ``dot``."""
    reached = {dot.result}
    for op in ops:
        if reached & op.reads:
            reached.update(op.results)
    return value in reached


def _copies(ops: Sequence[Op], env: dict[Value, Value]) -> list[Op]:
    """Copies with results of the same types."""
    made = []
    for op in ops:
        copy = op.clone(env)
        for old, new in zip(op.results, copy.results, strict=True):
            new.type = old.type
        made.append(copy)
    return made


class _Rotation:
    def __init__(self, late: _Late) -> None:
        self.late = late
        self.loop = late.loop
        *ops, end = self.loop.body.ops
        self.rest = [op for op in ops if op not in late.ops and op not in late.early]
        self.leaving = list(end.operands)
        if late.slot is not None:
            late.slot.result.type = late.operand.type
            seen = {late.operand: late.slot.result}
            for op in late.ops:
                op.replace_operands(seen)

    def run(self) -> list[Op]:
        """The condition and the branch that take the place of the loop."""
        loop, late = self.loop, self.late
        exists = ew.Compare(loop.lower, loop.upper, "lt")
        env = dict(zip(loop.body.args, (loop.lower, *loop.inits), strict=True))
        ops = _copies([*late.early, *self.rest], env)
        second = ew.Add(loop.lower, loop.step)
        turned = For(second.result, loop.upper, loop.step, self._left(env), loop.num_stages, loop.unroll, self._body())
        turned.location = loop.location
        count = len(loop.results)
        results = list(turned.results[:count])
        env = {late.dot.acc: results[late.place], **dict(zip(late.handed_on, turned.results[count:], strict=True))}
        last = _copies(late.ops, env)
        results[late.place] = env[late.dot.result]
        then = Block(ops=[*ops, second, turned, *last, Yield(tuple(results))])
        return [exists, If(exists.result, then, Block(ops=[Yield(loop.inits)]))]

    def _body(self) -> Block:
        """What this iteration does early, the last product of the iteration before, and the rest."""
        late, old = self.late, self.loop.body.args
        body = Block()
        env = {arg: body.add_argument(arg.type, arg.name) for arg in old}
        sums = old[1 + late.place]
        before = {late.dot.acc: env[sums], **{v: body.add_argument(v.type, v.name) for v in late.handed_on}}
        parts = [_copies(late.early, env), _copies(late.ops, before)]
        body.ops = [op for part in (parts if late.slot is None else parts[::-1]) for op in part]
        env[sums] = before[late.dot.result]
        body.ops += _copies(self.rest, env)
        body.ops.append(Yield(self._left(env)))
        return body

    def _left(self, env: dict[Value, Value]) -> tuple[Value, ...]:
        """What an iteration leaves for the next one: operands of the product in place of its result."""
        values: list[Value] = [*self.leaving, *self.late.handed_on]
        values[self.late.place] = self.late.dot.acc
        return tuple(env.get(v, v) for v in values)
