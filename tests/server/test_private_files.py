"""What the service keeps is for its own user, whichever command made it and whatever the umask is."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import DatabaseError

from deuteron import migrations
from deuteron.compiler.folders import make_folder
from deuteron.compiler.runtime.variant.cache import DiskCache, Entry
from deuteron.server import ServiceStore, Settings, serve
from deuteron.server.database import close_to_others
from deuteron.tuner import JobSpec, builtin_workload
from deuteron.tuner.journal import Journal
from deuteron.tuner.local import default_folder
from deuteron.tuner.records.trust import KeyFolder


def mode(path: Path) -> int:
    """Who may do what with a file."""
    return path.stat().st_mode & 0o777


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home that is not there yet, under a umask that lets everybody read."""
    monkeypatch.setenv("DEUTERON_HOME", str(tmp_path / "home"))
    before = os.umask(0o022)
    yield tmp_path / "home"
    os.umask(before)


def _journal(home: Path) -> None:
    spec = JobSpec(builtin_workload("softmax"), shapes=({"M": 8, "N": 8},), dtypes=("f32",), device="cpu")
    Journal(default_folder(spec), spec).close()


@pytest.mark.parametrize(
    "make",
    [
        _journal,
        lambda home: KeyFolder(home / "keys").own_or_new(),
        lambda home: DiskCache(home / "cache", 1 << 20).put("ab" * 32, Entry({}, {})),
        lambda home: make_folder(home),
    ],
)
def test_the_home_is_made_for_its_owner(home: Path, make: Callable[[Path], object]) -> None:
    make(home)
    assert mode(home) == 0o700


def test_other_folders_are_made_as_ever(home: Path) -> None:
    make_folder(home.parent / "a" / "b")
    assert mode(home.parent / "a") == mode(home.parent / "a" / "b") == 0o755
    assert not home.exists()


def test_a_database_is_made_for_its_owner(home: Path) -> None:
    settings = Settings(home=home)
    settings.directory("bundles")
    assert mode(home) == 0o700
    migrations.upgrade(settings.database_url)
    store = ServiceStore.open(settings.database_url)
    with store.write() as tx:
        tx.tokens.create("root", ["admin"])
    assert {path.name: mode(path) for path in home.glob("deuteron.db*")} == {
        "deuteron.db": 0o600,
        "deuteron.db-shm": 0o600,
        "deuteron.db-wal": 0o600,
    }
    store.close()


def test_a_database_that_others_can_read_is_closed_to_them(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    home.mkdir()
    settings = Settings(home=home)
    close_to_others(settings.database_url)
    assert caplog.text == "", "there is none"
    with sqlite3.connect(home / "deuteron.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    assert mode(home / "deuteron.db") == 0o644
    close_to_others(settings.database_url)
    assert mode(home / "deuteron.db") == 0o600
    assert "was open to other users" in caplog.text
    caplog.clear()
    close_to_others(settings.database_url)
    assert caplog.text == ""


def test_what_is_no_database_keeps_its_mode(home: Path) -> None:
    shared, notes = home.parent / "shared", home.parent / "notes.txt"
    shared.mkdir()
    notes.write_text("hello")
    for path in (shared, notes):
        path.chmod(0o755)
        with pytest.raises(DatabaseError):
            serve(Settings(home=home, port=0, scheduler="none", database_url=f"sqlite:///{path}"))
        assert mode(path) == 0o755
