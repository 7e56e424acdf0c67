"""Workers that others place: Dask's own command, dask-jobqueue on Slurm."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet" / "slurm.py"

#: Slurm, as far as it matters: a job runs at once, on this machine, until it is cancelled.
SBATCH = """#!/bin/sh
cp "$1" "$SLURM/job.sh"
setsid bash "$SLURM/job.sh" > "$SLURM/job.log" 2>&1 &
echo $! > "$SLURM/pid"
echo "Submitted batch job 7"
"""
SCANCEL = """#!/bin/sh
echo "$1" > "$SLURM/cancelled"
kill -TERM -- -"$(cat "$SLURM/pid")"
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder of ``sbatch`` and ``scancel``, and of what they leave."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended with the test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.terminate()
        process.wait(20)


def worker_environment(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEUTERON_")}
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), kept.get("PYTHONPATH")]))
    return {
        **kept,
        "PYTHONPATH": path,
        "DEUTERON_HOME": str(tmp_path / "worker"),
        "DEUTERON_RUNNER": "paced_runner:run",
        "DEUTERON_LOCK_FOLDER": str(tmp_path / "locks"),
        **more,
    }


def how_quiet(dask_worker: Any) -> tuple[object, list[str]]:
    """Above which memory a worker pauses, and what it does all the time to profile itself."""
    return (
        dask_worker.memory_manager.memory_pause_fraction,
        [name for name in dask_worker.periodic_callbacks if "profile" in name],
    )


@pytest.mark.slow
def test_workers_that_slurm_starts_measure(
    make_service: Callable[..., Any],
    wait_until: Callable[..., None],
    pick_port: Callable[[], int],
    tmp_path: Path,
    slurm: Path,
    started: list[subprocess.Popen[bytes]],
) -> None:
    """The example as it is, with a Slurm that is two scripts."""
    pytest.importorskip("dask_jobqueue")
    from distributed import Client

    port = pick_port()
    service = make_service(DEUTERON_SCHEDULER=f"tcp://127.0.0.1:{port}")
    environment = worker_environment(
        tmp_path,
        PATH=f"{slurm}{os.pathsep}{os.environ['PATH']}",
        SLURM=str(slurm),
        DEUTERON_PUBLIC_URL=service.url,
    )
    placed = subprocess.Popen(
        [sys.executable, EXAMPLE, "--port", str(port), "--gres", "gpu:h200:1", "--cpus", "2"], env=environment
    )
    started.append(placed)
    wait_until(lambda: (slurm / "job.sh").exists(), 60)
    assert "#SBATCH --gres=gpu:h200:1" in (slurm / "job.sh").read_text().splitlines()
    log = lambda: (slurm / "job.log").read_text()  # noqa: E731
    wait_until(lambda: "deuteron_workers 1" in service.text("/metrics"), 60, log)
    job_id = service.submit(budget={"trials": 3, "seconds": 0.3})
    wait_until(lambda: service.job(job_id)["finished_at"] is not None, 60, log)
    job = service.job(job_id)
    assert (job["state"], job["attempts"]) == ("succeeded", 1)
    assert job["worker"].startswith("cpu@")
    (worker,) = service.get("/v1/workers")["workers"]
    assert (worker["name"], worker["state"]) == (job["worker"].rpartition("/")[0], "idle")
    with Client(f"tcp://127.0.0.1:{port}") as dask:  # type: ignore[no-untyped-call]
        (quiet,) = dask.run(how_quiet).values()
    assert quiet == (False, []), "Dask leaves the processor alone while something is measured"
    placed.send_signal(signal.SIGTERM)
    assert placed.wait(30) == 0
    assert (slurm / "cancelled").read_text() == "7\n"
    wait_until(lambda: "deuteron_workers 0" in service.text("/metrics"), 60)


def refused(arguments: list[str], tmp_path: Path) -> str:
    """What ``dask worker`` says that ends without having measured."""
    ended = subprocess.run(
        [sys.executable, "-m", "distributed.cli.dask_worker", *arguments],
        env=worker_environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    return ended.stderr


PRELOAD = ["--no-dashboard", "--preload", "deuteron.server.dispatch.preload"]


def test_a_worker_that_could_not_measure_says_why(tmp_path: Path) -> None:
    alone = ["tcp://127.0.0.1:1", "--no-nanny", "--nthreads"]
    assert "dask worker --nthreads 1" in refused([*alone, "2", *PRELOAD], tmp_path)
    assert "present: cpu" in refused([*alone, "1", *PRELOAD, "--device", "cuda:99"], tmp_path)


def test_a_process_that_may_not_have_children_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As workers under a nanny are that does not know Dask's settings of ours."""
    from deuteron.server.dispatch.preload import check
    from deuteron.server.settings import SettingsError

    check(threads=1)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.raises(SettingsError, match="children"):
        check(threads=1)
