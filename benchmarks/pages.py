"""How long the pages of a very large job take: a job of a million trials, and the time to the first byte of every page.

    python benchmarks/pages.py --trials 1000000 --database pages.db [--browser] [--out pages.json]

Makes the job in a SQLite file (about 3 GB; one that is there is used again and brought to the newest schema), starts
the service on it without workers, and asks for each address in turn with every connection new. With --browser a
headless Chromium says when it first painted something. Goal: a second at most, for the slowest of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec

from deuteron import migrations
from deuteron.compiler import KernelSource
from deuteron.server import Settings
from deuteron.server.listen import bind
from deuteron.tuner import Interval, JobSpec, Trial
from deuteron.tuner.measure.measurement import CodeFacts, Measurement, TimingProtocol
from deuteron.tuner.trial import Phase

GOAL_S = 1.0
SHAPES, FINALISTS = 8, 4
_NOW = "2026-11-23 03:00:00.000000"
_BATCH = 20_000


def make_job(database: Path, trials: int) -> None:
    """A database whose one job has this many trials, with the events that brought them."""
    migrations.upgrade(f"sqlite:///{database}", "0003_config_history")
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA synchronous=OFF")
    job_id = str(uuid.uuid4())
    shapes = [_shape(number, SHAPES) for number in range(SHAPES)]
    spec = JobSpec.from_json({"workload": {"builtin": "softmax"}, "shapes": shapes, "dtypes": ["f32"], "device": "cpu"})
    text = spec.workload.kernel
    kernel = KernelSource.from_text(text.source, text.name, text.filename)
    values: dict[str, object] = {
        "id": job_id,
        "state": "succeeded",
        "kernel_name": kernel.name,
        "kernel_hash": kernel.hash,
        "device": "cpu",
        "device_key": "cpu/x",
        "spec": json.dumps(spec.to_json()),
        "trials_total": trials,
        "trials_done": trials,
        "screened": trials - SHAPES * FINALISTS,
        "last_event": trials + 2,
        "attempts": 1,
        "cancel_requested": 0,
        "created_at": _NOW,
        "started_at": _NOW,
        "finished_at": _NOW,
    }
    _insert(connection, "jobs", list(values), [tuple(values.values())])
    started = json.dumps({"kind": "job_started", "device": "cpu/x"})
    events = ["job_id", "id", "kind", "body", "claim_id", "sequence", "created_at"]
    _insert(connection, "events", events, [(job_id, 1, "job_started", started, "a.b", 1, _NOW)])
    columns = [
        "job_id", "trial_id", "phase", "sequence", "attempt", "dtype", "shape", "status", "median_ns", "bound", "body",
        "recorded_at",
    ]  # fmt: skip
    per_shape = trials // SHAPES
    for start in range(0, trials, _BATCH):
        rows, told = [], []
        for number in range(start, min(start + _BATCH, trials)):
            shape, trial = _shape(number, trials), _trial(number % per_shape, per_shape)
            body = json.dumps(trial.to_json(), separators=(",", ":"))
            text = json.dumps(shape, sort_keys=True, separators=(",", ":"))
            median = trial.time_ns.median if trial.time_ns else None
            rows.append(
                (job_id, trial.id, trial.phase, number + 1, 1, "f32", text, trial.status, median, "memory", body, _NOW)
            )
            event = f'{{"kind":"trial_finished","shape":{text},"dtype":"f32","trial":{body},"incumbent":null}}'
            told.append((job_id, number + 2, "trial_finished", event, "a.b", number + 2, _NOW))
        _insert(connection, "trials", columns, rows)
        _insert(connection, "events", events, told)
    ended = json.dumps({"kind": "job_state", "state": "succeeded", "attempt": 1, "cancel_requested": False})
    _insert(connection, "events", events, [(job_id, trials + 2, "job_state", ended, None, None, _NOW)])
    connection.commit()
    connection.close()


def _insert(connection: sqlite3.Connection, table: str, columns: list[str], rows: list[tuple[object, ...]]) -> None:
    places = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)


def _shape(number: int, trials: int) -> dict[str, int]:
    return {"M": 1024, "N": 256 << (number * SHAPES // trials)}


def _trial(number: int, last: int) -> Trial:
    """A trial with all that is known of one; every fiftieth screened one failed, and the last ones are finalists."""
    final = number >= last - FINALISTS
    config: dict[str, Any] = {"ROWS": 1 << number % 5, "TILES": 1 << number // 5 % 5, "num_warps": number // 25}
    if number % 50 == 49 and not final:
        return Trial(number, config, "compile_error", "screen", error="the tile does not fit\n" * 4)
    median = 1e4 * (1 + (number * 2654435761 % 100003) / 1e4)
    time_ns = Interval(median, 0.99 * median, 1.01 * median, 30)
    code = CodeFacts(
        1024, threads=128, registers=64, spill_bytes=0, shared_bytes=8192, resident_warps=32, most_warps=64
    )
    protocol = TimingProtocol("device", True, "first look")
    measured = Measurement(time_ns, protocol, 1e15 / median, 1e16 / median, 0.01, 0.5, code, bound="memory")
    metrics = {"registers": 64.0, "shared_bytes": 8192.0, "compile_s": 0.1, "check_s": 0.01, "measure_s": 0.1}
    phase: Phase = "final" if final else "screen"
    return Trial(number, config, "ok", phase, time_ns, reference="numpy", measurement=measured, metrics=metrics)


@contextlib.contextmanager
def serving(database: Path) -> Iterator[str]:
    """The address of a service on the database, in a process of its own."""
    migrations.upgrade(f"sqlite:///{database}")
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=Path(home), port=0)
        with bind(settings) as socket:
            port = socket.getsockname()[1]
        code = (
            "from pathlib import Path; from deuteron.server import Settings, serve; "
            f"serve(Settings(home=Path({home!r}), port={port}, scheduler='none', rate_per_minute=0, "
            f"database_url='sqlite:///{database}'))"
        )
        server = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url)
            yield url
        finally:
            server.terminate()
            server.wait(20)


def _wait(url: str) -> None:
    for _ in range(300):
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        time.sleep(0.1)
    raise SystemExit("the service does not start")


def addresses(url: str) -> dict[str, str]:
    """Every page, and the trials of the API, by what to call them."""
    job = httpx.get(f"{url}/v1/jobs").json()["jobs"][0]
    base, count = f"/jobs/{job['id']}", job["progress"]["trials"]
    api = f"/v1{base}/trials"
    first = httpx.get(url + api, params={"limit": 1}).json()["trials"][0]["trial"]["id"]
    last = httpx.get(url + api, params={"limit": 1, "cursor": _cursor(count - 1)}).json()["trials"][0]["trial"]["id"]
    return {
        "jobs": "/",
        "jobs of a kernel": "/?kernel=softmax",
        "job": base,
        "job, its charts": f"{base}/charts",
        "job, results": f"{base}/results",
        "trials": f"{base}/trials",
        "trials in the middle": f"{base}/trials?before={count // 2}",
        "trials that failed": f"{base}/trials?only=compile_error",
        "trials of the final": f"{base}/trials?only=final",
        "trial": f"{base}/trials/{first}",
        "last trial": f"{base}/trials/{last}",
        "parameters": f"{base}/parameters",
        "compare": f"/compare?a={job['id']}&b={job['id']}",
        "configs": "/configs",
        "coverage": "/coverage",
        "workers": "/workers",
        "docs": "/docs",
        "API: job": f"/v1{base}",
        "API: jobs": "/v1/jobs",
        "API: trials, first 100": api,
        "API: trials, first 500": f"{api}?limit=500",
        "API: trials, last 500": f"{api}?limit=500&cursor={_cursor(count - 500)}",
        "API: searches": f"/v1/searches?kernel={job['kernel_name']}",
        "API: metrics": "/metrics",
    }


def _cursor(number: int) -> str:
    from deuteron.server.api.paging import encode_cursor

    return encode_cursor(number)


class Timed(msgspec.Struct):
    """The times of one address, in seconds; the first of its rounds met no cache of the service."""

    status: int
    first_byte_s: list[float]
    whole_s: float
    bytes: int
    paint_s: float | None = None


def measure(url: str, address: str, rounds: int) -> Timed:
    """Ask for an address a few times."""
    first, whole, size, status = [], [], 0, 0
    for _ in range(rounds):
        with httpx.Client(timeout=300) as client:
            started = time.perf_counter()
            with client.stream("GET", url + address) as answer:
                body = answer.iter_raw()
                size = len(next(body, b""))
                first.append(round(time.perf_counter() - started, 4))
                size += sum(map(len, body))
                whole.append(time.perf_counter() - started)
                status = answer.status_code
    return Timed(status, first, round(statistics.median(whole), 4), size)


def paint(url: str, pages: dict[str, str]) -> dict[str, float]:
    """Seconds until Chromium painted the first content of each page; for the job's also until its table had rows."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,1200"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    painted = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    rows = "return document.querySelector('#trials tr') && performance.now()"

    def ask(script: str) -> float:
        for _ in range(1000):
            if (moment := browser.execute_script(script)) is not None:
                return round(moment / 1e3, 3)
            time.sleep(0.02)
        raise SystemExit(f"{browser.current_url} shows nothing")

    found = {}
    try:
        for name, address in pages.items():
            browser.get(url + address)
            found[name] = ask(painted)
            if name == "job":
                found["job, its charts"] = ask(rows)
    finally:
        browser.quit()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    database = chosen.database.absolute()
    if not database.exists():
        make_job(database, chosen.trials)
    with serving(database) as url:
        pages = addresses(url)
        times = {name: measure(url, address, chosen.rounds) for name, address in pages.items()}
        if chosen.browser:
            shown = {
                name: address for name, address in pages.items() if times[name].status == 200 and "API" not in name
            }
            for name, moment in paint(url, shown).items():
                times[name].paint_s = moment
    for name, timed in times.items():
        worst = max(timed.first_byte_s)
        note = "" if timed.status == 200 else f"  status {timed.status}"
        late = "  LATE" if max(worst, timed.paint_s or 0.0) > GOAL_S else ""
        seen = "" if timed.paint_s is None else f"  paint {timed.paint_s:.2f} s"
        print(f"{name:28} first byte {worst:7.3f} s  whole {timed.whole_s:7.3f} s  {timed.bytes:9} B{seen}{note}{late}")
    if chosen.out:
        size = database.stat().st_size
        document = {"trials": chosen.trials, "database_bytes": size, "goal_s": GOAL_S, "pages": times}
        chosen.out.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


if __name__ == "__main__":
    main()
