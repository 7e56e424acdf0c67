"""``deuteron doctor``: what is wrong is named with what helps, and nothing is changed by asking."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deuteron import migrations
from deuteron.cli import doctor
from deuteron.compiler import knobs


@pytest.fixture
def found(run: Any) -> Callable[..., tuple[int, dict[str, dict[str, str]]]]:
    """The exit code and the findings by check."""

    def call(*options: str) -> tuple[int, dict[str, dict[str, str]]]:
        ran = run("doctor", "--json", *options)
        return ran.code, {finding["name"]: finding for finding in json.loads(ran.out)}

    return call


def test_a_sound_machine(run: Any, found: Any, home: Path) -> None:
    code, checks = found()
    assert code == 0, checks
    assert {"versions", "home", "cache", "assembler", "cpu", "load", "database", "service"} <= set(checks)
    assert checks["database"]["text"].endswith("deuteron serve makes it")
    assert not home.exists(), "asking makes nothing"
    table = run("doctor")
    assert table.code == 0 and "numpy" in table.out


def test_a_database_of_an_older_version(found: Any, home: Path) -> None:
    home.mkdir()
    migrations.upgrade(f"sqlite:///{home / 'deuteron.db'}", "0001")
    code, checks = found()
    assert (code, checks["database"]["state"]) == (1, "problem")
    assert "is at 0001, this version knows" in checks["database"]["text"]
    assert checks["database"]["hint"] == "deuteron db upgrade"
    migrations.upgrade(f"sqlite:///{home / 'deuteron.db'}")
    assert found()[1]["database"]["state"] == "ok"


def test_a_database_that_does_not_answer(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEUTERON_DATABASE_URL", "postgresql+psycopg://me:secret@127.0.0.1:1/none")
    code, checks = found()
    assert (code, checks["database"]["state"]) == (1, "problem")
    assert "secret" not in json.dumps(checks)


def test_a_service_is_asked_for(found: Any) -> None:
    code, checks = found("--server", "http://127.0.0.1:1")
    assert (code, checks["service"]["state"]) == (1, "problem")


@pytest.mark.parametrize(("free", "state"), [(1 << 20, "problem"), (1 << 30, "note"), (1 << 40, "ok")])
def test_room_on_the_disk(found: Any, monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    code, checks = found()
    assert checks["home"]["state"] == checks["cache"]["state"] == state
    assert code == (1 if state == "problem" else 0)


def test_a_folder_that_is_a_file(found: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with knobs.cache_dir.scope(tmp_path / "file" / "cache"):
        code, checks = found()
    assert (code, checks["cache"]["state"]) == (1, "problem")
    assert "DEUTERON_CACHE_DIR" in checks["cache"]["hint"]


def test_names_that_nothing_reads(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEUTERON_MAX_TRAILS", "10")
    monkeypatch.setenv("DEUTERON_CPU_THREADS", "2")
    code, checks = found()
    assert (code, checks["settings"]["state"]) == (0, "note")
    assert checks["settings"]["text"] == "nothing reads DEUTERON_MAX_TRAILS"
    assert checks["settings"]["hint"] == "is DEUTERON_MAX_TRIALS meant?"


def test_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    for load, state in ((7.0, "note"), (1.0, "ok")):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert doctor._quiet().state == state
