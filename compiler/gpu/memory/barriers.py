"""Barrier insertion at hazards: what keeps a program's operations in order across its threads.

A program is sequential for its author, so a thread may not overwrite what another one still has to read. Two memories
matter: shared memory, where scratch may lie on what others still read, other scratch or a ring that has just become
idle, and global memory where the same array is both read and written by different threads. Operations with scratch have
one barrier inside, between writing and reading. What only threads of the first warp touch, as they alone write small
tiles, asks for a barrier of this warp alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir.core import Block, Function, Op
from ...tile.control import For, If, While
from ...tile.memory import AtomicCAS, AtomicRMW, Barrier, Load, Store
from ..asynchronous import Await, Put, RingBuffer, Roles, SharedView, Slot, Vacate, added_up, awaited
from ..ops import ConvertLayout, WarpBarrier
from .lifetimes import ByteRange
from .meetings import Access, Meetings, Touch
from .scratch import Allocation


@dataclass
class Pending:
    """What some threads may still be doing since the last barrier."""

    scratch: set[ByteRange] = field(default_factory=set)
    read: set[Touch] = field(default_factory=set)
    written: set[Touch] = field(default_factory=set)
    changed: set[Touch] = field(default_factory=set)  # by atomics, which are in order among themselves

    @property
    def arrays(self) -> tuple[set[Touch], set[Touch], set[Touch]]:
        """What happens to arrays, by the way it happens."""
        return self.read, self.written, self.changed

    def copy(self) -> Pending:
        """The same state, to be changed apart from this one."""
        return Pending(set(self.scratch), *map(set, self.arrays))

    def clear(self) -> None:
        """Forget everything: a barrier was passed."""
        self.scratch.clear()
        for touches in self.arrays:
            touches.clear()

    def pass_warp_barrier(self) -> None:
        """Threads of one warp have waited for each other."""
        for touches in self.arrays:
            after = {touch.after_warp() for touch in touches}
            touches.clear()
            touches.update(after)

    def join(self, other: Pending) -> Pending:
        """Add what may be pending on another way to the same place."""
        pairs = zip(self.arrays, other.arrays, strict=True)
        return Pending(self.scratch | other.scratch, *(mine | theirs for mine, theirs in pairs))

    def before(self, loop: For | While, inside: frozenset[Op]) -> Pending:
        """The same, an iteration of ``loop`` later; ``inside``: its operations. Addresses of others are what they
        were, and were they told apart by the loops that they were begun before, there would be two of each at every
        further loop."""
        arrays = ({touch.before(loop) if touch.op in inside else touch for touch in touches} for touches in self.arrays)
        return Pending(set(self.scratch), *arrays)


def insert_barriers(function: Function, allocation: Allocation) -> None:
    """Insert ``barrier`` and ``gpu.warp_barrier`` operations where a hazard demands one, in place."""
    _Inserter(function, allocation).block(function.body, Pending(), insert=True)


class _Inserter:
    def __init__(self, function: Function, allocation: Allocation) -> None:
        self.places = allocation.places
        self.meetings = Meetings(function)

    # Walking -------------------------------------------------------------------------------------------------

    def block(self, block: Block, pending: Pending, *, insert: bool) -> Pending:
        out: list[Op] = []
        for op in block.ops:
            barrier = self._barrier_before(op, pending)
            if barrier is not None:
                barrier.location = op.location
                out.append(barrier)
                pending = self._after(barrier, pending, insert=insert)
            pending = self._after(op, pending, insert=insert)
            out.append(op)
        if insert:
            block.ops[:] = out
        return pending

    def _barrier_before(self, op: Op, pending: Pending) -> Barrier | WarpBarrier | None:
        if isinstance(op, Put):
            return None  # it waits itself, for copies that no barrier knows of
        place = self.places.get(op)
        if place is not None and any(place.overlaps(other) for other in pending.scratch):
            return Barrier()
        match op:
            case Load():
                return self._barrier_between(pending.written | pending.changed, op)
            case Store():
                return self._barrier_between(pending.read | pending.written | pending.changed, op)
            case AtomicRMW() | AtomicCAS():
                # One thread releases what all of them did.
                if not op.pointer.type.rank and op.semantics != "relaxed" and any(pending.arrays):
                    return Barrier()
                return self._barrier_between(pending.read | pending.written, op)
            case _:
                return None

    def _barrier_between(self, touches: set[Touch], op: Access) -> Barrier | WarpBarrier | None:
        meetings = self.meetings
        met = meetings.among(op, touches)
        if not met:
            return None
        in_warp = meetings.by_first_warp(op) and all(meetings.by_first_warp(touch.op) for touch in met)
        return WarpBarrier() if in_warp else Barrier()

    def _after(self, op: Op, pending: Pending, *, insert: bool) -> Pending:
        if (place := self.places.get(op)) is not None and not isinstance(op, Put):
            if not (isinstance(op, ConvertLayout) and op.unfinished):
                pending.clear()
            pending.scratch.add(place)
        pending.scratch.update(self._read_places(op))
        match op:
            case Barrier() | Vacate():
                pending.clear()
            case WarpBarrier():
                pending.pass_warp_barrier()
            case Roles():
                # The producer touches no memory that consumers write.
                return self.block(op.consumer, pending, insert=insert)
            case Load():
                pending.read.add(Touch(op))
            case Store():
                pending.written.add(Touch(op))
            case AtomicRMW() | AtomicCAS():
                pending.changed.add(Touch(op))
            case For() | While():
                return self._loop(op, pending, insert=insert)
            case If():
                then = self.block(op.then, pending.copy(), insert=insert)
                return then.join(self.block(op.otherwise, pending, insert=insert))
        return pending

    def _read_places(self, op: Op) -> set[ByteRange]:
        """Places of rings and converted tiles that ``op`` reads: nobody may write them before all threads have done.
        A product in flight reads until it is waited for, or what adds to it is, whatever barrier was passed before."""
        readers: list[Op] = [*(awaited(op.x) if isinstance(op, Await) else added_up(op))] or [op]
        found = set()
        for value in (value for reader in readers for value in reader.operands):
            made = value.op
            while isinstance(made, SharedView | Slot):
                made = made.operands[0].op
            if isinstance(made, RingBuffer) or (isinstance(made, ConvertLayout) and made.to.shared is not None):
                found.add(self.places[made])
        return found

    def _loop(self, loop: For | While, pending: Pending, *, insert: bool) -> Pending:
        entry, inside = pending, frozenset(loop.walk())
        while True:
            out = self._blocks(loop.blocks, entry.copy(), insert=False)
            wider = entry.join(out.before(loop, inside))
            if wider == entry:
                break
            entry = wider
        return entry.join(self._blocks(loop.blocks, entry.copy(), insert=insert))

    def _blocks(self, blocks: Sequence[Block], pending: Pending, *, insert: bool) -> Pending:
        for block in blocks:
            pending = self.block(block, pending, insert=insert)
        return pending
