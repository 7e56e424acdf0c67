"""What a search needs to know of its problem before it begins, found for the next problem while one is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .codec import Scalar
from .space import Space
from .workloads import Problem

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import Device

    from .experience import Start


@dataclass(frozen=True)
class SearchPlan:
    """``space``: what is searched; ``held``: parameters that are not, with their values; ``default``: what others are
    compared with."""

    problem: Problem
    space: Space
    held: Mapping[str, Scalar]
    default: Mapping[str, Scalar]

    @classmethod
    def of(cls, problem: Problem, device: Device) -> SearchPlan:
        """Plan the search of a problem on a device.

        Raises:
            DeuteronError: the workload contradicts its kernel, or no configuration is possible.
        """
        properties = device.properties
        space, held = problem.searched(properties, device.target)
        default = problem.default(space, properties.kind)
        problem.variant(default)  # a workload that contradicts its kernel fails here, with a remedy
        return cls(problem, space, held, default)


@dataclass(frozen=True)
class Outset:
    """How a search begins: its plan, and what it starts from, None where nothing is known."""

    plan: SearchPlan
    start: Start | None


class Planner:
    """Plans searches, and one ahead: compiling what a plan compares and learning from earlier searches take tenths of
    a second, in which the device would wait. ``start`` says what the search of a plan starts from, given how much
    has to be known. Close it at the end."""

    def __init__(self, device: Device, start: Callable[[SearchPlan, int], Start | None]) -> None:
        self._device, self._start = device, start
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="plan")
        self._next: tuple[Problem, Future[Outset]] | None = None

    def outset(self, problem: Problem) -> Outset:
        """How the search of a problem begins; raises as :meth:`SearchPlan.of`."""
        known, self._next = self._next, None
        if known is not None and known[0] is problem:
            return known[1].result()
        return self._made(problem)

    def begin(self, problem: Problem, planned: Callable[[SearchPlan], None]) -> None:
        """Plan the search of ``problem`` in a thread, and call ``planned`` there. :meth:`outset` raises what
        goes wrong."""
        self._next = problem, self._thread.submit(self._made, problem, planned)

    def start_again(self, plan: SearchPlan, least: int) -> Future[Start | None]:
        """Begin to find out, in the same thread, what the search of ``plan`` would start from now; None where fewer
        than ``least`` configurations are known for its device and text."""
        return self._thread.submit(self._start, plan, least)

    def close(self) -> None:
        """Wait for what was begun."""
        self._thread.shutdown()

    def _made(self, problem: Problem, planned: Callable[[SearchPlan], None] = lambda plan: None) -> Outset:
        plan = SearchPlan.of(problem, self._device)
        planned(plan)
        return Outset(plan, self._start(plan, 0))
