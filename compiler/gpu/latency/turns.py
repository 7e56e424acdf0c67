"""Ping-pong scheduling: of two warp groups, one has the tensor cores while the other one computes.

Both groups of a CTA run the same loop. In a rotated one (:mod:`.rotation`) each begins both products, and computes
exponents until the loop comes round. Left to themselves they may do so one behind the other, each computing under the
other's products, or in step, waiting for the tensor cores together; which of the two depends on how they started. So
where products take longer than what is between them, groups take turns: each begins its products behind the other's.

Where products are the shorter part, and in other loops, each group is left to itself, but is made to compute under its
own products: a wait stays where it is, behind the exponents. ptxas moves a wait up to where it is ready to run, past
anything but a loop. The loop is another wait, for a slot that the product reads. That has landed, as the product was
begun, and is not filled again before it is released.

On an H200 heads of 128 take 0.90 to 0.99 of their time by turns and 0.93 to 1.01 with the wait kept, heads of 64 0.96
to 0.97 and 0.89 to 0.92 (benchmarks/results/2026-11-29-h200-turns, prototype.txt).
"""

from __future__ import annotations

from typing import NamedTuple

from ...hardware import WARPS_PER_GROUP
from ...ir.core import Block, Op
from ...tile.control import For
from ...tile.elementwise import FloatUnary
from ...tile.memory import Barrier
from ...tile.reduction import Reduce
from ..asynchronous import Await, PassTurn, Pipe, Receive, Roles, TakeTurn, Vacate, Wgmma, slot_of
from ..estimates import NUMBERS_A_CYCLE, SPECIAL_A_CYCLE, product_cycles
from ..memory.scratch import GpuFunction

#: How many groups take turns: the first one begins, as if the second one had passed it the turn.
GROUPS = 2
FIRST, SECOND = range(GROUPS)
#: Of what is computed between a product and the wait for it, and of the product, from which on the wait is kept there.
#: Waits of 256 cycles are not worth it: the gradient of queries with heads of 64 takes 1.01 and 1.04 of its time
#: (gradients.txt).
LEAST_BETWEEN, LEAST_PRODUCT = 64.0, 384.0


def take_turns(function: GpuFunction) -> None:
    """Let two groups of consumers take turns in rotated loops, or keep the waits of their loops in place; in place."""
    if function.warps != GROUPS * WARPS_PER_GROUP:
        return
    for roles in function.ops_of(Roles):
        bodies = [loop.body for loop in roles.consumer.ops_of(For) if not _meets(loop, function)]
        pairs = [pair for body in bodies if (pair := _pair_of(body)) is not None]
        by_turns = [pair for pair in pairs if _are_longer(pair)]
        for pair in by_turns:
            _take_turn(pair)
        if by_turns:
            _hand_out(roles.consumer)
        for body in bodies:
            if all(pair.body is not body for pair in by_turns):
                _keep_waits(body)


def _meets(loop: For, function: GpuFunction) -> bool:
    """Whether the groups wait for each other in ``loop`` anyway. One that waits there for the other would have the turn
    that the other waits for."""
    return any(_is_barrier(op, function) for op in loop.body.walk())


def _is_barrier(op: Op, function: GpuFunction) -> bool:
    """Whether it is a barrier or has one inside, as what has scratch has."""
    match op:
        case Receive(pipe=pipe):
            return isinstance(pipe.op, Pipe) and pipe.op.engine == "threads"
        case _:
            return isinstance(op, Barrier | Vacate) or op in function.allocation.places


class _Pair(NamedTuple):
    """Two products in the body of a loop that are under way together."""

    body: Block
    first: Wgmma
    second: Wgmma


def _pair_of(body: Block) -> _Pair | None:
    products = [op for op in body.ops if isinstance(op, Wgmma)]
    waits = [op for op in body.ops if isinstance(op, Await)]
    if len(products) != 2 or [wait.x.op for wait in waits] != products or waits[0].pending != 1:
        return None
    return _Pair(body, *products)


def _cycles_of_product(product: Wgmma) -> float:
    return product_cycles(product.acc.type, product.a.type)


def _are_longer(pair: _Pair) -> bool:
    """Whether the products take longer than all else, done one behind the other."""
    products = _cycles_of_product(pair.first) + _cycles_of_product(pair.second)
    return products > sum(map(_cycles_of, pair.body.ops))


def _cycles_of(op: Op) -> float:
    if isinstance(op, Reduce):
        return sum(value.type.size for value in op.inputs) / NUMBERS_A_CYCLE
    if not op.elementwise:
        return 0.0
    return op.results[0].type.size / (SPECIAL_A_CYCLE if isinstance(op, FloatUnary) else NUMBERS_A_CYCLE)


def _take_turn(pair: _Pair) -> None:
    """A group begins both products before the other one may."""
    ops = pair.body.ops
    ops.insert(ops.index(pair.first), TakeTurn())
    ops.insert(ops.index(pair.second) + 1, PassTurn())


def _hand_out(consumer: Block) -> None:
    """The first group has the first turn of all, and takes back what the second one passes last: programs that stay go
    from tile to tile without waiting for each other."""
    ops = consumer.ops
    end = len(ops) - (consumer.terminator is not None)
    ops.insert(end, TakeTurn(FIRST))
    ops.insert(0, PassTurn(SECOND))


def _keep_waits(body: Block) -> None:
    """No assembler waits for a product before what stands before the wait. Slots that the product reads are released
    behind it (:mod:`.flight`)."""
    ops: list[Op] = []
    between = 0.0
    for op in body.ops:
        if isinstance(op, Await) and between >= LEAST_BETWEEN and isinstance(product := op.x.op, Wgmma):
            slot = slot_of(product.b)
            if slot is not None and _cycles_of_product(product) >= LEAST_PRODUCT:
                ops.append(Receive(slot.pipe))
        between = 0.0 if isinstance(op, Await | Wgmma) else between + _cycles_of(op)
        ops.append(op)
    body.ops = ops
