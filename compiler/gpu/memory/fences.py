"""Fences where slots are filled through one proxy and read through the other.

The copy engine and wgmma go to shared memory through the asynchronous proxy, ordinary instructions through the generic
one (PTX ISA, "Proxies"). Two accesses of different proxies are in order only with a proxy fence between them, also
where the first one reads: on an H200 a copy that was begun after an arrival overtook loads that had been issued before
it and waited for their banks. Copies by threads are of the generic proxy, so what they bring needs a fence before wgmma
reads it, and none before threads do.
"""

from __future__ import annotations

from ...ir.core import Function, uses
from ..asynchronous import Pipe, Receive, Release, SharedView, Slot, Wgmma, readers_of


def place_fences(function: Function) -> None:
    """Mark the releases of slots that the copy engine fills and that not only wgmma reads, and the receipts of slots
    that threads fill and that it reads, in place."""
    used = uses(function)
    for op in function.body.walk():
        if not isinstance(op, Release | Receive):
            continue
        pipe = op.pipe.op
        engine = pipe.engine if isinstance(pipe, Pipe) else None
        slots = [user for user in used[op.pipe] if isinstance(user, Slot)]
        by_wgmma = [isinstance(user, SharedView | Wgmma) for slot in slots for user in readers_of(slot.result, used)]
        if isinstance(op, Release):
            op.fenced = engine == "tma" and not all(by_wgmma)
        else:
            op.fenced = engine == "cp.async" and any(by_wgmma)
