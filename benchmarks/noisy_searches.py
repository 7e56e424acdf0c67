"""How good what whole searches store is when every timing is disturbed: screen, race and final on recorded spaces.

python benchmarks/noisy_searches.py SPACE.json... [--searches 50] [--trials 200] [--machines idle,neighbour] [--out F]

Everything of a search is the tuner's own but compiling and the clock: a configuration takes its recorded mean time, and
each visit is disturbed as on the machines of verdict_rates.py, by what happened on real GPUs and by another job. The
default of a search is a configuration that works, drawn at random; the strategy is the default one, which knows the
constraints. ``regret``: by how much what is stored is slower, by recorded means, than the fastest of all that this
search screened; ``loss``: than the fastest of the space, which includes what the search never tried.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sources import environment
from verdict_rates import LOADS, Machine, Repeats, read_sample, repeats_of

from deuteron.compiler import get_device
from deuteron.tuner.decision import choose
from deuteron.tuner.evaluate.messages import Compiled, Extended, Raced, Screened
from deuteron.tuner.measure.sampling import Stopwatch, first_look, interleaved_rounds
from deuteron.tuner.measure.stopping import is_settled
from deuteron.tuner.replay import Recording, read_recording
from deuteron.tuner.screening import Screening
from deuteron.tuner.search_run import SearchRun
from deuteron.tuner.shape_search import search_shape
from deuteron.tuner.space import Configuration, config_key
from deuteron.tuner.strategies import make_strategy
from deuteron.tuner.study import gauge_of
from deuteron.tuner.workloads import Problem, builtin_workload

MACHINES = ("idle", *LOADS)


class RecordedEvaluator:
    """Times of a recording on a simulated machine. The final runs on another one, as in a new process."""

    exclusive = False
    workers = 4

    def __init__(self, recording: Recording, machine: str, repeats: Repeats, seed: int) -> None:
        self._recording, self._name, self._repeats = recording, machine, repeats
        self._machine = self._made(seed)

    def submit(self, config: Configuration) -> None: ...

    def must_wait(self, configs: Sequence[Configuration]) -> bool:
        return False

    def next_compiled(self, configs: Sequence[Configuration]) -> int:
        return 0

    def settle(self) -> None: ...

    def prepare_final(self, seed: int) -> None: ...

    def prepare_next_problem(self, problem: Problem, default: Configuration) -> None: ...

    def extend(self, config: Configuration, seed: int) -> Extended:
        return Extended("ok")  # what was recorded is of one shape

    def close(self) -> None: ...

    def compiled(self, config: Configuration) -> Compiled:
        if self._recording.time_ns(config) is None:
            return Compiled("compile_error", "failed when it was recorded")
        return Compiled("ok", None, config_key(config))

    def screen(
        self, config: Configuration, best_ns: float | None, meanwhile: Callable[[], None] = lambda: None
    ) -> Screened:
        stopwatch = Stopwatch(self._machine, cold=True)
        look = first_look(stopwatch, self._kernel(config), best_ns)
        return Screened("ok", time_ns=look.interval, protocol=stopwatch.protocol("first look"), hopeless=look.hopeless)

    def race(self, configs: Sequence[Configuration], *, rounds: int, seconds: float, seed: int, fresh: bool) -> Raced:
        if fresh:
            self._machine = self._made(seed)
        visit_ns = 2 * sum(self._time_ns(config) for config in configs)  # a visit is two launches, one of them untimed
        stopwatch = Stopwatch(self._machine, cold=True)
        found = interleaved_rounds(
            stopwatch,
            [self._kernel(config) for config in configs],
            rounds=max(10, min(rounds, int(seconds * 1e9 / visit_ns))),
            seconds=math.inf,
            seed=seed,
            enough=is_settled if fresh else None,
        )
        return Raced("ok", None, found.times, [None] * len(configs), protocol=stopwatch.protocol("rounds"))

    def _made(self, seed: int) -> Machine:
        return Machine(random.Random(seed), self._repeats, LOADS.get(self._name))

    def _time_ns(self, config: Configuration) -> float:
        time_ns = self._recording.time_ns(config)
        assert time_ns is not None
        return time_ns

    def _kernel(self, config: Configuration):  # type: ignore[no-untyped-def]
        return self._machine.kernel(self._time_ns(config) / 1e6)


@dataclass(frozen=True)
class Stored:
    """What one search came to; ``default_loss`` as ``loss``, of the configuration that it began with."""

    verdict: str
    regret: float
    loss: float
    default_loss: float


def search_once(recording: Recording, machine: str, repeats: Repeats, trials: int, seed: int) -> Stored:
    """One search, from the default to the configuration that would be stored."""
    space = recording.space("constrained")
    working = [trial.config for trial in recording.known if trial.time_ns is not None]
    default = dict(random.Random(seed).choice(working))
    problem = Problem(builtin_workload("vector_add"), {"n": 1 << 24}, "f32")
    search = SearchRun(
        problem=problem,
        evaluator=RecordedEvaluator(recording, machine, repeats, seed),
        gauge=gauge_of(problem, get_device("cpu").properties),
        finish=lambda trial, incumbent: search.trials.append(trial),
        cancelled=lambda: False,
        seconds=None,
        seed=seed,
    )
    screening = Screening(search, default, lambda _: make_strategy("surrogate", space, seed), trials)
    final = search_shape(search, screening, lambda: None)
    decision = choose(final)
    stored = recording.time_ns(decision.stored.config)
    screened = [recording.time_ns(trial.config) for trial in search.trials if trial.phase == "screen"]
    begun = recording.time_ns(default)
    assert stored is not None and begun is not None
    best = min(time_ns for time_ns in screened if time_ns is not None)
    return Stored(decision.verdict, stored / best - 1, stored / recording.best_ns - 1, begun / recording.best_ns - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "spaces", type=Path, nargs="+", metavar="SPACE", help="recorded spaces, as deuteron replay reads"
    )
    parser.add_argument("--searches", type=int, default=50, help="on each machine, the spaces in turns")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--machines", default="idle,neighbour", help=f"of {', '.join(MACHINES)}")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    recordings = [read_recording(path) for path in options.spaces]
    sample, rows = read_sample(), []
    print(f"{'machine':12}{'searches':>9}{'mean regret':>12}{'worst':>8}{'mean loss':>10}   verdicts")
    for machine in options.machines.split(","):
        found = []
        for seed in range(options.searches):
            recording = recordings[seed % len(recordings)]
            stored = search_once(recording, machine, repeats_of(machine, sample), options.trials, seed)
            found.append(stored)
            rows.append({"machine": machine, "space": recording.name, "seed": seed, **asdict(stored)})
        regret, loss = [s.regret for s in found], [s.loss for s in found]
        said = ", ".join(f"{count} {verdict}" for verdict, count in Counter(s.verdict for s in found).most_common())
        print(
            f"{machine:12}{len(found):9d}{statistics.mean(regret):12.2%}{max(regret):8.1%}"
            f"{statistics.mean(loss):10.2%}   {said}",
            flush=True,
        )
    if options.out:
        document = {"environment": environment(), "trials": options.trials, "searches": rows}
        options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
