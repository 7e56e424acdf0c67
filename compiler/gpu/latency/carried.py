"""Products that go on into the next iteration of their loop.

At the end of an iteration the tensor cores would idle until the next one has found its slots and begun a product. So
the last products of an iteration, if all that becomes of them is the sums of the next one's, are not waited for::

    for i in range(n):                            for i in range(n):
        s = dot(q, k[i])                              s = dot(q, k[i])              # behind dk of iteration i - 1
        ...                                ->         settle; vacate; fetch         # its slot is filled again
        dk = dot(ds, k[i], dk)                        ...
        wait for dk                                   dk = dot(ds, k[i], dk)
                                                  wait for dk

Products end in the order in which they were begun, so any wait of the next iteration ends them; one is added only where
their slots are filled before (:class:`~..asynchronous.Vacate`). Sums of instructions of one shape may be added to while
they are made (PTX ISA, "Register fragments and shared memory accesses").
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.core import Op, Value
from ...tile.control import For, handed_on
from ..asynchronous import Await, Pipe, Release, Settle, SharedView, Slot, Vacate, Wgmma
from ..estimates import GOING_ON_REGISTERS
from ..memory.fences import read_by_products


def may_go_on(loop: For, used: dict[Value, list[Op]]) -> frozenset[Value]:
    """The results of products in the body of ``loop`` that need not be done at its end; ``used``: who reads what."""
    if not any(isinstance(op, Vacate) for op in loop.body.ops) or _accumulators(loop) > GOING_ON_REGISTERS:
        return frozenset()
    # Threads that have read a slot themselves pass a fence, and ptxas 12.8 and 12.9 die of one before the wait.
    releases = (op for op in loop.body.ops if isinstance(op, Release))
    if not all(all(read_by_products(release, used)) for release in releases):
        return frozenset()
    end = loop.body.terminator
    return frozenset(
        value
        for carried, value in zip(loop.carried, handed_on(loop.body), strict=True)
        if used[value] == [end] and _goes_on(loop, carried, _added_up(value, used), used)
    )


def _accumulators(loop: For) -> int:
    """Registers of a thread for the sums of all products in the body; those that are added up have the same."""
    products = [op for op in loop.body.walk() if isinstance(op, Wgmma)]
    layouts = (op.result.type.layout for op in products if op.acc.op not in products)
    return sum(layout.registers for layout in layouts if layout is not None)


def _added_up(value: Value, used: dict[Value, list[Op]]) -> list[Wgmma]:
    """The product that makes ``value`` and those that it adds to, if nobody else needs these: the last one first."""
    found: list[Wgmma] = []
    while isinstance(value.op, Wgmma) and (not found or used[value] == [found[-1]]):
        found.append(value.op)
        value = value.op.acc
    return found


def _goes_on(loop: For, carried: Value, products: list[Wgmma], used: dict[Value, list[Op]]) -> bool:
    """Whether ``products`` add to ``carried``, which nobody else reads, so that the sums stay in their registers: these
    may not be moved while they are in flight; and whether what they read is in registers, in slots that nobody
    releases, or there all along the loop."""
    if not products or products[-1].acc is not carried or used[carried] != [products[-1]]:
        return False
    shapes = {(op.columns, op.a.type.elem.bytes) for op in (products[0], products[-1])}
    here = all(op in loop.body.ops for op in products)
    operands = (value for op in products for value in (op.a, op.b))
    return here and len(shapes) == 1 and all(value.type.shared is None or _is_kept(loop, value) for value in operands)


def _is_kept(loop: For, value: Value) -> bool:
    made = value.op
    while isinstance(made, SharedView):
        made = made.x.op
    if isinstance(made, Slot):
        pipe = made.pipe.op
        return isinstance(pipe, Pipe) and pipe.engine == "tma" and not pipe.readers
    return made not in loop.body.ops


def settle_early(loop: For, writes: Callable[[Op], bool]) -> None:
    """Wait for the products of the iteration before this one, in place, unless an operation of the body does that
    anyway before their operands are written; ``writes``: whether an operation may do that."""
    begun = 0
    for place, op in enumerate(loop.body.ops):
        if isinstance(op, Await):
            return
        if isinstance(op, Vacate) or writes(op):
            loop.body.ops.insert(place, Settle(begun))
            return
        if isinstance(op, Wgmma):
            begun += 1
            if op.waits:
                return
