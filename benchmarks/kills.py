"""Kill the processes of a service at random moments, and count the trials that were lost or doubled.

    python benchmarks/kills.py [--rounds 100] [--seed 0] [--only embedded/sqlite ...] [--out kills.json]

A round submits a job of a known number of trials, kills something at a seeded random moment between its submission and
the time its measurements take, starts again what nobody else starts, and waits until the job has ended. Every trial has
to be there once, in order, with its event; what was stored before the kill has to be there unchanged; no spool is left.

Beside kill -9 there are a worker and a server that are asked to end (SIGTERM) while the tuner measures in processes of
its own, a disk that is full for a while (a tmpfs, for which this has to run as root), and a database that somebody else
locks.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from kill_site import Postgres, Site, Unanswered, Victim, wait_for
from rich.console import Console
from rich.table import Table

TRIALS, SECONDS = 10, 2.0
ENDS_WITHIN_S = 240.0
WORKERS_WITHIN_S = 10.0

#: What is killed where, and the share of the rounds.
PLAN: dict[str, dict[Victim, int]] = {
    "embedded/sqlite": {"server": 20, "worker": 15},
    "separate/sqlite": {"server": 10, "scheduler": 10, "worker": 10, "keeper": 5},
    "embedded/postgres": {"server": 10, "worker": 8, "database": 12},
}


@dataclasses.dataclass(frozen=True)
class Round:
    """One kill and what became of the job. ``at_s``: seconds after the submission. ``state`` is of the job, or says
    what did not come. ``workers_back_s`` counts from the start of what was killed."""

    scenario: str
    victim: str
    at_s: float
    found: bool
    state: str
    attempts: int
    lost: int
    doubled: int
    changed: int
    ended_s: float
    workers_back_s: float | None

    @property
    def sound(self) -> bool:
        return self.state == "succeeded" and not (self.lost or self.doubled or self.changed)


def kill_once(site: Site, scenario: str, victim: Victim, draw: random.Random, number: int = signal.SIGKILL) -> Round:
    """One round."""
    job_id = site.submit(budget={"trials": TRIALS, "seconds": SECONDS})
    at_s, away_s = draw.uniform(0, 1.2 * SECONDS), draw.uniform(0, 1.0)
    time.sleep(at_s)
    before = site.trials(job_id)
    found = site.strike(victim, job_id, number)
    time.sleep(away_s)
    site.restore(victim)
    struck = time.monotonic()
    back: float | None = None
    if victim != "worker":
        back = wait_for(lambda: site.workers() > 0, ENDS_WITHIN_S, "a worker is back")
    return follow(site, job_id, before, Round(scenario, victim, at_s, found, "", 0, 0, 0, 0, struck, back))


def follow(site: Site, job_id: str, before: list[dict[str, Any]], begun: Round, trials: int = TRIALS) -> Round:
    """Wait for the job's end and compare what is stored with what has to be."""
    try:
        wait_for(lambda: site.job(job_id)["finished_at"] is not None, ENDS_WITHIN_S, "the job ends")
        ended_s = time.monotonic() - begun.ended_s
        wait_for(lambda: not site.spooled(), 60, "the spools are empty")
    except Unanswered as error:
        return dataclasses.replace(begun, state=str(error), ended_s=time.monotonic() - begun.ended_s)
    job, stored, events = site.job(job_id), site.trials(job_id), site.events(job_id)
    numbers = [item["trial"]["number"] for item in stored]
    doubled = len(numbers) - len(set(numbers))
    doubled += max(0, sum(kind == "trial_finished" for _, kind in events) - len(numbers))
    return dataclasses.replace(
        begun,
        state=job["state"] + (f": {job['error']}" if job["error"] else ""),
        attempts=job["attempts"],
        lost=len(set(range(trials)) - set(numbers)),
        doubled=doubled,
        changed=(
            (stored[: len(before)] != before)
            + ([item["sequence"] for item in stored] != list(range(1, len(stored) + 1)))
            + ([number for number, _ in events] != list(range(1, len(events) + 1)))
            + (job["progress"]["trials"] != len(stored))
        ),
        ended_s=ended_s,
    )


@contextmanager
def open_site(scenario: str, folder: Path) -> Iterator[Site]:
    """The service of a scenario, running."""
    placement, _, database = scenario.partition("/")
    site = Site(folder / scenario.replace("/", "-"), separate=placement == "separate")
    if database == "postgres":
        site.home.mkdir(parents=True)
        site.home.chmod(0o755)
        site.postgres = Postgres(site.home / "pg")
        site.database_url = site.postgres.start()
    try:
        site.start()
        yield site
    finally:
        site.stop()
        if site.postgres is not None:
            site.postgres.stop()


def run_plan(rounds: int, seed: int, only: list[str], folder: Path, say: Callable[[Round], None]) -> list[Round]:
    """All kills, in an order that the seed decides."""
    results: list[Round] = []
    total = sum(sum(plan.values()) for plan in PLAN.values())
    for scenario, plan in PLAN.items():
        if only and scenario not in only:
            continue
        draw = random.Random(f"{seed} {scenario}")
        victims = [victim for victim, share in plan.items() for _ in range(max(1, round(share * rounds / total)))]
        draw.shuffle(victims)
        with open_site(scenario, folder) as site:
            for victim in victims:
                results.append(kill_once(site, scenario, victim, draw))
                say(results[-1])
    return results


