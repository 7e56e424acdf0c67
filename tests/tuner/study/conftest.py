"""Whole searches with an evaluator that makes times up: everything except compiling and measuring is real."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from deuteron.tuner.evaluate.messages import Compiled, Extended, Raced, Screened
from deuteron.tuner.events import TrialFinished, TuneEvent
from deuteron.tuner.job import Budget, JobSpec
from deuteron.tuner.measure.measurement import CodeFacts, TimingProtocol
from deuteron.tuner.measure.statistics import median_interval
from deuteron.tuner.measure.stopping import is_settled, next_look
from deuteron.tuner.space import Configuration, config_key
from deuteron.tuner.study import run_job
from deuteron.tuner.trial import Trial
from deuteron.tuner.workloads import Problem, builtin_workload

CODE = CodeFacts(3, registers=40)
FIRST_LOOK, ROUNDS = TimingProtocol("host", False, "first look"), TimingProtocol("host", False, "rounds")
LOOKS = list(itertools.accumulate(range(40), lambda rounds, _: next_look(rounds)))


class FakeEvaluator:
    """``time_of(config)`` in ns, or a status text for a failure, or None for a compile error."""

    exclusive = True
    workers = 2

    def __init__(
        self,
        time_of: Callable[[Configuration], float | str | None],
        *,
        noise: float = 0.003,
        identity: Callable[[Configuration], str] = config_key,
        crash_in_race: Callable[[Configuration], bool] = lambda config: False,
    ) -> None:
        self.time_of, self.noise, self.identity = time_of, noise, identity
        self.crash_in_race = crash_in_race
        self.rng = random.Random(5)
        self.screened: list[str] = []
        self.races: list[tuple[bool, list[str]]] = []
        self.extended: list[str] = []
        self.closed = False

    def sample(self, config: Configuration) -> float:
        value = self.time_of(config)
        assert isinstance(value, float | int)
        return value * (1 + self.noise * self.rng.gauss(0, 1))

    def submit(self, config: Configuration) -> None: ...

    def next_compiled(self, configs: Sequence[Configuration]) -> int:
        return 0

    def must_wait(self, configs: Sequence[Configuration]) -> bool:
        return False

    def settle(self) -> None: ...

    def prepare_final(self, seed: int) -> None: ...

    def prepare_next_problem(self, problem: Problem, default: Configuration) -> None: ...

    def compiled(self, config: Configuration) -> Compiled:
        if self.time_of(config) is None:
            return Compiled("compile_error", "line 3: no")
        return Compiled("ok", None, self.identity(config), {"registers": 32.0}, 0.01, CODE)

    def screen(
        self, config: Configuration, best_ns: float | None, meanwhile: Callable[[], None] = lambda: None
    ) -> Screened:
        self.screened.append(config_key(config))
        value = self.time_of(config)
        if isinstance(value, str):
            return Screened(value, "it went wrong")
        samples = [self.sample(config) for _ in range(7)]
        return Screened(
            "ok", time_ns=median_interval(samples), reference="a fake", check_seconds=0.1, protocol=FIRST_LOOK
        )

    def race(
        self,
        configs: Sequence[Configuration],
        *,
        rounds: int,
        seconds: float,
        seed: int,
        fresh: bool,
    ) -> Raced:
        self.races.append((fresh, [config_key(c) for c in configs]))
        if any(self.crash_in_race(config) for config in configs):
            return Raced("crashed", "the child process was ended by SIGSEGV")
        times: list[list[float]] = [[] for _ in configs]
        for done in range(1, min(rounds, 2000) + 1):  # as if time ended it
            for config, values in zip(configs, times, strict=True):
                values.append(self.sample(config))
            if fresh and done in LOOKS and is_settled(times):
                break
        self.last = Raced("ok", None, times, [None] * len(configs), 1500, "a fake", protocol=ROUNDS)
        return self.last

    def extend(self, config: Configuration, seed: int) -> Extended:
        self.extended.append(config_key(config))
        return Extended("ok", sizes={"M": 8191})

    def close(self) -> None:
        self.closed = True


def job(trials: int | None = 30, strategy: str = "random", seconds: float | None = None, **more: object) -> JobSpec:
    return JobSpec(
        workload=builtin_workload("softmax"),
        shapes=({"M": 4096, "N": 512},),
        dtypes=("f32",),
        budget=Budget(trials, seconds),
        strategy=strategy,
        **more,  # type: ignore[arg-type]
    )


def bowl(config: Configuration) -> float:
    """The default ROWS=1, TILES=1 takes 1300 ns, the best ROWS=4, TILES=2 takes 1000."""
    rows, tiles = int(config["ROWS"]), int(config["TILES"])
    return 1000.0 + 100 * abs(rows.bit_length() - 3) + 100 * abs(tiles.bit_length() - 2)


class Run:
    def __init__(
        self,
        spec: JobSpec,
        evaluator: FakeEvaluator,
        workdir: Path,
        finished: Sequence[tuple[Mapping[str, int], str, Trial]] = (),
        cancel_after: int | None = None,
    ) -> None:
        self.events: list[TuneEvent] = []
        self.records = run_job(
            spec,
            emit=self.events.append,
            finished=finished,
            cancelled=lambda: cancel_after is not None and len(self.trials) >= cancel_after,
            workdir=workdir,
            evaluator=lambda problem, device, default, seed: evaluator,
        )

    @property
    def finished(self) -> list[tuple[Mapping[str, int], str, Trial]]:
        return [(e.shape, e.dtype, e.trial) for e in self.events if isinstance(e, TrialFinished)]

    @property
    def trials(self) -> list[Trial]:
        return [trial for _, _, trial in self.finished]


@pytest.fixture(scope="session")
def fakes() -> ModuleType:
    """This module: test files cannot import each other."""
    return sys.modules[__name__]
