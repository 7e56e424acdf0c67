"""The state of programs and their warps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .barriers import ClusterBarrier, ThreadBarriers
from .clocks import Clocks, Threads, Times
from .memory import GlobalMemory, SimulatedMemory
from .values import LANES, Held, SimulationError

if TYPE_CHECKING:
    from .mbarrier import MBarrier
    from .wgmma import WarpGroup

Lanes = npt.NDArray[np.bool_]
ALL_LANES = np.ones(LANES, np.bool_)
ALL_LANES.flags.writeable = False
WARPS_OF_A_GROUP = 4

#: Shared memory of program r of a cluster, as other programs of the cluster address it, begins at (r + 1) << 24; the
#: lower addresses are a program's own.
CLUSTER_SHIFT = 24


class LaneValues(dict[str, Held]):
    """The values of a warp of which some lanes are on a path of their own: what is set is set for those."""

    active: Lanes = ALL_LANES

    def __setitem__(self, name: str, value: Held) -> None:
        before = self.get(name)
        super().__setitem__(name, value if before is None else choose_lanes(self.active, value, before))


def choose_lanes(lanes: Lanes, these: Held, others: Held) -> Held:
    """``these`` in ``lanes``, ``others`` elsewhere."""
    if these is others:
        return these
    if isinstance(these, tuple) and isinstance(others, tuple):
        return tuple(choose_lanes(lanes, x, y) for x, y in zip(these, others, strict=True))  # type: ignore[misc]
    if not isinstance(these, np.ndarray) or not isinstance(others, np.ndarray):
        raise SimulationError("accumulators of a wgmma in flight are set on a path of some lanes of a warp")
    return np.where(lanes if these.ndim == 1 else lanes[:, None], these, others)


class Warp:
    """One warp of one program. ``number``: within the program; ``agents``: its threads as the clocks count them."""

    def __init__(self, number: int, program: Program) -> None:
        self.number = number
        self.program = program
        self.env: dict[str, Held] = {}
        self.active: Lanes = ALL_LANES
        self.threads = np.arange(LANES, dtype=np.int32) + number * LANES
        self.agents = self.threads + np.int32(program.rank * program.num_warps * LANES)
        self.shared = program.shared
        self.memory = program.cluster.memory
        self.clocks = program.cluster.clocks
        self.ended = False
        #: What it has done so far, which is the clock that it reads.
        self.steps = 0
        #: Local registers of a block of assembly.
        self.registers: dict[str, Held] = {}
        self.register_budgets: list[str] = []
        #: Products of wgmma that this warp started; groups of them that it committed, and that it knows to be over.
        self.products_started = self.products_committed = self.products_ended = 0
        #: Whether a wgmma.fence came after registers of products were this warp's own.
        self.registers_fenced = False
        #: Committed groups of bulk copies of each thread: what the ends of their reads and of their writes tell.
        self.bulk_groups: dict[int, list[tuple[Times, Times]]] = {}
        #: Committed groups of cp.async of each lane: the time until which copies are in them.
        self.copy_groups: list[list[int]] = [[] for _ in range(LANES)]

    def require_all_lanes(self, what: str) -> None:
        """Raises SimulationError where an instruction needs the whole warp, and part of it is elsewhere."""
        if self.active is not ALL_LANES and not self.active.all():
            lanes = ", ".join(map(str, np.flatnonzero(self.active)))
            raise SimulationError(f"{what} needs all threads of warp {self.number}; a branch left lanes {lanes} alone")

    def visit(self, program: Program, lanes: Lanes) -> None:
        """``lanes`` use shared memory or a barrier of ``program``, which must be there still."""
        if program is not self.program:
            program.visitors.append((self.agents[lanes], self.clocks.time))

    def __str__(self) -> str:
        where = f" of program {self.program.rank} of its cluster" if len(self.program.cluster.programs) > 1 else ""
        return f"warp {self.number}{where}"


class Program:
    """A program (CTA): its warps, its shared memory and its barriers. ``rank``: its number in its cluster."""

    def __init__(
        self, cluster: Cluster, rank: int, ids: tuple[int, ...], grid: tuple[int, ...], warps: int, shared_bytes: int
    ) -> None:
        self.cluster = cluster
        self.rank = rank
        self.ids = ids
        self.grid = grid
        self.number = ids[0] + grid[0] * (ids[1] + grid[1] * ids[2])
        self.num_warps = warps
        self.shared = SimulatedMemory("shared memory", shared_bytes, initialised=False, clocks=cluster.clocks)
        self.shared.valid[:] = True
        self.warps = [Warp(number, self) for number in range(warps)]
        self.barriers = ThreadBarriers(self)
        self.mbarriers: dict[int, MBarrier] = {}
        #: Threads of other programs that used shared memory of this one, and when.
        self.visitors: list[tuple[Threads, int]] = []
        self.warp_groups: dict[int, WarpGroup] = {}

    def check_visitors(self) -> None:
        """Raises SimulationError if this program may have ended before others were done with its shared memory."""
        for visitors, time in self.visitors:
            if not self.cluster.clocks.over([warp.agents[0] for warp in self.warps], visitors, time):
                where = f"shared memory of program {self.rank} of its cluster"
                raise SimulationError(f"thread {visitors[0]} uses {where}, which may have ended before")

    def reach(self, address: int) -> tuple[Program, int]:
        """The program of the cluster whose shared memory ``address`` means, and the address there."""
        rank = address >> CLUSTER_SHIFT
        if rank > len(self.cluster.programs) or address < 0:
            raise SimulationError(f"shared memory access at {address:#x} is out of range")
        offset = address & ((1 << CLUSTER_SHIFT) - 1)
        return (self.cluster.programs[rank - 1] if rank else self), offset


@dataclass
class Cluster:
    """The programs that run together, and the asynchronous operations of theirs that have not ended."""

    memory: GlobalMemory
    clocks: Clocks
    programs: list[Program] = field(default_factory=list)
    #: What ends later and lets others go on then.
    in_flight: list[Callable[[], None]] = field(default_factory=list)
    #: Agents of asynchronous operations: by kind and owner.
    agents: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.barrier = ClusterBarrier(self)

    @property
    def warps(self) -> list[Warp]:
        """The warps of all programs."""
        return [warp for program in self.programs for warp in program.warps]

    def agent(self, kind: str, owner: int, name: str, width: int = 1, *, generic: bool, awaited: bool) -> int:
        """The row of clocks of the agents of one kind and owner, made when first asked for."""
        row = self.agents.get((kind, owner))
        if row is None:
            row = self.agents[kind, owner] = self.clocks.add(name, width, generic=generic, awaited=awaited)
        return row
