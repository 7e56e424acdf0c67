"""kill -9 of the worker and of the server in the middle of a job: it ends with all trials, none twice."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]
import pytest
from scheduler_processes import Background, begin_scheduler

TRIALS = 12
PACED = {"trials": TRIALS, "seconds": 3.0}


def worker_pid(job: dict[str, Any]) -> int:
    return int(job["worker"].rsplit("/", 1)[1])


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie that its parent has not collected yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def check_complete(service: Any, job_id: str, seen_before: list[dict[str, Any]]) -> dict[str, Any]:
    """Every configuration was measured exactly once, and what was there before the kill still is."""
    job = service.job(job_id)
    assert job["state"] == "succeeded", job
    trials = service.trials(job_id)
    assert [item["trial"]["number"] for item in trials] == list(range(TRIALS))
    assert [item["sequence"] for item in trials] == list(range(1, TRIALS + 1))
    assert trials[: len(seen_before)] == seen_before
    assert job["progress"]["trials"] == TRIALS
    lines = httpx.get(f"{service.url}/v1/jobs/{job_id}/events", timeout=10).text.splitlines()
    ids = [int(line.split()[1]) for line in lines if line.startswith("id:")]
    kinds = [line.split()[1] for line in lines if line.startswith("event:")]
    assert ids == list(range(1, len(ids) + 1))
    assert kinds.count("trial_finished") == TRIALS
    assert httpx.get(f"{service.url}/v1/jobs/{job_id}/profile", timeout=10).text == "[]"
    return dict(job)


def in_the_middle(service: Any, job_id: str, wait_until: Callable[..., None]) -> list[dict[str, Any]]:
    wait_until(
        lambda: len(service.trials(job_id)) >= 3,
        60,
        lambda: (service.home / "server.log").read_text(),
    )
    return list(service.trials(job_id))


def test_killed_worker(make_service: Callable[..., Any], wait_until: Callable[..., None]) -> None:
    service = make_service()
    job_id = service.submit(budget=PACED)
    seen = in_the_middle(service, job_id, wait_until)
    os.kill(worker_pid(service.job(job_id)), signal.SIGKILL)
    wait_until(
        lambda: service.job(job_id)["finished_at"] is not None,
        60,
        lambda: (service.home / "server.log").read_text(),
    )
    job = check_complete(service, job_id, seen)
    assert job["attempts"] == 2
    assert not list((service.home / "spool").iterdir())


def test_killed_server(make_service: Callable[..., Any], wait_until: Callable[..., None]) -> None:
    service = make_service()
    job_id = service.submit(budget=PACED)
    seen = in_the_middle(service, job_id, wait_until)
    pid = worker_pid(service.job(job_id))
    service.kill()
    wait_until(lambda: not is_alive(pid), 10)
    service.start()
    wait_until(
        lambda: service.job(job_id)["finished_at"] is not None,
        60,
        lambda: (service.home / "server.log").read_text(),
    )
    job = check_complete(service, job_id, seen)
    assert job["attempts"] == 1, "the server's death is not the job's failure"


def test_events_that_only_the_spool_has_are_not_lost(
    make_service: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    """The server dies with a trial on the worker's disk that it never stored."""
    service = make_service()
    job_id = service.submit(budget=PACED)
    in_the_middle(service, job_id, wait_until)
    service.kill()
    (spool,) = (service.home / "spool").iterdir()
    # As if the server had died before its commit: take the last delivered trial out of the database.
    with sqlite3.connect(service.home / "deuteron.db") as database:
        ((last,),) = database.execute("SELECT max(sequence) FROM trials").fetchall()
        ((trial_id,),) = database.execute("SELECT trial_id FROM trials WHERE sequence = ?", (last,)).fetchall()
        database.execute("DELETE FROM trials WHERE sequence = ?", (last,))
        database.execute("DELETE FROM events WHERE id = (SELECT max(id) FROM events)")
    assert trial_id in spool.read_text()
    service.start()
    wait_until(lambda: service.job(job_id)["finished_at"] is not None, 60)
    check_complete(service, job_id, [])
    assert trial_id in [item["trial"]["id"] for item in service.trials(job_id)]


