"""The embedded cluster: strangers cannot enter it, workers come back, it heals, rests and keeps jobs in their order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]
import pytest
from scheduler_processes import Background, begin_scheduler

# -- a closed cluster


def test_strangers_cannot_enter_the_embedded_cluster(
    make_service: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    """No port of the server or of its workers gives an answer to who has not the cluster's certificate."""
    from distributed import Client
    from distributed.security import Security

    service = make_service()
    wait_until(lambda: "deuteron_workers 1" in service.text("/metrics"), 60)
    assert service.process is not None
    server = psutil.Process(service.process.pid)
    ports = {
        connection.laddr.port
        for process in (server, *server.children(recursive=True))
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert service.port in ports
    assert len(ports) >= 3, "scheduler, nanny and worker listen"
    for port in ports - {service.port}:
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/info/main/workers.html", timeout=3)
        for address, security in (
            (f"tcp://127.0.0.1:{port}", None),
            (f"tls://127.0.0.1:{port}", Security.temporary()),  # type: ignore[no-untyped-call]
        ):
            with pytest.raises(OSError):
                Client(address, timeout=2, security=security)  # type: ignore[no-untyped-call]


# -- workers that come back


@pytest.mark.slow
def test_workers_and_jobs_come_back_after_the_scheduler(
    make_service: Callable[..., Any],
    background: Background,
    wait_until: Callable[..., None],
    pick_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    port = pick_port()
    address, scheduler = begin_scheduler(background, port)
    service = make_service(DEUTERON_SCHEDULER=address, DEUTERON_LEASE_SECONDS="3")
    worker = background(
        "from deuteron.server import Settings, run_worker\n"
        "if __name__ == '__main__':\n"
        f"    run_worker({address!r}, server_url={service.url!r}, settings=Settings.from_environment(), "
        "devices=['cpu'])",
        {
            "DEUTERON_HOME": str(tmp_path / "worker"),
            "DEUTERON_RUNNER": "paced_runner:run",
            "DEUTERON_LOCK_FOLDER": str(tmp_path / "locks"),
        },
    )

    def workers() -> str:
        text = service.text("/metrics")
        return next(line for line in text.splitlines() if line.startswith("deuteron_workers "))

    wait_until(lambda: workers() == "deuteron_workers 1", 60)
    job_id = service.submit(budget={"trials": 10, "seconds": 4.0})
    wait_until(lambda: len(service.trials(job_id)) >= 2, 60)
    os.kill(scheduler.pid, signal.SIGKILL)
    scheduler.wait(10)
    wait_until(lambda: workers() == "deuteron_workers 0", 30)
    begin_scheduler(background, port)
    wait_until(lambda: workers() == "deuteron_workers 1", 90, lambda: (service.home / "server.log").read_text())
    wait_until(lambda: service.job(job_id)["finished_at"] is not None, 90)
    job = service.job(job_id)
    assert job["state"] == "succeeded", job
    assert job["attempts"] == 1, "the scheduler's death is not the job's failure"
    assert [item["trial"]["number"] for item in service.trials(job_id)] == list(range(10))
    assert worker.poll() is None


# -- a cluster that heals


def test_a_worker_whose_keeper_ended_is_started_again(tmp_path: Path, wait_until: Callable[..., None]) -> None:
    """A worker that loses the scheduler takes its keeper with it, and Dask's cluster forgets both."""
    dask = pytest.importorskip("dask")
    from deuteron.server.dispatch.engine import Engine
    from deuteron.server.dispatch.run import Bench

    bench = Bench("http://127.0.0.1:1", "", "cpu", tmp_path, "paced_runner:run", tmp_path / "locks")
    engine = Engine.embedded([bench], tmp_path / "workers", allowed_failures=3)

    def names() -> list[str] | None:
        try:
            return [worker.name.partition("@")[0] for worker in engine.workers()]
        except (OSError, TimeoutError):
            return None  # the scheduler had no second for us

    def is_back() -> bool:
        engine.heal()
        return names() == ["cpu"]

    try:
        timeout = dask.config.get("distributed.deploy.lost-worker-timeout")
        assert dask.utils.parse_timedelta(timeout) > 86400, "a slow start of a worker must not be its last"
        keeper = engine._cluster.workers["cpu"]
        engine.heal()
        assert engine._cluster.workers["cpu"] is keeper
        engine._cluster.sync(keeper.close)
        wait_until(lambda: names() == [], 60)
        wait_until(is_back, 120)
        # The scheduler knows a worker a moment before the cluster does.
        wait_until(lambda: engine._cluster.workers.get("cpu") not in (None, keeper), 60)
    finally:
        engine.close()


def test_an_idle_cluster_rests(tmp_path: Path, wait_until: Callable[..., None]) -> None:
    """Nothing in it happens more than four times a second: Dask alone took 4 % of a core."""
    pytest.importorskip("dask")
    from deuteron.server.dispatch.engine import Engine
    from deuteron.server.dispatch.quiet import HEARTBEAT_S
    from deuteron.server.dispatch.run import Bench

    def pauses(server: Any) -> dict[str, float]:
        """Of everything that is done again and again, in milliseconds."""
        return {name: callback.callback_time for name, callback in server.periodic_callbacks.items()}

    bench = Bench("http://127.0.0.1:1", "", "cpu", tmp_path, "paced_runner:run", tmp_path / "locks")
    engine = Engine.embedded([bench], tmp_path / "workers", allowed_failures=3)

    def of_the_worker() -> dict[str, float]:
        (found,) = engine._client.run(lambda dask_worker: pauses(dask_worker)).values()
        return dict(found)

    try:
        cluster = engine._cluster
        for server in (cluster.scheduler, cluster.workers["cpu"]):
            assert min(pauses(server).values()) >= 250, pauses(server)
        # What the scheduler answers to the first heartbeat holds for those after it.
        wait_until(lambda: of_the_worker()["heartbeat"] == HEARTBEAT_S * 1000, 30)
        assert min(of_the_worker().values()) >= 250, of_the_worker()
    finally:
        engine.close()


# -- who is next, and with how many threads


def test_jobs_that_come_at_once_are_begun_in_their_order(
    make_service: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    service = make_service()
    ids = [service.submit(budget={"trials": 1, "seconds": 0.05}) for _ in range(12)]
    wait_until(lambda: all(service.job(job_id)["finished_at"] for job_id in ids), 60)
    begun = [service.job(job_id)["started_at"] for job_id in ids]
    assert begun == sorted(begun)


def test_a_scheduler_loads_nothing_that_measures() -> None:
    """It unpickles the function of the first job before it passes that on."""
    program = """
import pickle, sys
task = b"cdeuteron.server.dispatch.task\\nmeasure_here\\n."
assert pickle.loads(task).__name__ == "measure_here"
print(*{"distributed", "numpy", "sqlalchemy", "deuteron.tuner", "deuteron.server.dispatch.run"} & sys.modules.keys())
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stdout + done.stderr


def test_references_may_use_all_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask limits the threads of what its workers compute; ours compute in other processes, which inherit that."""
    pytest.importorskip("dask")
    from deuteron.server.dispatch.engine import Engine
    from deuteron.server.dispatch.run import Bench
    from deuteron.server.settings import lift_thread_limits

    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "4")
    bench = Bench("http://127.0.0.1:1", "", "cpu", tmp_path, "paced_runner:run", tmp_path / "locks")
    engine = Engine.embedded([bench], tmp_path / "workers", allowed_failures=3)
    try:
        (found,) = engine._client.run(lambda: dict(os.environ)).values()
    finally:
        engine.close()
    assert "OPENBLAS_NUM_THREADS" not in found and "OMP_NUM_THREADS" not in found
    assert found["MKL_NUM_THREADS"] == "4"
    assert "MALLOC_TRIM_THRESHOLD_" in found
    elsewhere = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "2", "PATH": "1"}
    lift_thread_limits({"OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "PATH": 1}, elsewhere)
    assert elsewhere == {"MKL_NUM_THREADS": "2", "PATH": "1"}
