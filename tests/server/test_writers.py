"""Whoever waits for the database's writers keeps nobody from reading."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from deuteron.server import Settings, database, writers
from deuteron.server.context import ServiceContext

JOB = {"workload": "softmax", "shapes": [{"M": 64, "N": 64}]}


def submit_at_once(client: TestClient, number: int) -> tuple[list[threading.Thread], list[tuple[int, str | None]]]:
    """So many jobs, each in a thread of its own; statuses and Retry-After as they come."""
    answers: list[tuple[int, str | None]] = []

    def submit() -> None:
        answer = client.post("/v1/jobs", json=JOB)
        answers.append((answer.status_code, answer.headers.get("retry-after")))

    threads = [threading.Thread(target=submit) for _ in range(number)]
    for thread in threads:
        thread.start()
    return threads, answers


@pytest.fixture
def locked(settings: Settings, open_client: Callable[..., TestClient]) -> tuple[TestClient, sqlite3.Connection]:
    """A client of a service, and who holds the lock of its database."""
    client = open_client(settings)
    other = sqlite3.connect(settings.home / "deuteron.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    return client, other


def test_readers_do_not_wait_for_writers(locked: tuple[TestClient, sqlite3.Connection]) -> None:
    """More wait for the lock than there are threads: all of them waited, and a GET for 15 s."""
    client, other = locked
    threads, answers = submit_at_once(client, 60)
    time.sleep(1)
    began = time.monotonic()
    assert client.get("/v1/jobs").status_code == 200
    assert time.monotonic() - began < 1.5 and not answers
    other.execute("ROLLBACK")
    for thread in threads:
        thread.join()
    assert Counter(answers) == {(202, None): 60}


def test_who_waits_too_long_is_told_to_come_again(
    locked: tuple[TestClient, sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "PATIENCE_S", 0.5)
    client, other = locked
    context: ServiceContext = client.app.state.context  # type: ignore[attr-defined]
    context.store.database.close()  # connections that wait for less long take the place of these
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_MS", 3000)
    began = time.monotonic()
    threads, answers = submit_at_once(client, writers.PLACES + 5)
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 8
    assert Counter(answers) == {(503, "5"): 5, (503, "2"): writers.PLACES}
    other.execute("ROLLBACK")
    assert client.post("/v1/jobs", json=JOB).status_code == 202
