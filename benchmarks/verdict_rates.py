"""How often a final says what, by simulation: the code of the tuner on times that are recorded noise times a known
ratio.

python benchmarks/verdict_rates.py [--searches 2000] [--recordings FOLDER] [--machines idle,neighbour] [--out FILE]

A simulated search has a default and some finalists that are all ``ratio`` times as long. Visit after visit, whoever's
turn it is, times are disturbed by what happened on real GPUs: the 32 repeats of recorded configurations, each divided
by their median, in the order in which they were taken, one configuration after another. So clocks ramp up, step and
drift as they did there. The machine ``neighbour`` adds another job: bursts of ten visits on average, a third of the
time, in which a visit takes half as long again on average (exponentially distributed), and a slow drift of 5 % either
way. On ``crowded`` the bursts fill two thirds of the time, and every visit varies by 3 % besides. ``W6600`` is a GPU
that fell asleep between configurations: the first repeats take twice as long.

The repeats are a sample of Kernel Tuner's cache files of the AutoTuningAssociation (``tests/tuner/data``), or with
``--recordings`` those of the fastest tenth of all configurations in the files of a folder.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from deuteron.tuner.decision import choose
from deuteron.tuner.measure.sampling import Stopwatch, interleaved_rounds
from deuteron.tuner.measure.statistics import Verdict, familywise, median_interval, paired_ratio
from deuteron.tuner.measure.stopping import is_settled
from deuteron.tuner.races import FINAL_SECONDS
from deuteron.tuner.trial import Trial

VERDICTS = get_args(Verdict)
SAMPLE = Path(__file__).resolve().parents[1] / "tests" / "tuner" / "data" / "timing-residuals.json"
RATIOS = (1.0, 0.995, 0.99, 0.98, 0.97, 0.95)
FINALISTS = (1, 2, 3, 4)
ASLEEP = "convolution-W6600"
KERNEL_NS = 1e6

Repeats = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Load:
    """Another job. ``begins``: the chance that a burst begins with a visit; ``jitter``: what each visit varies by."""

    begins: float
    jitter: float


LOADS = {"neighbour": Load(0.05, 0.0), "crowded": Load(0.2, 0.03)}


@dataclass
class Machine:
    """A device whose kernels take :data:`KERNEL_NS` times a ratio times what happens on it. ``repeats``: logarithms of
    time over median, a row for each recorded configuration."""

    rng: random.Random
    repeats: Repeats
    load: Load | None
    now: float = 0.0
    busy: bool = False

    def __post_init__(self) -> None:
        self._disturbances = itertools.chain.from_iterable(self.rng.choice(self.repeats) for _ in itertools.repeat(0))
        self._phase = self.rng.random()

    def kernel(self, ratio: float) -> Callable[[], None]:
        def launch() -> None:
            self.now += KERNEL_NS * ratio * math.exp(next(self._disturbances)) * self._neighbour()

        return launch

    def _neighbour(self) -> float:
        load = self.load
        if load is None:
            return 1.0
        self.busy = self.rng.random() < (0.9 if self.busy else load.begins)
        drift = 1 + 0.05 * math.sin(2 * math.pi * (self.now / (500 * KERNEL_NS) + self._phase))
        jitter = math.exp(self.rng.gauss(0, load.jitter))
        return drift * jitter * (1 + self.rng.expovariate(2.0) if self.busy else 1.0)

    def timer(self) -> MachineTimer:
        return MachineTimer(self)

    def flush_l2(self) -> None: ...

    def held_back(self, rest_ns: float = 0.0) -> AbstractContextManager[None]:
        return nullcontext()

    def synchronize(self) -> None: ...

    def clocks(self) -> None: ...


class MachineTimer:
    def __init__(self, machine: Machine) -> None:
        self._machine, self._began, self._ended = machine, 0.0, 0.0

    def start(self) -> None:
        self._began = self._machine.now

    def stop(self) -> None:
        self._ended = self._machine.now

    def elapsed_ns(self) -> int:
        return round(self._ended - self._began)


def final(machine: Machine, ratio: float, finalists: int, seed: int) -> tuple[str, int]:
    """The verdict of one simulated final of as many rounds as fit its time, and the rounds it took."""
    ratios = [1.0] + [ratio] * finalists
    most = int(FINAL_SECONDS * 1e9 / (2 * KERNEL_NS * len(ratios)))  # a visit is two launches, one of them untimed
    times = interleaved_rounds(
        Stopwatch(machine, cold=True),
        [machine.kernel(r) for r in ratios],
        rounds=most,
        seconds=math.inf,
        seed=seed,
        enough=is_settled,
    ).times
    trials: list[Trial] = []
    for values in times:
        found = paired_ratio(values, times[0], familywise(finalists))
        metrics = {
            "ratio": found.median,
            "ratio_low": found.low,
            "ratio_high": found.high,
            "ratio_pairs": float(found.samples),
        }
        trials.append(Trial(len(trials), {}, "ok", "final", median_interval(values), metrics=metrics))
    return choose(trials).verdict, len(times[0])


@dataclass(frozen=True)
class Cell:
    """What ``searches`` said on one machine with one ratio and number of finalists; ``rounds`` of the median search."""

    machine: str
    ratio: float
    finalists: int
    searches: int
    counts: dict[str, int]
    rounds: float
    seconds: float

    def share(self, verdict: str) -> float:
        return self.counts[verdict] / self.searches


def cell(machine: str, repeats: Repeats, ratio: float, finalists: int, searches: int) -> Cell:
    """Simulate one cell; the same arguments give the same counts."""
    rng = random.Random(f"{machine} {ratio} {finalists}")
    counts, rounds = dict.fromkeys(VERDICTS, 0), []
    for seed in range(searches):
        verdict, took = final(Machine(rng, repeats, LOADS.get(machine)), ratio, finalists, seed)
        counts[verdict] += 1
        rounds.append(took)
    median = statistics.median(rounds)
    seconds = median * 2 * KERNEL_NS * (finalists + 1) / 1e9
    return Cell(machine, ratio, finalists, searches, counts, median, seconds)


def read_sample(path: Path = SAMPLE) -> dict[str, Repeats]:
    """The committed repeats of each recorded space, as logarithms of time over median."""
    spaces = json.loads(path.read_text())["spaces"]
    return {name: [[value / 1e4 for value in row] for row in rows] for name, rows in spaces.items()}


def read_recordings(folder: Path) -> dict[str, Repeats]:
    """The same of the fastest tenth of all recorded configurations in a folder's Kernel Tuner cache files."""
    from deuteron.tuner.replay import read_recording

    spaces: dict[str, Repeats] = {}
    for path in sorted(folder.glob("*.json.gz")):
        measured = [t for t in read_recording(path).trials if t.time_ns is not None and len(t.samples_ns) == 32]
        measured.sort(key=lambda trial: trial.time_ns or 0.0)
        spaces[path.name.removesuffix(".json.gz")] = [
            [math.log(sample / statistics.median(trial.samples_ns)) for sample in trial.samples_ns]
            for trial in measured[: len(measured) // 10]
        ]
    return spaces


def repeats_of(machine: str, spaces: dict[str, Repeats]) -> Repeats:
    """What may happen on a machine: for ``W6600`` that GPU's repeats, for the others those of all other GPUs."""
    asleep = machine == "W6600"
    return [row for name, rows in spaces.items() if (name == ASLEEP) == asleep for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=2000, help="for each cell of the table")
    parser.add_argument("--recordings", type=Path)
    parser.add_argument("--machines", default="idle,neighbour,crowded,W6600")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    spaces = read_recordings(options.recordings) if options.recordings else read_sample()
    print(f"{options.searches} searches a line; seconds of a kernel of {KERNEL_NS / 1e6:g} ms, median search")
    print("machine    ratio finalists " + "".join(f"{name:>11}" for name in VERDICTS) + "   rounds  seconds")
    cells: list[Cell] = []
    for machine, finalists, ratio in itertools.product(options.machines.split(","), FINALISTS, RATIOS):
        found = cell(machine, repeats_of(machine, spaces), ratio, finalists, options.searches)
        cells.append(found)
        shares = "".join(f"{100 * found.share(name):10.2f}%" for name in VERDICTS)
        print(f"{machine:<10} {ratio:5.3f} {finalists:9} {shares} {found.rounds:8.0f} {found.seconds:8.2f}", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps([vars(found) for found in cells], indent=1))


if __name__ == "__main__":
    main()