def test_a_job_whose_worker_always_dies_fails_with_the_reason(
    make_service: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    service = make_service(DEUTERON_MAX_ATTEMPTS="2")
    job_id = service.submit(budget={"trials": 200, "seconds": 60})
    killed: set[int] = set()

    def keep_killing() -> bool:
        job = service.job(job_id)
        if job["state"] == "running" and service.trials(job_id):
            pid = worker_pid(job)
            if pid not in killed and is_alive(pid):
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
        return job["finished_at"] is not None

    wait_until(keep_killing, 90, lambda: (service.home / "server.log").read_text())
    job = service.job(job_id)
    assert job["state"] == "failed"
    assert "worker of this job was lost 2 times" in job["error"]
    assert service.trials(job_id), "finished trials are kept"


@pytest.mark.slow
def test_killed_server_does_not_stop_a_worker_elsewhere(
    make_service: Callable[..., Any],
    background: Background,
    wait_until: Callable[..., None],
    pick_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    """With a scheduler of its own the worker measures on while the server is away, and delivers later."""
    scheduler, _ = begin_scheduler(background, pick_port())
    service = make_service(DEUTERON_SCHEDULER=scheduler)
    background(
        "from deuteron.server import Settings, run_worker\n"
        "if __name__ == '__main__':\n"
        f"    run_worker({scheduler!r}, server_url={service.url!r}, settings=Settings.from_environment(), "
        "devices=['cpu'])",
        {"DEUTERON_HOME": str(tmp_path / "worker"), "DEUTERON_RUNNER": "paced_runner:run"},
    )
    job_id = service.submit(budget=PACED)
    seen = in_the_middle(service, job_id, wait_until)
    pid = worker_pid(service.job(job_id))
    service.kill()
    spool = tmp_path / "worker" / "spool"
    wait_until(
        lambda: any(f.read_text().count("trial_finished") >= len(seen) + 3 for f in spool.iterdir()),
        30,
    )
    assert is_alive(pid)
    service.start()
    wait_until(lambda: service.job(job_id)["finished_at"] is not None, 60)
    job = check_complete(service, job_id, seen)
    assert job["attempts"] == 1, "the run was never interrupted"


@pytest.mark.slow
def test_a_worker_elsewhere_that_is_stopped_gives_its_job_back(
    make_service: Callable[..., Any],
    background: Background,
    wait_until: Callable[..., None],
    pick_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    """SIGTERM, as at the end of a time limit, costs no attempt and waits for no lease."""
    scheduler, _ = begin_scheduler(background, pick_port(), {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"})
    service = make_service(DEUTERON_SCHEDULER=scheduler, DEUTERON_MAX_ATTEMPTS="1", DEUTERON_LEASE_SECONDS="600")
    job_id = service.submit(budget=PACED)
    for place in ("first", "second"):
        worker = background(
            "from deuteron.server import Settings, run_worker\n"
            "if __name__ == '__main__':\n"
            f"    run_worker({scheduler!r}, server_url={service.url!r}, settings=Settings.from_environment(), "
            "devices=['cpu'])",
            {"DEUTERON_HOME": str(tmp_path / place), "DEUTERON_RUNNER": "paced_runner:run"},
        )
        if place == "first":
            in_the_middle(service, job_id, wait_until)
            worker.terminate()
            assert worker.wait(20) == 0
            job = service.job(job_id)
            assert (job["state"], job["attempts"]) == ("queued", 0)
            assert list((tmp_path / place / "spool").iterdir()) == []
    wait_until(lambda: service.job(job_id)["finished_at"] is not None, 60)
    assert check_complete(service, job_id, [])["attempts"] == 1


def test_cancel_reaches_the_worker(make_service: Callable[..., Any], wait_until: Callable[..., None]) -> None:
    service = make_service()
    job_id = service.submit(budget={"trials": 200, "seconds": 60})
    in_the_middle(service, job_id, wait_until)
    for _ in range(2):
        answer = httpx.post(f"{service.url}/v1/jobs/{job_id}/cancel", timeout=10)
        assert answer.status_code == 200
        assert answer.json()["cancel_requested"]
    wait_until(lambda: service.job(job_id)["state"] == "cancelled", 15)
    count = len(service.trials(job_id))
    following = service.submit(budget={"trials": 1, "seconds": 0.1})
    wait_until(lambda: service.job(following)["state"] == "succeeded", 30)
    assert len(service.trials(job_id)) == count


def test_killed_worker_with_the_real_tuner(make_service: Callable[..., Any], wait_until: Callable[..., None]) -> None:
    """The same with kernels compiled, checked and measured on the CPU."""
    service = make_service(DEUTERON_RUNNER="deuteron.tuner:run_job")
    job_id = service.submit(shapes=[{"M": 64, "N": 128}], budget={"trials": 6, "seconds": 60})
    wait_until(
        lambda: len(service.trials(job_id)) >= 2,
        90,
        lambda: (service.home / "server.log").read_text(),
    )
    seen = service.trials(job_id)
    pid = worker_pid(service.job(job_id))
    children = [child.pid for child in psutil.Process(pid).children(recursive=True)]
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: service.job(job_id)["finished_at"] is not None,
        120,
        lambda: (service.home / "server.log").read_text(),
    )
    job = service.job(job_id)
    assert job["state"] == "succeeded", job
    assert job["attempts"] == 2
    trials = service.trials(job_id)
    assert trials[: len(seen)] == seen
    screened = [str(item["trial"]["config"]) for item in trials if item["trial"]["phase"] == "screen"]
    assert len(screened) == len(set(screened)) == 6
    assert len({item["trial"]["id"] for item in trials}) == len(trials)
    (record,) = job["configs"]
    assert record["checked"]
    wait_until(lambda: not any(is_alive(child) for child in children), 20)