def terminate_measuring(victim: Victim, folder: Path, draw: random.Random) -> Round:
    """SIGTERM while the real tuner compiles and measures in children. None of them may be left."""
    scenario = "SIGTERM, real tuner"
    site = Site(folder / f"term-{victim}", runner="deuteron.tuner:run_job")
    site.start()
    try:
        job_id = site.submit(shapes=[{"M": 64, "N": 128}], budget={"trials": 6, "seconds": 120})
        wait_for(lambda: len(site.trials(job_id)) >= 1, ENDS_WITHIN_S, "a trial is finished")
        time.sleep(draw.uniform(0, 1))
        before = site.trials(job_id)
        pid = int(site.job(job_id)["worker"].rpartition("/")[2])
        children = psutil.Process(pid).children(recursive=True)
        found = site.strike(victim, job_id, signal.SIGTERM)
        wait_for(lambda: not any(alive(child) for child in children), 60, "the children have ended")
        site.restore(victim)
        begun = Round(scenario, victim, 0.0, found and bool(children), "", 0, 0, 0, 0, time.monotonic(), None)
        ended = follow(site, job_id, before, begun, trials=0)
        return dataclasses.replace(ended, lost=len(missing(site, job_id, before)), doubled=0)
    finally:
        site.stop()


def missing(site: Site, job_id: str, before: list[dict[str, Any]]) -> set[str]:
    """Trials that were stored and are not any more."""
    now = {item["trial"]["id"] for item in site.trials(job_id)}
    return {item["trial"]["id"] for item in before} - now


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def fill_disk(folder: Path, draw: random.Random) -> Round:
    """The disk of database and spool is full for some seconds in the middle of a job."""
    home = folder / "full"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(home)], check=True)
    site = Site(home)
    try:
        site.start()
        job_id = site.submit(budget={"trials": TRIALS, "seconds": 3 * SECONDS})
        at_s = draw.uniform(0.5, SECONDS)
        time.sleep(at_s)
        before = site.trials(job_id)
        filler = home / "filler"
        with until_full(), filler.open("wb") as file:
            while True:
                file.write(b"\0" * 4096)
                file.flush()
        time.sleep(3.0)
        filler.unlink()
        begun = Round("disk full for 3 s", "disk", at_s, True, "", 0, 0, 0, 0, time.monotonic(), None)
        return follow(site, job_id, before, begun)
    finally:
        site.stop()
        subprocess.run(["umount", "-l", str(home)], check=False)


@contextmanager
def until_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def lock_database(folder: Path, seconds: float, draw: random.Random) -> Round:
    """Somebody else holds SQLite's write lock for longer than writers wait for it."""
    site = Site(folder / "locked")
    site.start()
    try:
        job_id = site.submit(budget={"trials": TRIALS, "seconds": SECONDS})
        at_s = draw.uniform(0, SECONDS)
        time.sleep(at_s)
        before = site.trials(job_id)
        with sqlite3.connect(site.home / "server" / "deuteron.db", isolation_level=None, timeout=60) as other:
            other.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            other.execute("ROLLBACK")
        name = f"database locked for {seconds:g} s"
        begun = Round(name, "database", at_s, True, "", 0, 0, 0, 0, time.monotonic(), None)
        return follow(site, job_id, before, begun)
    finally:
        site.stop()


def tabulate(results: list[Round]) -> Table:
    table = Table("", "killed", "rounds", "lost", "doubled", "changed", "not succeeded", "job ended", "workers back")
    groups: dict[tuple[str, str], list[Round]] = {}
    for item in results:
        groups.setdefault((item.scenario, item.victim), []).append(item)
    for (scenario, victim), rounds in groups.items():
        ended = [item.ended_s for item in rounds]
        back = [item.workers_back_s for item in rounds if item.workers_back_s is not None]
        table.add_row(
            scenario,
            victim,
            str(len(rounds)),
            *(str(sum(getattr(item, name) for item in rounds)) for name in ("lost", "doubled", "changed")),
            str(sum(item.state != "succeeded" for item in rounds)),
            f"{statistics.median(ended):.1f} s, longest {max(ended):.1f} s",
            f"{statistics.median(back):.1f} s, longest {max(back):.1f} s" if back else "",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=100, help="kills in all, shared out among the scenarios")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help=f"some of {', '.join([*PLAN, 'others'])}")
    parser.add_argument("--out", type=Path, help="write every round as JSON")
    parser.add_argument("--keep", type=Path, help="a folder for homes and logs, which stay")
    arguments = parser.parse_args()
    console = Console(width=160)
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="dtn-kills-", dir="/tmp"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    results: list[Round] = []

    def say(item: Round) -> None:
        word = "sound" if item.sound else f"NOT SOUND: {item}"
        console.print(f"{item.scenario} {item.victim} at {item.at_s:.2f} s: {word}, ended after {item.ended_s:.1f} s")

    try:
        results += run_plan(arguments.rounds, arguments.seed, arguments.only, folder, say)
        if not arguments.only or "others" in arguments.only:
            draw = random.Random(arguments.seed)
            others: list[Callable[[], Round]] = [
                lambda: terminate_measuring("worker", folder, draw),
                lambda: terminate_measuring("server", folder, draw),
                lambda: lock_database(folder, 5.0, draw),
                lambda: lock_database(folder, 40.0, draw),
            ]
            if os.geteuid() == 0:
                others.append(lambda: fill_disk(folder, draw))
            for other in others:
                results.append(other())
                say(results[-1])
    finally:
        console.print(tabulate(results))
        if arguments.out:
            rounds = [dataclasses.asdict(item) for item in results]
            arguments.out.write_text(json.dumps({"seed": arguments.seed, "rounds": rounds}, indent=1) + "\n")
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if not all(item.sound for item in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
