"""What a job's problems are evaluated by, and how evaluators on this machine are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from .codec import Scalar
from .evaluate.evaluator import Evaluator, LocalEvaluator
from .evaluate.kept import kept_processes
from .evaluate.measuring import patience_for
from .evaluate.nursery import shared_nursery
from .evaluate.processes import Processes
from .possible import has_room
from .workloads import Problem

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import Device


class EvaluatorFactory(Protocol):
    """Makes the evaluator of one problem."""

    def __call__(self, problem: Problem, device: Device, default: Mapping[str, Scalar], seed: int) -> Evaluator: ...


@contextmanager
def local_evaluators(device: str, seconds: float | None = None) -> Iterator[EvaluatorFactory]:
    """Evaluators on this machine, one after the other, which share child processes. ``device``: where they will
    measure; ``seconds``: the budget of all of them."""
    # On a CPU starting processes costs little, and what ran in them shares their memory.
    with Processes(nursery=shared_nursery()) if device == "cpu" else kept_processes().lent(device) as processes:

        def make(problem: Problem, device: Device, default: Mapping[str, Scalar], seed: int) -> Evaluator:
            from .evaluate.growth import FirstLarger  # lazy: help and submissions need no compiler

            properties = device.properties
            return LocalEvaluator(
                problem,
                device.name,
                device.target,
                properties.kind,
                default,
                seed,
                processors=properties.sm_count,
                processes=processes,
                ahead=has_room(problem, properties),
                patience=patience_for(seconds),
                larger=FirstLarger(problem, properties, device.target),
            )

        yield make
