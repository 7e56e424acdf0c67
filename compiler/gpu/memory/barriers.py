"""Barrier insertion at hazards: what keeps a program's operations in order across its threads.

A program is sequential for its author, so a thread may not overwrite what another one still has to read. Two memories
matter: shared memory, where scratch may lie on what others still read, other scratch or a ring that has just become
idle, and global memory where the same array is both read and written by different threads. Operations with scratch have
one barrier inside, between writing and reading. What only threads of the first warp touch, as they alone write small
tiles, asks for a barrier of this warp alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from ...ir.core import Block, Function, Op
from ...tile.control import For, If, While
from ...tile.memory import AtomicCAS, AtomicRMW, Barrier, Load, Store
from ..asynchronous import Await, Put, RingBuffer, Roles, SharedView, Slot, Vacate, added_up, awaited
from ..ops import ConvertLayout, WarpBarrier
from .lifetimes import ByteRange
from .meetings import Access, Meetings, Touch, Touches
from .scratch import Allocation


@dataclass
class Pending:
    """What some threads may still be doing since the last barrier."""

    scratch: set[ByteRange] = field(default_factory=set)
    touches: Touches = field(default_factory=dict)  # of arrays
    awaited: Touches = field(default_factory=dict)  # by the threads of the same warp: others may not have done it

    def copy(self) -> Pending:
        """The same state, to be changed apart from this one."""
        return Pending(set(self.scratch), dict(self.touches), dict(self.awaited))

    def frozen(self) -> Hashable:
        """What it is, as a key."""
        return frozenset(self.scratch), frozenset(self.touches.items()), frozenset(self.awaited.items())

    def clear(self) -> None:
        """Forget everything: a barrier was passed."""
        self.scratch.clear()
        self.touches.clear()
        self.awaited.clear()

    def pass_warp_barrier(self) -> None:
        """Threads of one warp have waited for each other."""
        self.awaited.update(_joined(self.touches, self.awaited))
        self.touches.clear()

    def begin(self, op: Access) -> None:
        """Threads do ``op``."""
        self.touches[op] = self.touches.get(op, frozenset()) | {Touch(op)}

    def join(self, other: Pending) -> Pending:
        """Add what may be pending on another way to the same place."""
        touches = self.touches | _joined(other.touches, self.touches)
        awaited = self.awaited | _joined(other.awaited, self.awaited)
        return Pending(self.scratch | other.scratch, touches, awaited)

    def before(self, loop: For | While, inside: frozenset[Op]) -> Pending:
        """The same, an iteration of ``loop`` later; ``inside``: its operations. Addresses of others are what they
        were."""
        touches, awaited = (_before(touches, loop, inside) for touches in (self.touches, self.awaited))
        return Pending(set(self.scratch), touches, awaited)


def _joined(touches: Touches, others: Touches) -> Touches:
    """``touches``, and of ``others`` what is by the same operations."""
    return {op: more | others.get(op, frozenset()) for op, more in touches.items()}


def _before(touches: Touches, loop: For | While, inside: frozenset[Op]) -> Touches:
    moved = {op: frozenset(touch.before(loop, inside) for touch in touches[op]) for op in touches.keys() & inside}
    return touches | moved


def insert_barriers(function: Function, allocation: Allocation) -> None:
    """Insert ``barrier`` and ``gpu.warp_barrier`` operations where a hazard demands one, in place."""
    _Inserter(function, allocation).block(function.body, Pending(), insert=True)


class _Inserter:
    def __init__(self, function: Function, allocation: Allocation) -> None:
        self.places = allocation.places
        self.meetings = Meetings(function)
        # Loops around a loop look at it several times each, most often with what they had before.
        self._turned: dict[tuple[For | While, Hashable], tuple[Pending, Pending]] = {}

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
            case AtomicRMW() | AtomicCAS() if not op.pointer.type.rank and op.semantics != "relaxed":
                # One thread releases what all of them did.
                return Barrier() if pending.touches or pending.awaited else None
            case Load() | Store() | AtomicRMW() | AtomicCAS():
                return self._barrier_between(pending, op)
            case _:
                return None

    def _barrier_between(self, pending: Pending, op: Access) -> Barrier | WarpBarrier | None:
        met = self.meetings.among(op, pending.touches, pending.awaited)
        first = next(met, None)
        if first is None:
            return None
        accesses = chain((op, first.op), (touch.op for touch in met))
        return WarpBarrier() if all(map(self.meetings.by_first_warp, accesses)) else Barrier()

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
            case Load() | Store() | AtomicRMW() | AtomicCAS():
                pending.begin(op)
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
        key = loop, pending.frozen()
        if key not in self._turned:
            self._turned[key] = self._turn(loop, pending)
        entry, left = self._turned[key]
        if insert:
            self._blocks(loop.blocks, entry.copy(), insert=True)
        return left.copy()

    def _turn(self, loop: For | While, entry: Pending) -> tuple[Pending, Pending]:
        """What may be pending where an iteration begins, the first or a later one, and where the loop is left: a while
        loop behind its condition, whatever was awaited in its body; a for loop may have had no iteration."""
        inside = frozenset(loop.walk())
        first, *others = loop.blocks
        while True:
            left = self.block(first, entry.copy(), insert=False)
            out = self._blocks(others, left.copy(), insert=False)
            wider = entry.join(out.before(loop, inside))
            if wider == entry:
                return entry, left if isinstance(loop, While) else entry.join(out)
            entry = wider

    def _blocks(self, blocks: Sequence[Block], pending: Pending, *, insert: bool) -> Pending:
        for block in blocks:
            pending = self.block(block, pending, insert=insert)
        return pending
