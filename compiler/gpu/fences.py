"""Fences between ordinary reads of a slot and the copy that fills it again.

The copy engine and wgmma go to shared memory through the asynchronous proxy, ordinary instructions through the generic
one (PTX ISA, "Proxies"). Two accesses of different proxies are in order only with a proxy fence between them, also
where the first one reads: on an H200 a copy that was begun after an arrival overtook loads that had been issued before
it and waited for their banks.
"""

from __future__ import annotations

from ..ir.core import Function, uses
from .asynchronous import Pipe, Release, SharedView, Slot, Wgmma, readers_of


def fence_releases(function: Function) -> None:
    """Mark the releases of slots that the copy engine fills and that not only wgmma reads, in place."""
    used = uses(function)
    for op in function.body.walk():
        if not isinstance(op, Release):
            continue
        pipe = op.pipe.op
        if isinstance(pipe, Pipe) and pipe.engine == "tma":
            slots = [user for user in used[op.pipe] if isinstance(user, Slot)]
            readers = [user for slot in slots for user in readers_of(slot.result, used)]
            op.fenced = not all(isinstance(user, SharedView | Wgmma) for user in readers)
