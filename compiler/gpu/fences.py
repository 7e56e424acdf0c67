"""Fences between ordinary reads of a slot and the copy that fills it again.

The copy engine and wgmma go to shared memory through the asynchronous proxy, ordinary instructions through the generic
one (PTX ISA, "Proxies"). Two accesses of different proxies are in order only with a proxy fence between them, also
where the first one reads: on an H200 a copy that was begun after an arrival overtook loads that had been issued before
it and waited for their banks.
"""

from __future__ import annotations

from ..ir.core import Function, Op, Value, uses
from .asynchronous import Pipe, Release, SharedView, Slot, Wgmma


def fence_releases(function: Function) -> None:
    """Mark the releases of slots that the copy engine fills and that not only wgmma reads, in place."""
    readers = uses(function)
    for op in function.body.walk():
        if not isinstance(op, Release):
            continue
        pipe = op.pipe.op
        if isinstance(pipe, Pipe) and pipe.engine == "tma":
            slots = [user for user in readers[op.pipe] if isinstance(user, Slot)]
            op.fenced = any(_is_read_by_threads(slot.result, readers) for slot in slots)


def _is_read_by_threads(tile: Value, readers: dict[Value, list[Op]]) -> bool:
    return any(
        _is_read_by_threads(user.result, readers) if isinstance(user, SharedView) else not isinstance(user, Wgmma)
        for user in readers.get(tile, ())
    )
