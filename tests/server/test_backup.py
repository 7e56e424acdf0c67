"""Backups: whatever the tables hold comes back, on either database, or nothing does."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from deuteron import migrations
from deuteron.server import Settings
from deuteron.server.backup import BackupError, back_up, refuse_unfinished, restore
from deuteron.server.database import make_engine
from deuteron.server.models import Base
from deuteron.tuner.records.key_folder import KeyFolder
from deuteron.tuner.records.signature import SigningKey

ROWS = 30
TABLES = [table.name for table in Base.metadata.sorted_tables]


def drawn(column: sa.Column[Any], draw: random.Random, number: int) -> object:
    """A value that the column may hold; numbers of rows where it has to be unique."""
    kind = column.type.python_type if not isinstance(column.type, sa.TypeDecorator) else datetime
    unique = column.primary_key or column.unique or column.foreign_keys
    if column.nullable and draw.random() < 0.3:
        return None
    if kind is bool:
        return draw.random() < 0.5
    if kind is int:
        return number if unique else draw.choice([0, 1, 2**31 - 1])
    if kind is float:
        return draw.choice([0.0, -0.0, 1e-300, 1.7e308, draw.random()])
    if kind is datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw.randrange(10**15))
    if unique:
        return f"{number:08d}"
    length = getattr(column.type, "length", None) or 400
    return "".join(draw.choice(["a", "Ä", "\U0001f600", "\n", '"', "\\", "\u2028"]) for _ in range(length // 4))


def fill(url: str, seed: int) -> dict[str, list[tuple[object, ...]]]:
    """Random rows in every table; what is in them."""
    migrations.upgrade(url)
    draw = random.Random(seed)
    engine = make_engine(url)
    with engine.begin() as connection:
        for table in Base.metadata.sorted_tables:
            connection.execute(sa.delete(table))
            rows = [{c.name: drawn(c, draw, n) for c in table.columns} for n in range(1, ROWS + 1)]
            connection.execute(sa.insert(table), rows)
    engine.dispose()
    return contents(url)


def contents(url: str) -> dict[str, list[tuple[object, ...]]]:
    engine = make_engine(url)
    with engine.connect() as connection:
        found = {
            table.name: sorted((tuple(row) for row in connection.execute(sa.select(table))), key=repr)
            for table in Base.metadata.sorted_tables
        }
    engine.dispose()
    return found


def service(home: Path, url: str = "") -> Settings:
    return Settings(home=home, database_url=url)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A backup of a service with rows, a profile and a key."""
    settings = service(tmp_path / "first")
    (tmp_path / "first" / "profiles").mkdir(parents=True)
    (tmp_path / "first" / "profiles" / f"{'a' * 64}.hatchet").write_bytes(b"[]" * 1000)
    (tmp_path / "first" / "profiles" / ".upload.part").write_bytes(b"half of one")
    (tmp_path / "first" / "keys" / "trusted").mkdir(parents=True)
    (tmp_path / "first" / "keys" / "own.pem").write_bytes(b"key")
    fill(settings.database_url, 0)
    back_up(settings, tmp_path / "made.zip")
    return tmp_path / "made.zip"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("sqlite", "sqlite"),
        pytest.param("sqlite", "postgres", marks=pytest.mark.postgres),
        pytest.param("postgres", "sqlite", marks=pytest.mark.postgres),
    ],
)
def test_rows_come_back_on_either_database(
    source: str, target: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    address = {"sqlite": "", "postgres": ""}
    if "postgres" in (source, target):
        address["postgres"] = request.getfixturevalue("postgres_url")
    first, second = service(tmp_path / "a", address[source]), service(tmp_path / "b", address[target])
    stored = fill(first.database_url, 1)
    manifest = back_up(first, tmp_path / "made.zip")
    assert manifest.rows == dict.fromkeys(stored, ROWS)
    restore(second, tmp_path / "made.zip")
    assert contents(second.database_url) == stored
    # New rows get numbers of their own.
    engine = make_engine(second.database_url)
    table = Base.metadata.tables["config_history"]
    with engine.begin() as connection:
        row = connection.execute(sa.select(table).limit(1)).mappings().one()
        values = {name: value for name, value in row.items() if name != "number"}
        (number,) = connection.execute(sa.insert(table).values(**values)).inserted_primary_key or ()
    engine.dispose()
    assert number == ROWS + 1


def test_files_come_back_and_are_private(made: Path, tmp_path: Path) -> None:
    home = tmp_path / "second"
    manifest = restore(service(home), made)
    assert manifest.files == 2
    assert (home / "profiles" / f"{'a' * 64}.hatchet").read_bytes() == b"[]" * 1000
    assert (home / "keys" / "own.pem").read_bytes() == b"key"
    assert (home / "keys" / "own.pem").stat().st_mode & 0o077 == 0
    assert made.stat().st_mode & 0o077 == 0
    assert {path.name for path in home.iterdir()} <= {
        "deuteron.db",
        "deuteron.db-wal",
        "deuteron.db-shm",
        "profiles",
        "keys",
    }


def test_services_that_showed_a_key_show_no_other_first_after_a_restore(tmp_path: Path) -> None:
    """Whether their key was trusted for good, as the first one, or is forgotten by now."""
    keys = KeyFolder(tmp_path / "first" / "keys")
    keys.own_or_new()
    good, first, forgotten, other = (SigningKey.generate().public_key for _ in range(4))
    keys.trust(good, "a person's choice", service="http://a")
    assert keys.trust_first(first, "http://b") and keys.trust_first(forgotten, "http://c")
    keys.forget(next(key for key in keys.trusted() if key.public_key == forgotten))
    migrations.upgrade(service(tmp_path / "first").database_url)
    back_up(service(tmp_path / "first"), tmp_path / "made.zip")
    restore(service(tmp_path / "second"), tmp_path / "made.zip")
    restored = KeyFolder(tmp_path / "second" / "keys")
    assert [restored.trust_first(other, f"http://{name}") for name in "abcd"] == [False, False, False, True]
    assert restored.own_path.read_bytes() == keys.own_path.read_bytes()


def test_profiles_that_are_not_there_are_counted(tmp_path: Path) -> None:
    settings = service(tmp_path / "first")
    fill(settings.database_url, 2)
    engine = make_engine(settings.database_url)
    jobs = Base.metadata.tables["jobs"]
    with engine.begin() as connection:
        connection.execute(sa.update(jobs).values(profile_sha256=sa.case((jobs.c.number < 3, "a" * 64), else_=None)))
    engine.dispose()
    assert back_up(settings, tmp_path / "lacks.zip").missing_profiles == 1
    (settings.home / "profiles").mkdir()
    (settings.home / "profiles" / f"{'a' * 64}.hatchet").write_bytes(b"[]")
    assert back_up(settings, tmp_path / "whole.zip").missing_profiles == 0


def test_an_older_revision_is_restored_and_upgraded(tmp_path: Path) -> None:
    values = {
        "id": "c1", "kernel_hash": "a" * 64, "kernel_name": "k", "device_key": "cpu/x", "device_name": "x",
        "dtype": "f32", "shape_key": "M=1", "toolchain_key": "{}", "job_id": "j1", "checked": True,
        "low_ns": 1.0, "high_ns": 2.0, "body": "{}", "created_at": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    migrations.upgrade(f"sqlite:///{tmp_path / 'empty.db'}", "0002")
    engine = make_engine(f"sqlite:///{tmp_path / 'empty.db'}")
    tables = set(sa.inspect(engine).get_table_names()) - {"alembic_version"}
    engine.dispose()
    rows = {name: int(name == "configs") for name in tables}
    manifest = {"schema": 1, "deuteron": "0", "revision": "0002", "made_at": "", "rows": rows, "files": 0}
    with zipfile.ZipFile(tmp_path / "old.zip", "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        for name in tables:
            lines = [list(values), list(values.values())] if name == "configs" else [[]]
            archive.writestr(f"tables/{name}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    settings = service(tmp_path / "home")
    restore(settings, tmp_path / "old.zip")
    assert migrations.current(settings.database_url) == migrations.head()
    found = contents(settings.database_url)
    assert [row[0] for row in found["configs"]] == ["c1"]
    assert len(found["config_history"]) == 1


def test_what_is_there_is_not_touched(made: Path, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="exists"):
        back_up(service(tmp_path / "first"), made)
    stored = contents(service(tmp_path / "first").database_url)
    with pytest.raises(BackupError, match="exists"):
        restore(service(tmp_path / "first"), made)
    with pytest.raises(BackupError, match="has tables"):
        restore(Settings(home=tmp_path / "other", database_url=service(tmp_path / "first").database_url), made)
    assert contents(service(tmp_path / "first").database_url) == stored


def test_a_damaged_backup_leaves_nothing(made: Path, tmp_path: Path) -> None:
    whole, draw = made.read_bytes(), random.Random(5)
    home, refused = tmp_path / "home", 0
    for number in range(40):
        spoiled = bytearray(whole)
        if number % 2:
            del spoiled[draw.randrange(len(whole)) :]
        else:
            spoiled[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        (tmp_path / "spoiled.zip").write_bytes(spoiled)
        settings = service(home / str(number))
        try:
            restore(settings, tmp_path / "spoiled.zip")
        except BackupError:
            refused += 1
            assert migrations.current(settings.database_url) is None
            assert not [path for path in settings.home.rglob("*") if path.is_file() and "deuteron.db" not in path.name]
        else:  # a bit that says when, or on which system, a member was made
            assert contents(settings.database_url) == contents(service(tmp_path / "first").database_url)
    assert refused > 20


@pytest.mark.parametrize("name", ["files/../../evil", "files//etc/evil", "files/profiles/../keys/own.pem", "files/x"])
def test_files_that_no_service_keeps_are_refused(name: str, made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr(name, "x")
    with pytest.raises(BackupError, match="no service keeps"):
        restore(service(tmp_path / "home"), made)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"schema": 2}, "has schema 2"),
        ({"revision": "9999"}, "does not know"),
        ({"revision": ""}, "does not know"),
        ({"revision": "+1"}, "does not know"),
        ({"rows": {"jobs": ROWS}}, "not those of revision"),
        ({"rows": {**dict.fromkeys(TABLES, ROWS), "jobs": ROWS + 1}}, "rows of jobs"),
        ({"files": 3}, "2 files, 3 were written"),
        ({"made_at": "x" * 2_000_000}, "longer than"),
    ],
)
def test_backups_of_others_are_refused(changed: dict[str, object], message: str, made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["manifest.json"] = json.dumps({**json.loads(members["manifest.json"]), **changed}).encode()
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(BackupError, match=message):
        restore(service(tmp_path / "home"), tmp_path / "other.zip")
    assert migrations.current(service(tmp_path / "home").database_url) is None


def test_a_pipe_is_no_backup(tmp_path: Path) -> None:
    """It kept the command for as long as nobody wrote."""
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(BackupError, match="it is a pipe"):
        restore(service(tmp_path / "home"), tmp_path / "pipe.zip")


@pytest.mark.parametrize(
    "lines",
    [
        *("3\n", "[" * 100_000, '["number"]\n3\n', '["number"]\n[{}]\n', "", '["x"]\n[1]\n'),
        f'["number"]\n[{1 << 63}]\n',
    ],
)
def test_rows_that_are_none_are_refused(lines: str, made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["tables/jobs.jsonl"] = lines.encode()
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(BackupError, match="damaged"):
        restore(service(tmp_path / "home"), tmp_path / "other.zip")
    assert migrations.current(service(tmp_path / "home").database_url) is None


@pytest.mark.parametrize("at", ["_make_tables", "_restore_rows", "_restore_file"])
def test_a_restore_that_was_killed_is_not_served_and_can_be_repeated(at: str, made: Path, tmp_path: Path) -> None:
    """The process ends in the middle of a step, without any of Python's endings."""
    killed = (
        "import os, sys\nfrom pathlib import Path\nfrom deuteron.server import Settings, backup\n"
        f"step = backup.{at}\n"
        "def killed(*arguments):\n    step(*arguments)\n    os._exit(9)\n"
        f"backup.{at} = killed\n"
        "backup.restore(Settings(home=Path(sys.argv[1])), Path(sys.argv[2]))\n"
    )
    home = tmp_path / "home"
    assert subprocess.run([sys.executable, "-c", killed, home, made], check=False).returncode == 9
    with pytest.raises(BackupError, match="not finished"):
        refuse_unfinished(service(home))
    restore(service(home), made)
    refuse_unfinished(service(home))
    assert contents(service(home).database_url) == contents(service(tmp_path / "first").database_url)
    assert (home / "keys" / "own.pem").read_bytes() == b"key"


@pytest.mark.parametrize("note", [b"", b"[]", b'{"database": "sqlite:///x"}', b'{"database": 3, "files": []}', b"\xff"])
def test_a_damaged_note_of_a_restore_is_named(note: bytes, made: Path, tmp_path: Path) -> None:
    """The service sends whoever asks to this command."""
    (tmp_path / "restore-unfinished.json").write_bytes(note)
    with pytest.raises(BackupError, match="restore-unfinished.json, which says .* is damaged"):
        restore(service(tmp_path), made)
    assert (tmp_path / "restore-unfinished.json").read_bytes() == note


def test_a_running_service_is_backed_up_and_its_copy_goes_on(
    make_service: Callable[..., Any], wait_until: Callable[..., None], tmp_path: Path
) -> None:
    first = make_service()
    job_id = first.submit(budget={"trials": 8, "seconds": 2.0})
    wait_until(lambda: len(first.trials(job_id)) >= 2, 60)
    manifest = back_up(service(first.home), tmp_path / "made.zip")
    first.kill()
    assert 2 <= manifest.rows["trials"] <= 8
    # Where the next service of the fixture has its data.
    restore(service(tmp_path / "home1"), tmp_path / "made.zip")
    copy = contents(service(tmp_path / "home1").database_url)["trials"]
    second = make_service()
    wait_until(lambda: second.job(job_id)["finished_at"] is not None, 60)
    assert second.job(job_id)["state"] == "succeeded"
    trials = second.trials(job_id)
    assert [item["trial"]["number"] for item in trials] == list(range(8))
    assert {row[1] for row in copy} <= {item["trial"]["id"] for item in trials}
