"""The barriers of a program, sixteen of them, and the barrier of a cluster (PTX ISA, "bar", "barrier.cluster")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .clocks import Times
from .values import LANES, SimulationError

if TYPE_CHECKING:
    from .warp import Cluster, Program, Warp

NUM_BARRIERS = 16


@dataclass
class Wait:
    """What a warp waits for; ``finish`` runs when it goes on."""

    ready: Callable[[], bool]
    describe: Callable[[], str]
    finish: Callable[[], None] = lambda: None


@dataclass
class _State:
    """One barrier: who has arrived since it was last complete. ``count``: threads it needs, None for all."""

    count: int | None = None
    arrived: list[Warp] = field(default_factory=list)
    #: Those of ``arrived`` that did not stop there, and what they knew when they passed.
    passed: list[tuple[Warp, Times]] = field(default_factory=list)
    completions: int = 0


class ThreadBarriers:
    """The barriers of a program, by number."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._states = [_State() for _ in range(NUM_BARRIERS)]

    def arrive(self, warp: Warp, number: int, count: int | None, *, waits: bool = True) -> Wait | None:
        """``warp`` arrives at barrier ``number``; it goes on when ``count`` threads have."""
        warp.require_all_lanes("a barrier")
        if not 0 <= number < NUM_BARRIERS:
            raise SimulationError(f"there is no barrier {number}")
        if count is not None and (count % LANES or not 0 < count <= LANES * self._program.num_warps):
            raise SimulationError(f"barrier {number} is told of {count} threads")
        state = self._states[number]
        if state.arrived and state.count != count:
            raise SimulationError(f"{warp} comes to barrier {number} with {count} threads, others with {state.count}")
        if warp in state.arrived:
            raise SimulationError(f"{warp} arrives twice at barrier {number}, which the others have not reached")
        state.count = count
        state.arrived.append(warp)
        before = state.completions
        if not waits:
            state.passed.append((warp, warp.clocks.release(warp.agents)))
        self._check(state)
        if not waits:
            return None
        return Wait(lambda: state.completions > before, lambda: self._describe(number, state))

    def warp_ended(self) -> None:
        """Threads that have ended are not waited for where a barrier names no count (CUDA, ``__syncthreads``)."""
        for state in self._states:
            if state.arrived and state.count is None:
                self._check(state)

    def _check(self, state: _State) -> None:
        alive = [warp for warp in self._program.warps if not warp.ended]
        everybody = len(state.arrived) == self._program.num_warps and len(self._program.cluster.programs) == 1
        needed = len(alive) if state.count is None else state.count // LANES
        if len(state.arrived) < needed:
            return
        clocks = self._program.cluster.clocks
        if everybody and not state.passed:
            clocks.meet()
        else:
            gone = [warp for warp, _ in state.passed]
            waiting = [warp.agents for warp in state.arrived if warp not in gone]
            if waiting:
                clocks.join(np.concatenate(waiting))
                for _, clock in state.passed:
                    clocks.acquire(np.concatenate(waiting), clock)
        state.arrived, state.passed = [], []
        state.completions += 1

    def _describe(self, number: int, state: _State) -> str:
        needed = "all" if state.count is None else state.count
        return f"barrier {number}, where {LANES * len(state.arrived)} of {needed} threads are"


class ClusterBarrier:
    """The barrier of all threads of a cluster, whose arrival and wait are apart."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._clocks = cluster.clocks
        self._arrived: dict[Warp, Times] = {}
        self._completed: list[list[Times]] = []
        self._wanted: dict[Warp, int] = {}

    def arrive(self, warp: Warp) -> None:
        """``warp`` arrives and goes on."""
        warp.require_all_lanes("barrier.cluster.arrive")
        if warp in self._arrived:
            raise SimulationError(f"{warp} arrives twice at the cluster's barrier, which the others have not reached")
        self._wanted[warp] = len(self._completed)
        self._arrived[warp] = self._clocks.release(warp.agents)
        self.check()

    def check(self) -> None:
        """Look whether all have arrived that have not ended."""
        if self._arrived and all(warp.ended or warp in self._arrived for warp in self._cluster.warps):
            self._completed.append(list(self._arrived.values()))
            self._arrived = {}

    def wait(self, warp: Warp) -> Wait:
        """``warp`` goes on when all have arrived."""
        if warp not in self._wanted:
            raise SimulationError(f"{warp} waits at the cluster's barrier without an arrival")
        wanted = self._wanted.pop(warp)

        def finish() -> None:
            for clock in self._completed[wanted]:
                self._clocks.acquire(warp.agents, clock)

        return Wait(
            lambda: len(self._completed) > wanted,
            lambda: f"the cluster's barrier, where {LANES * len(self._arrived)} threads are",
            finish,
        )
