"""Loops of chained products, turned so that one product of an iteration is done in the next one.

Attention multiplies queries by keys, takes exponents of the scores, and multiplies these by values. One after the
other, the tensor cores wait for the exponents. So the last product is left for the next iteration, where it does not
depend on the first one::

    s = dot(q, k[i])                      s = dot(q, k[0]); p, acc = exponents(s, acc)
    p, acc = exponents(s, acc)     ->     for i from 1 on:
    acc = dot(p, v[i], acc)                   s = dot(q, k[i]); acc = dot(p, v[i - 1], acc)
                                              p, acc = exponents(s, acc)
                                          acc = dot(p, v[-1], acc)

and both run while the exponents are computed (:mod:`.flight`). The first iteration stands before the loop, under the
condition that there is one, so all of its code is there twice: loops that cannot run long stay as they are
(:mod:`.trips`). Slots of rings are received and released where their product went; the producer fills them in the same
order as before: when the consumers come to wait for k[i + 1] they have released v[i - 1], so v[i], which stands before
it, finds room in any ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.core import Block, Effect, Function, Op, Value, uses
from ...options import Schedule
from ...tile import elementwise as ew
from ...tile.control import For, If, Yield
from ...tile.matmul import Dot
from ...tile.records import Record
from ...tile.shape import Permute
from ..asynchronous import Receive, Release, Slot
from ..streams.roles import consumer_registers
from .trips import most_trips

#: Registers of a thread that accumulators and operands leave to addresses and exponents.
_OTHER_REGISTERS = 40
#: What accumulators and operands take at most where the operand is of 8 bits: shuffles bring it to its place between
#: the products, for longer than these take. Seen on an H200: attention in tiles of 64 by 64 on four warps takes 0.94 to
#: 1.00 of its time, in tiles of 128 by 64, which are 144 registers, 1.3.
_REGISTERS_OF_8_BITS = 96
#: A loop that never runs longer stays as it is: little would overlap, and turned it has its products twice. Of causal
#: attention with 128 queries and 64 keys, whose second loop is that over the diagonal, it is a quarter of the code.
SHORT_TRIPS = 3


def rotate_loops(function: Function, schedule: Schedule) -> None:
    """Rotate the loops of ``function`` that end in such a product, in place."""
    readers = uses(function)
    replaced: dict[Value, Value] = {}
    for block in list(function.body.nest()):
        block.ops = [made for op in block.ops for made in _rotated(op, readers, schedule, replaced)]
    for op in function.body.walk():
        op.map_operands(lambda v: replaced.get(v, v))


def _rotated(op: Op, readers: dict[Value, list[Op]], schedule: Schedule, replaced: dict[Value, Value]) -> list[Op]:
    late = _find(op, readers) if isinstance(op, For) and not _is_short(op) else None
    if late is None or late.registers(32 * schedule.num_warps) > _most_registers(late, schedule):
        return [op]
    ops = _Rotation(late).run()
    replaced.update(zip(op.results, ops[-1].results, strict=True))
    return ops


def _most_registers(late: _Late, schedule: Schedule) -> int:
    return _REGISTERS_OF_8_BITS if late.dot.a.type.elem.bits == 8 else consumer_registers(schedule) - _OTHER_REGISTERS


def _is_short(loop: For) -> bool:
    trips = most_trips(loop)
    return trips is not None and trips <= SHORT_TRIPS


@dataclass(frozen=True)
class _Late:
    """The product of ``loop`` that can wait for the next iteration. ``ops``: itself and what receives and releases its
    slots; ``early``: what the first product of the iteration needs, and that; ``place``: of the result among what the
    loop carries."""

    loop: For
    dot: Dot
    first: Dot
    ops: list[Op]
    early: list[Op]
    place: int

    def registers(self, threads: int) -> int:
        """Of a thread, for both accumulators and for the left operand, of which there are two for a while."""
        operand = 2 * self.dot.a.type.size * self.dot.a.type.elem.bytes // 4
        return (self.dot.acc.type.size + self.first.acc.type.size + operand) // threads


def _find(loop: For, readers: dict[Value, list[Op]]) -> _Late | None:
    ops = loop.body.ops
    dots = [op for op in ops if isinstance(op, Dot)]
    end = loop.body.terminator
    if len(dots) != 2 or not isinstance(end, Yield) or readers.get(dots[1].result) != [end]:
        return None
    if any(isinstance(op, Record) for op in loop.body.walk()):  # the product would leave the scope that it is in
        return None
    first, last = dots
    around = _with_its_slot(last, ops, readers)
    if around is None:
        return None
    early = _needed_first(first, [op for op in ops if op not in around], set(loop.body.args[1:]))
    if early is None or not _depends(last.a, first, ops) or last.a.type.elem.bits > 16:
        return None
    return _Late(loop, last, first, around, early, end.values.index(last.result))


def _with_its_slot(dot: Dot, ops: Sequence[Op], readers: dict[Value, list[Op]]) -> list[Op] | None:
    """``dot`` with the operations around its right operand, a slot that nothing else reads; None if it is not one."""
    views: list[Op] = []
    made = dot.b.op
    while isinstance(made, Permute):
        views.append(made)
        made = made.x.op
    if not isinstance(made, Slot) or any(len(readers[v.results[0]]) != 1 for v in (*views, made)):
        return None
    pipe = made.pipe
    same = [op for op in ops if isinstance(op, Receive | Slot | Release) and op.pipe is pipe]
    alone = [type(op) for op in same] == [Receive, Slot, Release]
    return [op for op in ops if op in same or op in views or op is dot] if alone else None


def _needed_first(dot: Dot, ops: Sequence[Op], carried: set[Value]) -> list[Op] | None:
    """What has to run before the first product, and that; None if it depends on what the loop carries, or where
    anything before the product has an effect, with which others would change places."""
    at = ops.index(dot)
    needed: list[Op] = [dot]
    wanted = set(dot.operands)
    for op in reversed(ops[:at]):
        if op.effect not in (Effect.PURE, Effect.READ) and not isinstance(op, Receive):
            return None
        if wanted.intersection(op.results) or isinstance(op, Receive):
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


class _Rotation:
    def __init__(self, late: _Late) -> None:
        self.late = late
        self.loop = late.loop
        *ops, end = self.loop.body.ops
        self.rest = [op for op in ops if op not in late.ops and op not in late.early]
        self.leaving = list(end.operands)

    def run(self) -> list[Op]:
        """The condition and the branch that take the place of the loop."""
        loop, late = self.loop, self.late
        exists = ew.Compare(loop.lower, loop.upper, "lt")
        env = dict(zip(loop.body.args, (loop.lower, *loop.inits), strict=True))
        ops = [op.clone(env) for op in (*late.early, *self.rest)]
        second = ew.Add(loop.lower, loop.step)
        turned = For(second.result, loop.upper, loop.step, self._left(env), loop.num_stages, loop.unroll, self._body())
        turned.location = loop.location
        *results, operand = turned.results
        env = {late.dot.acc: results[late.place], late.dot.a: operand}
        last = [op.clone(env) for op in late.ops]
        results[late.place] = env[late.dot.result]
        then = Block(ops=[*ops, second, turned, *last, Yield(tuple(results))])
        return [exists, If(exists.result, then, Block(ops=[Yield(loop.inits)]))]

    def _body(self) -> Block:
        """The first product of this iteration, the last one of the iteration before, and the rest."""
        late, old = self.late, self.loop.body.args
        body = Block()
        env = {arg: body.add_argument(arg.type, arg.name) for arg in old}
        operand = body.add_argument(late.dot.a.type, late.dot.a.name)
        sums = old[1 + late.place]
        before = {late.dot.acc: env[sums], late.dot.a: operand}
        body.ops = [op.clone(env) for op in late.early] + [op.clone(before) for op in late.ops]
        env[sums] = before[late.dot.result]
        body.ops += [op.clone(env) for op in self.rest]
        body.ops.append(Yield(self._left(env)))
        return body

    def _left(self, env: dict[Value, Value]) -> tuple[Value, ...]:
        """What an iteration leaves for the next one: both operands of the product in place of its result."""
        values: list[Value] = [*self.leaving, self.late.dot.a]
        values[self.late.place] = self.late.dot.acc
        return tuple(env.get(v, v) for v in values)
