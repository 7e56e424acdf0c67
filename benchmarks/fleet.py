"""How much faster a service gets with a second GPU, and whether the devices disturb each other's times.

python benchmarks/fleet.py [--devices cuda:0 cuda:1] [--shapes 40] [--jobs 8] [--trials 12] [--turns 1]
                           [--limit SECONDS] [--out FILE]

Searches of the built-in matmul (bf16; f32 on a CPU), dealt out to some jobs as ``deuteron submit --jobs`` does, each
of so many trials; from 21 on (tuner/experience/patience.py) those that start from others may end earlier, and how
early differs from run to run. They are submitted at once to a service with a worker for the first device, then to a
new one with a worker for each, once these have opened their devices; all know nothing. A host is now faster and now
slower, by a twentieth within minutes where it is shared: the second of two --turns has first a worker for each
device, then for one. Figures come in pairs, for one device and for all; those of several turns are added up.
"speedup" is the searches per hour of all devices over those of one, "trials_per_hour" the same of what they screened;
a run that is not done after --limit seconds counts what it has. Of every search the default configuration is timed in
its last phase: "a/a" are the ratios of these times, other devices busy over idle, of the shapes that the first device
measured in both runs of a turn; "apart" counts those whose 95 % intervals do not meet. With one device all runs are
on it, and "a/a" says what that comes to where nothing is busy. "idle" are seconds of a run in which workers had no
job, of all workers together: before their first one, between two, and after their last one. "spent" are seconds of
their jobs: "screen wait" for what was proposed and compiled, "check" and "measure" there and in races and finals,
what these took beyond ("race rest", "final rest": processes and their inputs, and where somebody is FASTER the first
of two finals), and what was between trials of a job: "begin", "propose", "wait for compilers", "larger shapes" and
"end" as the profile of the search has them, "between trials" what none of these is.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gpu_table import matmul_shapes
from kill_site import Site, wait_for
from sources import environment

from deuteron.tuner import Budget, JobSpec
from deuteron.tuner.job import shape_key
from deuteron.tuner.workloads import builtin_workload

CPU_SHAPES = [{"M": m, "N": n, "K": k} for m in (32, 64) for n in (32, 64) for k in (32, 64)]


@dataclass(frozen=True)
class Search:
    """What a shape came to: its device, the time of the default configuration in us with its interval, and how much
    faster the stored one is."""

    shape: dict[str, int]
    device: str
    trials: int
    default_us: float
    low_us: float
    high_us: float
    speedup: float


@dataclass(frozen=True)
class Job:
    """A job that ended: who measured it, when it began and ended, in seconds after the first submission, and what its
    seconds were spent on."""

    worker: str
    begin: float
    end: float
    spent: dict[str, float]


@dataclass
class Run:
    """All searches on one set of devices; ``seconds`` from the first submission to the end of the last job, or the
    limit."""

    devices: list[str]
    seconds: float
    complete: bool
    searches: list[Search]
    jobs: list[Job]

    @property
    def per_hour(self) -> float:
        """Searches in an hour."""
        return len(self.searches) / self.seconds * 3600

    @property
    def trials(self) -> int:
        """Configurations that all searches screened."""
        return sum(search.trials for search in self.searches)

    def idle(self) -> dict[str, float]:
        """Seconds of all workers together without a job."""
        waits = {"before": 0.0, "between": 0.0, "after": 0.0}
        for worker in {job.worker for job in self.jobs}:
            own = sorted((job for job in self.jobs if job.worker == worker), key=lambda job: job.begin)
            waits["before"] += own[0].begin
            waits["between"] += sum(after.begin - job.end for job, after in itertools.pairwise(own))
            waits["after"] += self.seconds - own[-1].end
        return {when: round(seconds, 2) for when, seconds in waits.items()}

    def spent(self) -> dict[str, float]:
        """What the seconds of all jobs were spent on."""
        total: Counter[str] = Counter()
        for job in self.jobs:
            total.update(job.spent)
        return {what: round(seconds, 1) for what, seconds in total.items()}


def run(devices: Sequence[str], jobs: Sequence[JobSpec], limit: float) -> Run:
    """A service with a worker for each device works off the jobs."""
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder) / "site", separate=True, devices=tuple(devices), runner="deuteron.tuner:run_job")
        site.settings = {"DEUTERON_CACHE_DIR": str(Path(folder) / "cache"), "DEUTERON_RATE_PER_MINUTE": "0"}
        try:
            site.start()
            wait_for(lambda: site.alive() and site.announced() == len(devices), 60, "the workers have their devices")
            begin = time.monotonic()
            ids = [site.submit(**job.to_json()) for job in jobs]
            complete = _work_off(site, ids, begin + limit)
            found = [site.job(job_id) for job_id in ids]
            trials = [site.trials(job_id) for job_id in ids]
            steps = [_steps(site, job) for job in found]
        except BaseException:
            print(site.log.read_text()[-3000:])
            raise
        finally:
            site.stop()
    for job in found:
        if job["state"] in ("failed", "cancelled"):
            raise SystemExit(f"a job {job['state']}: {job['error']}")
    searches = [search for job in found for search in _searches(job)]
    submitted = min(_time(job, "created_at") for job in found)
    ended = [
        _ended(job, made, between, submitted)
        for job, made, between in zip(found, trials, steps, strict=True)
        if job["finished_at"]
    ]
    return Run(list(devices), max(job.end for job in ended) if complete else limit, complete, searches, ended)


def _work_off(site: Site, ids: Sequence[str], deadline: float) -> bool:
    """Wait until all have ended; whether they have before the deadline. Prints how far they are."""
    last = -1
    while True:
        jobs = [site.job(job_id) for job_id in ids]
        done = sum(len(job["configs"]) for job in jobs)
        if done != last:
            print(f"{done} searches, {sum(job['finished_at'] is not None for job in jobs)} jobs", flush=True)
            last = done
        if all(job["finished_at"] for job in jobs):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)


def _time(job: dict[str, Any], name: str) -> float:
    return datetime.fromisoformat(job[name]).timestamp()


def _steps(site: Site, job: dict[str, Any]) -> dict[str, float]:
    """Seconds of a job between trials, by its profile; empty while there is none."""
    found: dict[str, float] = {}
    if job["finished_at"] is None:
        return found
    kernel = next(root for root in site.get(f"/v1/jobs/{job['id']}/profile").json() if "children" in root)
    for shape in itertools.chain.from_iterable(top["children"] for top in kernel["children"]):
        for phase in shape["children"]:
            if phase["frame"]["name"] == "between trials":
                for step in phase["children"]:
                    name = step["frame"]["name"]
                    found[name] = found.get(name, 0.0) + step["metrics"]["cpu_time (ns)"] / 1e9
    return found


def _ended(job: dict[str, Any], trials: Sequence[dict[str, Any]], steps: dict[str, float], submitted: float) -> Job:
    begin, end = _time(job, "started_at") - submitted, _time(job, "finished_at") - submitted
    spent: Counter[str] = Counter()
    for trial in (one["trial"] for one in trials):
        phase, metrics, left = trial["phase"], trial["metrics"], float(trial["duration_s"])
        for step in ("check", "measure"):
            seconds = metrics.get(f"{step}_s", 0.0)
            spent[f"{phase} {step}"] += seconds
            left -= seconds
        spent["screen wait" if phase == "screen" else f"{phase} rest"] += left
    spent.update(steps)
    spent["between trials"] = end - begin - sum(spent.values())
    return Job(job["worker"], begin, end, {what: round(seconds, 3) for what, seconds in spent.items()})


def _searches(job: dict[str, Any]) -> Iterator[Search]:
    device = str(job["worker"]).partition("@")[0]
    for record in job["configs"]:
        default = record["default_time_ns"]
        median, low, high = (default[name] / 1e3 for name in ("median", "low", "high"))
        yield Search(record["shape"], device, record["trials"], median, low, high, record["speedup"]["median"])


def compare(turns: Sequence[tuple[Run, Run]]) -> dict[str, object]:
    """What more devices are worth, and the A/A of the first; a turn is a run on one and a run on all."""
    sides = tuple(zip(*turns, strict=True))
    seconds = [sum(run.seconds for run in side) for side in sides]
    trials = [sum(run.trials for run in side) for side in sides]
    per_hour = [
        sum(len(run.searches) for run in side) / spent * 3600 for side, spent in zip(sides, seconds, strict=True)
    ]
    report: dict[str, object] = {
        "speedup": round(per_hour[1] / per_hour[0], 3),
        "time": round(seconds[1] / seconds[0], 3) if all(run.complete for side in sides for run in side) else None,
        "time_of_turns": [round(all_.seconds / one.seconds, 3) for one, all_ in turns],
        "searches_per_hour": [round(found) for found in per_hour],
        "seconds": [[round(run.seconds, 1) for run in side] for side in sides],
        "trials": trials,
        "trials_per_hour": round(trials[1] / seconds[1] / (trials[0] / seconds[0]), 3),
        "idle": [_sum(run.idle() for run in side) for side in sides],
        "spent": [_sum(run.spent() for run in side) for side in sides],
    }
    pairs = [pair for one, all_ in turns for pair in _of_both(one, all_)]
    if pairs:
        ratios = sorted(after.default_us / before.default_us for before, after in pairs)
        report["a/a"] = {
            "pairs": len(ratios),
            "apart": sum(after.low_us > before.high_us or after.high_us < before.low_us for before, after in pairs),
            "geomean": round(math.exp(statistics.fmean(map(math.log, ratios))), 4),
            "median": round(statistics.median(ratios), 4),
            "least": round(ratios[0], 4),
            "most": round(ratios[-1], 4),
        }
    return report


def _sum(runs: Iterable[dict[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for seconds in runs:
        total.update(seconds)
    return {what: round(found, 2) for what, found in total.items()}


def _of_both(one: Run, all_: Run) -> list[tuple[Search, Search]]:
    """The searches that one device made in both runs."""
    found = {shape_key(search.shape): search for search in one.searches}
    both = [(found[key], after) for after in all_.searches if (key := shape_key(after.shape)) in found]
    return [(before, after) for before, after in both if before.device == after.device]


def main() -> None:
    """All runs, the comparison as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", nargs="+", default=["cuda:0", "cuda:1"])
    parser.add_argument("--shapes", type=int, default=40, help="how many; at most as many as there are")
    parser.add_argument("--jobs", type=int, default=8, help="that the shapes are dealt out to")
    parser.add_argument("--trials", type=int, default=12, help="of each shape")
    parser.add_argument("--turns", type=int, default=1, help="of one device and all")
    parser.add_argument("--limit", type=float, default=300, help="seconds for each run")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    on_cpu = options.devices[0] == "cpu"
    shapes = (CPU_SHAPES if on_cpu else matmul_shapes())[: options.shapes]
    budget = Budget(options.trials)
    spec = builtin_workload("matmul")
    device, dtype = ("cpu", "f32") if on_cpu else ("cuda", "bf16")
    jobs = JobSpec(spec, tuple(shapes), (dtype,), device, budget).split(options.jobs)
    report: dict[str, object] = {"environment": environment(), "trials": options.trials}
    runs: list[tuple[bool, Run]] = []
    for number in range(2 * options.turns):
        on_all = number % 4 in (1, 2)  # one, all, all, one
        made = run(options.devices if on_all else options.devices[:1], jobs, options.limit)
        runs.append((on_all, made))
        report["runs"] = [asdict(one) for _, one in runs]
        print(f"{', '.join(made.devices)}: {len(made.searches)} searches in {made.seconds:.1f} s", flush=True)
        if options.out:
            options.out.write_text(json.dumps(report, indent=1) + "\n")
    ones, alls = ([made for on_all, made in runs if on_all is wanted] for wanted in (False, True))
    report["result"] = compare(list(zip(ones, alls, strict=True)))
    print(json.dumps(report["result"]))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
