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


class Planner:
    """Plans problems, and one ahead: compiling what a plan compares takes tenths of a second, in which the device
    would wait. Close it at the end."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="plan")
        self._next: tuple[Problem, Future[SearchPlan]] | None = None

    def plan(self, problem: Problem) -> SearchPlan:
        """The plan of a problem; raises as :meth:`SearchPlan.of`."""
        known, self._next = self._next, None
        if known is not None and known[0] is problem:
            return known[1].result()
        return SearchPlan.of(problem, self._device)

    def begin(self, problem: Problem, then: Callable[[SearchPlan], None]) -> None:
        """Plan ``problem`` in a thread, and call ``then`` there. What goes wrong says :meth:`plan`."""

        def run() -> SearchPlan:
            made = SearchPlan.of(problem, self._device)
            then(made)
            return made

        self._next = problem, self._thread.submit(run)

    def close(self) -> None:
        """Wait for what was begun."""
        self._thread.shutdown()
