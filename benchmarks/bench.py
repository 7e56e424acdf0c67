"""The side of a contest that holds the device: a service that checks candidates of one problem and times them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from candidates import Candidate
from isolated import raise_if_lost
from timing import Call, Timing, race, relative_error


class Bench(ABC):
    """Holds one problem at a time. A subclass draws the inputs and says what the results must be."""

    #: What candidates write, what that must be, and the largest relative error in the Frobenius norm.
    outputs: Sequence[torch.Tensor]
    wanted: Sequence[torch.Tensor]
    tolerance: float

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._calls: dict[str, Call] = {}
        self._libraries: dict[str, Call] = {}

    @abstractmethod
    def draw(self, problem: Any) -> dict[str, Callable[[], Call]]:
        """Make inputs, outputs and reference; the libraries to compare with, by name. Each is made ready when it is
        asked for, and returns its results."""

    @abstractmethod
    def launch(self, candidate: Candidate) -> Call:
        """A run of a candidate on the problem's arrays."""

    def prepare(self, problem: Any) -> dict[str, str]:
        """Begin a problem with fresh N(0, 1) inputs; the libraries that cannot run it, and why."""
        torch.manual_seed(0)
        self._calls, self._libraries = {}, {}
        self._device = problem.device
        missing = {}
        for name, ready in self.draw(problem).items():
            self._announce(name)
            try:
                call = ready()
                found = call()
                self._compare([found] if isinstance(found, torch.Tensor) else list(found))
                self._libraries[name] = call
            except (RuntimeError, ValueError) as why:
                self._survive(why)
                missing[name] = f"{type(why).__name__}: {why}"
        return missing

    def check(self, candidate: Candidate) -> float:
        """Run once on poisoned outputs; the largest relative error. Only candidates that pass can be timed.

        Raises:
            ValueError: the result is wrong.
        """
        self._announce(candidate.name)
        try:
            call = self.launch(candidate)
            for output in self.outputs:
                output.fill_(float("nan"))
            call()
            error = self._compare(self.outputs)
        except Exception as problem:
            self._survive(problem)
            raise
        self._calls[candidate.name] = call
        return error

    def _compare(self, found: Sequence[torch.Tensor]) -> float:
        errors = [relative_error(f, w) for f, w in zip(found, self.wanted, strict=True)]
        for i, error in enumerate(errors):
            if not error < self.tolerance:
                raise ValueError(f"wrong result: relative error {error:.1e} of output {i}")
        return max(errors)

    def _survive(self, problem: Exception) -> None:
        if self._device.startswith("cuda"):
            raise_if_lost(problem)

    def admitted(self) -> list[str]:
        """The candidates that passed here."""
        return list(self._calls)

    def race(self, names: Sequence[str], rounds: int) -> dict[str, Timing]:
        """Time admitted candidates in turns with the libraries."""
        calls = self._libraries | {name: self._calls[name] for name in names}
        return race(calls, self._device, rounds, self._announce)
