"""What searches say of equal candidates: real searches on this machine's CPU among kernels that do the same work with
different code.

python benchmarks/verdicts.py [--searches 100] [--elements 4096] [--neighbours 0] [--out FILE]

Each search is a job of its own (:func:`deuteron.tuner.study.run_job`, the function behind ``deuteron tune``) over eight
twins of one kernel: the twins differ in a constant that only a branch uses which no launch takes. A quarter of a
percent apart, as code placement makes them, they should be called SAME; FASTER is a false alarm, of which 2.5 % are
allowed. ``--neighbours`` starts that many processes that keep a core busy and walk over memory, on and off.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from deuteron.tuner.events import TrialFinished, TuneEvent
from deuteron.tuner.job import Budget, JobSpec
from deuteron.tuner.measure.statistics import Verdict
from deuteron.tuner.study import run_job
from deuteron.tuner.trial import Trial
from deuteron.tuner.workloads import WorkloadSpec

VERDICTS = get_args(Verdict)
TWINS = 8
KERNEL = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr, TWIN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + offsets, mask=offsets < n) * factor
    if n < 0:
        y = y + TWIN
    tl.store(y_ptr + offsets, y, mask=offsets < n)
"""
NEIGHBOUR = """
import random, time
memory = bytearray(64 << 20)
while True:
    end = time.monotonic() + random.expovariate(1 / 0.05)
    while time.monotonic() < end:
        memory[::4096] = bytes(len(memory) // 4096)
    time.sleep(random.expovariate(1 / 0.02))
"""


@dataclass(frozen=True)
class Search:
    """What one search gave; ``ratio`` of the best challenger's time to the default's, ``low`` to ``high`` its interval;
    all of them 1 where the race left the default alone."""

    verdict: str
    seconds: float
    final_seconds: float
    rounds: int
    ratio: float
    low: float
    high: float


def workload(elements: int) -> WorkloadSpec:
    """The twins on a vector of ``elements`` f32."""
    return WorkloadSpec.from_json(
        {
            "kernel": {"name": "scale", "source": KERNEL},
            "name": "twins",
            "dims": ["n"],
            "tensors": [
                {"name": "x_ptr", "shape": ["n"]},
                {"name": "y_ptr", "shape": ["n"], "role": "output"},
            ],
            "scalars": {"n": "n", "factor": "2.5"},
            "grid": ["cdiv(n, BLOCK)"],
            "bytes": "2 * n * element_bytes",
            "spaces": {
                "any": {"parameters": {"BLOCK": [1024], "TWIN": list(range(1, TWINS + 1))}, "constraints": []},
            },
            "shapes": [{"n": elements}],
            "dtypes": ["f32"],
        }
    )


def search(twins: WorkloadSpec, elements: int, seed: int) -> Search:
    """One search from the beginning."""
    trials: list[Trial] = []

    def emit(event: TuneEvent) -> None:
        if isinstance(event, TrialFinished):
            trials.append(event.trial)

    job = JobSpec(twins, ({"n": elements},), ("f32",), budget=Budget(TWINS), strategy="exhaustive", seed=seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        (record,) = run_job(job, emit=emit, workdir=Path(folder))
    final = [trial for trial in trials if trial.phase == "final"]
    best = min(final[1:], key=lambda trial: trial.metrics["ratio"], default=final[0]).metrics
    return Search(
        record.verdict,
        time.monotonic() - began,
        sum(trial.metrics["measure_s"] for trial in final),
        int(best["ratio_pairs"]),
        best["ratio"],
        best["ratio_low"],
        best["ratio_high"],
    )


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Busy processes beside us."""
    started = [subprocess.Popen([sys.executable, "-c", NEIGHBOUR]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def report(searches: list[Search]) -> None:
    """The table of verdicts and the times."""
    counts = Counter(search.verdict for search in searches)
    for name in VERDICTS:
        print(f"{name:<10} {counts[name]:>5} {100 * counts[name] / len(searches):6.1f} %")
    for what, values in (
        ("seconds a search", [search.seconds for search in searches]),
        ("seconds measured in the final", [search.final_seconds for search in searches]),
        ("rounds of the final", [float(search.rounds) for search in searches]),
        ("width of the interval, %", [100 * (search.high - search.low) for search in searches]),
        ("ratio of the best challenger", [search.ratio for search in searches]),
    ):
        print(f"{what:<30} median {statistics.median(values):.4g}, {min(values):.4g} to {max(values):.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--elements", type=int, default=4096, help="4096: one thread; 65536: all cores")
    parser.add_argument("--neighbours", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    twins = workload(options.elements)
    found: list[Search] = []
    with neighbours(options.neighbours):
        for seed in range(options.searches):
            found.append(search(twins, options.elements, seed))
            print(f"{seed + 1}/{options.searches}: {found[-1].verdict}", end="   \r", file=sys.stderr)
    print(f"{options.searches} searches among {TWINS} twins of {options.elements} elements on {platform.machine()}")
    report(found)
    if options.out is not None:
        options.out.write_text(
            json.dumps({"options": vars(options) | {"out": None}, "searches": list(map(asdict, found))})
        )


if __name__ == "__main__":
    main()
