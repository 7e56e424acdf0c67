"""mbarrier objects (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier").

A phase is complete when as many arrivals as the barrier was made for have come and as many bytes as were expected.
"""

from __future__ import annotations

import numpy as np

from .barriers import Wait
from .clocks import Threads, Times
from .values import SimulationError
from .warp import Cluster, Program, Warp

MBARRIER_BYTES = 8
#: The largest counts of arrivals and of bytes that the object holds.
MOST_ARRIVALS = MOST_BYTES = (1 << 20) - 1


class MBarrier:
    """One mbarrier object; it is made by ``thread``, and nobody may use it before that is ordered."""

    def __init__(self, program: Program, address: int, count: int, thread: int) -> None:
        if not 0 < count <= MOST_ARRIVALS:
            raise SimulationError(f"an mbarrier cannot be made for {count} arrivals")
        self._clocks = program.cluster.clocks
        self.program = program
        self.address = address
        self.count = self._missing = count
        self._bytes = 0
        self.phase = 0
        self._arrived: list[Times] = []
        self._complete: list[Times] = []
        self._thread, self._made = thread, self._clocks.time
        self._clocks.time += 1
        #: Whether a fence has told the asynchronous proxy of it.
        self.fenced = False

    def known_to(self, threads: Threads) -> bool:
        """Whether ``threads`` can know of it already."""
        known = np.maximum(self._clocks.tables[0, threads, self._thread], self._clocks.base)
        return bool(((known >= self._made) | (threads == self._thread)).all())

    def check_made(self, threads: Threads) -> None:
        """Raises SimulationError if ``threads`` cannot know of it yet."""
        if not self.known_to(threads):
            raise SimulationError(f"race on {self}: it is used with no barrier after thread {self._thread} made it")

    def expect(self, size: int) -> None:
        """The current phase expects ``size`` more bytes."""
        self._bytes += size
        self._check_bytes()

    def arrive(self, arrivals: int, clock: Times) -> None:
        """``arrivals`` threads that know ``clock`` arrive."""
        if arrivals > self._missing:
            raise SimulationError(f"{self} gets {arrivals} arrivals in a phase that lacks {self._missing}")
        self._missing -= arrivals
        self._arrived.append(clock)
        self._check()

    def receive(self, size: int, clock: Times) -> None:
        """``size`` bytes have come."""
        self._bytes -= size
        self._check_bytes()
        self._arrived.append(clock)
        self._check()

    def _check_bytes(self) -> None:
        if abs(self._bytes) > MOST_BYTES:
            raise SimulationError(f"{self} counts {self._bytes} bytes, more than it can")

    def _check(self) -> None:
        if self._missing == 0 and self._bytes == 0:
            self.phase += 1
            self._missing = self.count
            self._complete, self._arrived = self._arrived, []

    def wait(self, threads: Threads, parity: int) -> Wait:
        """``threads`` go on when the phase of that parity is complete: when the current one has the other parity."""

        def finish() -> None:
            for clock in self._complete:
                self._clocks.acquire(threads, clock)

        def describe() -> str:
            return f"{self} for parity {parity}; phase {self.phase} lacks {self._missing} arrivals, {self._bytes} bytes"

        return Wait(lambda: self.phase & 1 != parity, describe, finish)

    def __str__(self) -> str:
        return f"mbarrier {self.address:#x}"


def make(warp: Warp, lane: int, address: int, count: int) -> None:
    """mbarrier.init: the eight bytes are the barrier's from now on."""
    program = warp.program
    if address % MBARRIER_BYTES or address in program.mbarriers:
        raise SimulationError(f"mbarrier {address:#x} is {'made twice' if address % 8 == 0 else 'not aligned'}")
    program.shared.take_away(address, MBARRIER_BYTES, warp.agents[lane : lane + 1])
    program.mbarriers[address] = MBarrier(program, address, count, int(warp.agents[lane]))


def destroy(warp: Warp, address: int, thread: Threads) -> None:
    """mbarrier.inval: the bytes may hold data again."""
    find(warp, address, thread)
    del warp.program.mbarriers[address]
    warp.program.shared.valid[address : address + MBARRIER_BYTES] = True


def find(warp: Warp, address: int, threads: Threads) -> MBarrier:
    """The barrier that ``address`` means to ``threads`` of ``warp``; it may be another program's."""
    program, offset = warp.program.reach(address)
    if offset not in program.mbarriers:
        raise SimulationError(f"{warp} uses an mbarrier at {address:#x}, where none was made")
    barrier = program.mbarriers[offset]
    barrier.check_made(threads)
    warp.visit(program, np.isin(warp.agents, threads))
    return barrier


def fence_made(warp: Warp, threads: Threads) -> None:
    """fence.mbarrier_init: the asynchronous proxy may use the barriers that one of ``threads`` made or knows of."""
    for barrier in warp.program.mbarriers.values():
        barrier.fenced |= any(barrier.known_to(threads[i : i + 1]) for i in range(len(threads)))


def complete_later(cluster: Cluster, barrier: MBarrier, size: int, row: int) -> None:
    """``size`` bytes that the agent ``row`` has been told to write come to ``barrier`` some time."""
    ended = cluster.clocks.finished(row)
    cluster.in_flight.append(lambda: barrier.receive(size, ended))
