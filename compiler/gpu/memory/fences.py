"""Memory fences where slots are filled through one proxy and read through the other.

The copy engine and wgmma go to shared memory through the asynchronous proxy, ordinary instructions through the generic
one (PTX ISA, "Proxies"). Two accesses of different proxies are in order only with a proxy fence between them, also
where the first one reads: on an H200 a copy that was begun after an arrival overtook loads that had been issued before
it and waited for their banks. Copies by threads are of the generic proxy, so what they bring needs a fence before wgmma
reads it, and none before threads do.
"""

from __future__ import annotations

from ...ir.core import Function, Op, Value, uses
from ..asynchronous import Advance, Deposit, Pipe, Receive, Release, SharedView, Slot, Wgmma, readers_of


def place_fences(function: Function) -> None:
    """Mark the releases of slots that the copy engine fills and that not only wgmma reads, and the receipts of slots
    that threads fill and that it reads, in place. Behind a deposit, which has a fence, a release needs none."""
    used = uses(function)
    for block in function.body.nest():
        behind_fence = False
        for op in block.ops:
            if isinstance(op, Receive):
                op.fenced = _engine(op) == "cp.async" and any(read_by_products(op, used))
            elif isinstance(op, Release):
                op.fenced = _engine(op) == "tma" and not all(read_by_products(op, used)) and not behind_fence
            if not isinstance(op, Advance | Release):
                behind_fence = isinstance(op, Deposit)


def _engine(op: Receive | Release) -> str | None:
    pipe = op.pipe.op
    return pipe.engine if isinstance(pipe, Pipe) else None


def read_by_products(op: Receive | Release, used: dict[Value, list[Op]]) -> list[bool]:
    """Of each read of a slot of the pipe, whether it is one by wgmma."""
    slots = [user for user in used[op.pipe] if isinstance(user, Slot)]
    return [isinstance(user, SharedView | Wgmma) for slot in slots for user in readers_of(slot.result, used)]
