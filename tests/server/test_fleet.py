"""What keeps a fleet whole: one dispatcher a database, one measurement a device, a cluster that strangers cannot enter,
workers that come back."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]
import pytest
from sqlalchemy import make_url

from deuteron import migrations
from deuteron.server import ServiceStore, Settings, SettingsError
from deuteron.server.database import make_engine
from deuteron.server.dispatch.exclusive import exclusive
from deuteron.server.dispatch.leadership import dispatch_lock
from deuteron.server.homes import require_shared_home

Background = Callable[[str, dict[str, str]], "subprocess.Popen[bytes]"]

# -- one dispatcher


def test_one_of_two_holds_the_lock_of_a_database(database_url: str) -> None:
    engines = [make_engine(database_url) for _ in range(2)]
    first, second = (dispatch_lock(engine) for engine in engines)
    assert not first.held()
    assert [first.acquire(), second.acquire(), first.acquire()] == [True, False, True]
    assert (first.held(), second.held()) == (True, False)
    first.release()
    assert not first.held()
    assert second.acquire()
    second.release()
    for engine in engines:
        engine.dispose()


def test_databases_have_locks_of_their_own(tmp_path: Path) -> None:
    locks = [dispatch_lock(make_engine(f"sqlite:///{tmp_path / name}.db")) for name in ("a", "b")]
    assert [lock.acquire() for lock in locks] == [True, True]


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'd.db'}"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time\nfrom deuteron.server.database import make_engine\n"
            "from deuteron.server.dispatch.leadership import dispatch_lock\n"
            f"lock = dispatch_lock(make_engine({url!r}))\nprint(lock.acquire(), flush=True)\ntime.sleep(60)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    lock = dispatch_lock(make_engine(url))
    assert not lock.acquire()
    holder.kill()
    holder.wait(10)
    assert lock.acquire()


def test_a_file_system_without_locks_leaves_no_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    lock = dispatch_lock(make_engine(f"sqlite:///{tmp_path / 'd.db'}"))
    monkeypatch.setattr(fcntl, "flock", refused)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(OSError, match="No locks"):
            lock.acquire()
    assert len(os.listdir("/proc/self/fd")) == before and not lock.held()


@pytest.mark.postgres
def test_a_database_that_forgot_the_session_forgot_the_lock(postgres_url: str) -> None:
    """As after a restart of PostgreSQL: who led must notice, and may ask again."""
    engine, other = make_engine(postgres_url), make_engine(postgres_url)
    lock = dispatch_lock(engine)
    assert lock.acquire() and lock.held()
    with other.connect() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    assert not lock.held()
    assert lock.acquire()
    lock.release()
    for item in (engine, other):
        item.dispose()


@pytest.mark.postgres
def test_either_end_of_a_connection_notices_that_the_other_is_gone(postgres_url: str) -> None:
    """The session of a server without power kept its locks for hours. What an address says itself is left alone."""
    url = make_url(postgres_url).update_query_dict({"keepalives_idle": "44"})
    engine = make_engine(url.render_as_string(hide_password=False))
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT name FROM pg_settings WHERE source = 'session' AND name LIKE 'tcp%%'")
        # Their values are those of the socket, which is none of TCP here.
        assert {row.name for row in rows} >= {
            "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout"
        }  # fmt: skip
        ours = connection.connection.dbapi_connection.info.get_parameters()  # type: ignore[union-attr]
    engine.dispose()
    assert ours["keepalives_idle"] == "44"
    silent_s = 44 + int(ours["keepalives_interval"]) * int(ours["keepalives_count"])
    assert silent_s <= 60 and int(ours["tcp_user_timeout"]) <= 60_000


def test_a_second_server_answers_and_takes_over(
    make_service: Callable[..., Any], wait_until: Callable[..., None], tmp_path: Path
) -> None:
    database = {"DEUTERON_DATABASE_URL": f"sqlite:///{tmp_path / 'shared.db'}"}
    first = make_service(**database)
    wait_until(lambda: first.get("/healthz")["dispatch"] == "here", 30)
    second = make_service(**database, DEUTERON_HOME=str(first.home))
    assert second.get("/healthz")["dispatch"] == "elsewhere"
    job_id = first.submit(budget={"trials": 10, "seconds": 10.0})
    wait_until(lambda: len(first.trials(job_id)) >= 2, 60)
    time.sleep(1.0)
    running = second.job(job_id)
    assert (running["state"], running["attempts"]) == ("running", 1), "the second one leaves the first one's job alone"
    seen = second.trials(job_id)
    first.kill()
    killed = time.monotonic()
    wait_until(lambda: second.get("/healthz")["dispatch"] == "here", 10)
    assert time.monotonic() - killed < 5
    wait_until(
        lambda: second.job(job_id)["finished_at"] is not None, 90, lambda: (second.home / "server.log").read_text()
    )
    job = second.job(job_id)
    assert (job["state"], job["attempts"]) == ("succeeded", 1)
    trials = second.trials(job_id)
    assert trials[: len(seen)] == seen
    assert [item["trial"]["number"] for item in trials] == list(range(10))


# -- one measurement


def test_servers_of_one_database_have_one_home(database_url: str, tmp_path: Path) -> None:
    migrations.upgrade(database_url)
    store, other = ServiceStore.open(database_url), ServiceStore.open(database_url)
    homes = [Settings(home=tmp_path / name, database_url=database_url) for name in "ab"]
    for settings in homes:
        settings.home.mkdir()
        require_shared_home(settings, store)  # a home may be moved while nobody dispatches
    leader = dispatch_lock(store.database.engine)
    assert leader.acquire()
    require_shared_home(homes[1], other)
    with pytest.raises(SettingsError, match="has another data directory"):
        require_shared_home(homes[0], other)
    leader.release()
    require_shared_home(homes[0], other)
    store.close(), other.close()


def test_a_device_is_measured_by_one_at_a_time(tmp_path: Path) -> None:
    order: list[str] = []
    inside = threading.Event()

    def measure() -> None:
        with exclusive("cpu", tmp_path / "locks"):
            order.append("second")

    with exclusive("cpu", tmp_path / "locks"):
        thread = threading.Thread(target=measure)
        thread.start()
        inside.wait(0.6)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_a_process_that_dies_gives_its_device_back(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time\nfrom pathlib import Path\nfrom deuteron.server.dispatch.exclusive import exclusive\n"
            f"with exclusive('cpu', Path({str(folder)!r})):\n    print('has it', flush=True)\n    time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None and holder.stdout.readline() == "has it\n"
    threading.Timer(0.7, holder.kill).start()
    started = time.monotonic()
    with exclusive("cpu", folder):
        assert 0.3 < time.monotonic() - started < 10
    holder.wait(10)


def test_two_services_of_one_host_take_turns(
    make_service: Callable[..., Any], wait_until: Callable[..., None], tmp_path: Path
) -> None:
    shared = {"DEUTERON_LOCK_FOLDER": str(tmp_path / "locks")}
    first, second = make_service(**shared), make_service(**shared)
    long = first.submit(budget={"trials": 8, "seconds": 4.0})
    wait_until(lambda: len(first.trials(long)) >= 1, 60)
    short = second.submit(budget={"trials": 1, "seconds": 0.1})
    wait_until(lambda: second.job(short)["finished_at"] is not None, 60)
    assert second.job(short)["started_at"] >= first.job(long)["finished_at"]
    assert second.job(short)["attempts"] == 1


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

_SCHEDULER = """
import asyncio
from distributed import Scheduler

async def main():
    async with Scheduler(host="127.0.0.1", port={port}, dashboard=False) as scheduler:
        await scheduler.finished()

asyncio.run(main())
"""


@pytest.mark.slow
def test_workers_and_jobs_come_back_after_the_scheduler(
    make_service: Callable[..., Any],
    background: Background,
    wait_until: Callable[..., None],
    pick_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    port = pick_port()
    address = f"tcp://127.0.0.1:{port}"
    scheduler = background(_SCHEDULER.format(port=port), {})
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
    background(_SCHEDULER.format(port=port), {})
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
