"""One search of ``@autotune``: compile the candidates in parallel, then time those that run against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ...errors import AssemblerError, CompileTimeAssertionFailure, IllegalSchedule, OutOfResources
from ..device import Device
from .benchmark import quantile
from .compile_ahead import waves
from .config import Config
from .race import race
from .results import FAILED, QUANTILES, Timing, as_timing

#: Errors that make a configuration unusable rather than the kernel wrong.
UNUSABLE = (OutOfResources, IllegalSchedule, AssemblerError, CompileTimeAssertionFailure)


class BenchmarkFunction(Protocol):
    """A replacement for the built-in timing, as Triton takes it."""

    def __call__(self, kernel_call: Callable[[], object], *, quantiles: Sequence[float]) -> float | Sequence[float]: ...


@dataclass(frozen=True)
class Candidate:
    """A configuration in a search: ``build`` compiles it, possibly in another thread, ``call`` is one launch, and
    ``failed`` is told why it could not be compiled."""

    build: Callable[[], object]
    call: Callable[[], object]
    failed: Callable[[Exception], object] = lambda error: None


class Search:
    """Times configurations on one device. ``timings`` holds all of them, ``failures`` why some cannot run, and
    ``finalists`` those timed until the budget ended or nobody was left to compare with: only these are comparable to
    the last per cent."""

    def __init__(
        self,
        device: Device,
        *,
        warmup_ms: float,
        rep_ms: float,
        before: Callable[[], object] | None = None,
        do_bench: BenchmarkFunction | None = None,
    ) -> None:
        self.timings: dict[Config, Timing] = {}
        self.failures: dict[Config, str] = {}
        self.finalists: list[Config] = []
        self._device = device
        self._warmup_ms, self._rep_ms = warmup_ms, rep_ms
        self._before = before
        self._do_bench = do_bench

    def run(self, candidates: Mapping[Config, Candidate]) -> None:
        """Compile and time ``candidates``. A few that compile for long are timed later, against the best of the others.

        Raises:
            DeuteronError: the first error that says that the kernel is wrong, not that a configuration is unusable.
        """
        # On a CPU target what still compiles would take the cores from what is timed; so may a benchmark of the user's.
        overlap = self._device.name != "cpu" and self._do_bench is None
        builds = {config: candidate.build for config, candidate in candidates.items()}
        with closing(waves(builds, overlap=overlap)) as ready:
            for errors in ready:
                usable = {c: candidates[c].call for c, why in errors.items() if self._runs(c, candidates[c], why)}
                self._device.synchronize()
                if self._do_bench is not None:
                    self._time_alone(usable, self._do_bench)
                elif usable:
                    self._time_together({c: candidates[c].call for c in self.finalists[:1]} | usable)

    def _runs(self, config: Config, candidate: Candidate, error: Exception | None) -> bool:
        """Whether a configuration compiled and launches; notes why not."""
        try:
            if error is not None:
                candidate.failed(error)
                raise error
            if self._before:
                self._before()
            candidate.call()
        except UNUSABLE as why:
            self.timings[config] = FAILED
            self.failures[config] = f"{type(why).__name__}: {why.message}"
            return False
        return True

    def _time_alone(self, calls: Mapping[Config, Callable[[], object]], bench: BenchmarkFunction) -> None:
        for config, call in calls.items():
            launch = call if self._before is None else partial(_in_turn, self._before, call)
            self.timings[config] = as_timing(bench(launch, quantiles=QUANTILES))
        self.finalists += calls

    def _time_together(self, calls: Mapping[Config, Callable[[], object]]) -> None:
        configs = list(calls)
        outcome = race(
            list(calls.values()),
            self._device,
            warmup_ms=self._warmup_ms,
            rep_ms=self._rep_ms,
            before=self._before,
        )
        for config, times in zip(configs, outcome.times, strict=True):
            self.timings[config] = as_timing([quantile(times, q) for q in QUANTILES])
        self.finalists = [configs[i] for i in outcome.finalists]


def _in_turn(before: Callable[[], object], call: Callable[[], object]) -> object:
    """What a benchmark of the user's launches: as often as it likes, and each time on arrays that were reset."""
    before()
    return call()
