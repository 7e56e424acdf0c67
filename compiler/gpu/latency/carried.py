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
from ..asynchronous import Await, Pipe, Release, Settle, SharedView, Slot, Vacate, Wgmma, added_up
from ..memory.fences import read_by_products


def may_go_on(loop: For, used: dict[Value, list[Op]]) -> frozenset[Value]:
    """The results of products in the body of ``loop`` that need not be done at its end; ``used``: who reads what."""
    if not any(isinstance(op, Vacate) for op in loop.body.ops):
        return frozenset()
    # Threads that have read a slot themselves pass a fence, and ptxas 12.8 and 12.9 die of one before the wait.
    releases = (op for op in loop.body.ops if isinstance(op, Release))
    if not all(all(read_by_products(release, used)) for release in releases):
        return frozenset()
    end = loop.body.terminator
    handed = zip(loop.carried, handed_on(loop.body), strict=True)
    return frozenset(
        value
        for carried, value in handed
        if used[value] == [end] and _is_added_to(loop, carried, value.op, used) and _reads_slots(loop, value)
    )


def _is_added_to(loop: For, carried: Value, made: Op | None, used: dict[Value, list[Op]]) -> bool:
    """Whether what ``made`` the next value is a product, or the last of several, that adds to ``carried``, which nobody
    else reads: the sums stay in their registers, which may not be moved while they are in flight."""
    first = made
    while isinstance(first, Wgmma) and isinstance(first.acc.op, Wgmma) and used[first.acc] == [first]:
        first = first.acc.op
    if not isinstance(made, Wgmma) or not isinstance(first, Wgmma) or first.acc is not carried:
        return False
    same = (first.columns, first.a.type.elem.bytes) == (made.columns, made.a.type.elem.bytes)
    return same and used[carried] == [first] and first in loop.body.ops and made in loop.body.ops


def _reads_slots(loop: For, result: Value) -> bool:
    """Whether the product, and what it adds to, reads registers, slots that nobody releases, or what is there all along
    the loop."""
    operands = {value for op in added_up(result.op) for value in (op.a, op.b)}
    return all(value.type.shared is None or _is_kept(loop, value) for value in operands)


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
