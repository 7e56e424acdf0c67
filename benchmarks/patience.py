"""When a search that started from others may end: what rules would have saved and lost, all on the same searches.

python benchmarks/patience.py --device cuda:0 --searches searches.json [--trials 100] [--seconds 200]
python benchmarks/patience.py --searches searches.json

Searches of built-in workloads, none of them ended early: jobs of two shapes, dealt out as ``deuteron submit --jobs``
does, each of which starts from all before it. ``--searches`` keeps what they saw; without a device it is read. The loss
of a rule is how much slower than the best of the whole search the best was where the rule would have ended it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from gpu_table import matmul_shapes
from sources import environment

from deuteron.compiler.runtime.devices import get_device
from deuteron.tuner import Budget, JobSpec, Trial, run_job
from deuteron.tuner.events import ShapeStarted, TrialFinished, TuneEvent
from deuteron.tuner.experience import SearchLog, SearchPlace, course, logs_of_trials
from deuteron.tuner.experience.patience import (
    AGREEMENT,
    GAIN,
    LONG_PATIENCE,
    PAIRS,
    PATIENCE,
    Patience,
    rank_correlation,
)
from deuteron.tuner.records import DeviceFingerprint
from deuteron.tuner.workloads import builtin_workload

#: In the order in which they were measured: the predicted logarithm of the time, and the time in ns or None.
Seen: TypeAlias = list[tuple[float, float | None]]
Rule: TypeAlias = Callable[[Seen], bool]

CPU_MATMUL = [{"M": m, "N": n, "K": k} for m in (32, 128, 512) for n in (64, 256) for k in (64, 256)]
CPU_ROWS = [{"M": m, "N": n} for m in (1024, 4096) for n in (128, 256, 512, 1024)]


class Watching(Patience):
    """Keeps what it is told, and never ends a search."""

    latest: Seen

    def __init__(self) -> None:
        super().__init__()
        Watching.latest = []

    def tell(self, predicted: float, time_ns: float | None) -> None:
        super().tell(predicted, time_ns)
        Watching.latest.append((round(predicted, 5), time_ns))

    @property
    def over(self) -> bool:
        return False


def searched(workload: str, shapes: Sequence[dict[str, int]], device: str, trials: int, until: float) -> list[dict]:
    """What the searches of these shapes saw that started from others."""
    spec = builtin_workload(workload)
    dtype = "f32" if device == "cpu" else "bf16"
    key = DeviceFingerprint.of(get_device(device).properties).key
    logs: list[SearchLog] = []
    found: list[dict] = []

    def emit(event: TuneEvent) -> None:
        if isinstance(event, ShapeStarted):
            Watching.latest = []
            found.append({"workload": workload, "shape": dict(event.shape), "seen": Watching.latest})
        if isinstance(event, TrialFinished):
            found[-1]["seen"] = Watching.latest
            measured.append((event.shape, event.dtype, event.trial))

    def known(place: SearchPlace) -> list[SearchLog]:
        return logs

    for job in JobSpec(spec, tuple(shapes), (dtype,), device, Budget(trials)).split(len(shapes) // 2):
        measured: list[tuple[Mapping[str, int], str, Trial]] = []
        if time.monotonic() < until:
            source = next(job.problems()).source
            with tempfile.TemporaryDirectory() as folder:
                run_job(job, emit=emit, workdir=Path(folder), known=known)
            logs += logs_of_trials(source.name, source.hash, key, measured)
    return [search for search in found if search["seen"]]


def idle(seen: Seen) -> int:
    """Evaluations since the last gain."""
    best, last = math.inf, 0
    for number, (_, time_ns) in enumerate(seen, 1):
        if time_ns is not None:
            last = number if time_ns < (1 - GAIN) * best else last
            best = min(best, time_ns)
    return len(seen) - last


def agreement(seen: Seen) -> float:
    """Rank correlation of predicted and measured times."""
    pairs = [(predicted, time_ns) for predicted, time_ns in seen if time_ns is not None]
    return rank_correlation(*zip(*pairs, strict=True)) if len(pairs) >= PAIRS else -1.0


def own(seen: Seen) -> bool:
    """What searches do."""
    patience = Patience()
    for predicted, time_ns in seen:
        patience.tell(predicted, time_ns)
    return patience.over


def agreeing(least: float) -> Rule:
    """Predictions must be good."""
    return lambda seen: idle(seen) >= PATIENCE and agreement(seen) >= least


RULES: dict[str, Rule] = {
    "the one of searches": own,
    f"{PATIENCE} without a gain, agreement {AGREEMENT}": agreeing(AGREEMENT),
    f"{PATIENCE} without a gain, agreement 0.5": agreeing(0.5),
    **{f"{n} without a gain": lambda seen, n=n: idle(seen) >= n for n in (20, 30, 40, LONG_PATIENCE)},
    "none": lambda seen: False,
}


def ended(seen: Seen, rule: Rule) -> int:
    """Evaluations until a rule ends a search."""
    return next((n for n in range(PAIRS, len(seen)) if rule(seen[:n])), len(seen))


def best(seen: Seen) -> float:
    return min(time_ns for _, time_ns in seen if time_ns is not None)


def report(searches: Sequence[dict]) -> None:
    """A line for each rule and workload."""
    for workload in dict.fromkeys(search["workload"] for search in searches):
        runs = [search["seen"] for search in searches if search["workload"] == workload]
        print(f"{workload}, {len(runs)} searches:")
        for name, rule in RULES.items():
            counts = [ended(seen, rule) for seen in runs]
            losses = [1 - best(seen) / best(seen[:count]) for seen, count in zip(runs, counts, strict=True)]
            spent = f"{statistics.fmean(counts):5.1f} +- {statistics.pstdev(counts):4.1f} evaluations"
            print(f"  {name:40} {spent}, loss {statistics.fmean(losses):.2%}, at most {max(losses):.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="where to search; without one --searches is read")
    parser.add_argument("--searches", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=200.0, help="no job is begun after them")
    options = parser.parse_args()
    if options.device is not None:
        course.Patience = Watching  # type: ignore[misc]
        until = time.monotonic() + options.seconds
        on_cpu = options.device == "cpu"
        work = {"matmul": CPU_MATMUL, "softmax": CPU_ROWS} if on_cpu else {"matmul": matmul_shapes()[:40]}
        searches = [
            search
            for workload, shapes in work.items()
            for search in searched(workload, shapes, options.device, options.trials, until)
        ]
        text = json.dumps({"environment": environment(), "searches": searches}, separators=(",", ":"))
        options.searches.write_text(text + "\n")
    report(json.loads(options.searches.read_text())["searches"])


if __name__ == "__main__":
    main()
