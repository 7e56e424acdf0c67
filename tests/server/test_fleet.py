"""What keeps a fleet whole: one dispatcher a database, one measurement a device."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from deuteron import migrations
from deuteron.server import ServiceStore, Settings, SettingsError
from deuteron.server.database import make_engine
from deuteron.server.dispatch.exclusive import exclusive
from deuteron.server.dispatch.leadership import dispatch_lock
from deuteron.server.homes import require_shared_home

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


@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_locks_are_everybody_s_under_any_umask(tmp_path: Path, umask: int) -> None:
    """Another user of the host could not open the lock, and each of its jobs failed."""
    before = os.umask(umask)
    try:
        with exclusive("cpu", tmp_path / "locks"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "locks" / "cpu.lock").stat().st_mode) == 0o644


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
