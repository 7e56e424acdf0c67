"""One file with all that a service keeps: rows of its database, profiles, keys and the trees that predict.

Rows are JSON and belong to no engine: what SQLite wrote PostgreSQL can take, which is how a laptop's service becomes a
fleet's. A backup of an older revision is restored as that revision and then upgraded.

    manifest.json          schema, version, revision of the tables, rows of each, when
    tables/jobs.jsonl      names of the columns, then a row a line
    files/profiles/...     files below the data directory

Bundles are left out: the service writes them again.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias

import msgspec
import sqlalchemy as sa

from deuteron import __version__, migrations
from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.whole_file import whole_file, write_whole
from deuteron.tuner.input_file import open_file

from .database import make_engine
from .dispatch.ingest import Ingest
from .metrics import Metrics
from .models import Base, JobRow
from .settings import Settings
from .signals import JobSignals
from .store import ServiceStore

SCHEMA = 1
_MANIFEST, _TABLES, _FILES = "manifest.json", "tables/", "files/"
#: What is kept beside the database, as paths below the data directory.
_KEPT = re.compile(
    r"profiles/[0-9a-f]{64}\.hatchet|keys/(own\.pem|services\.json|trusted/[\w.-]+\.json)|predictors\.bundle"
)
_BATCH = 1000  # rows
_LONGEST_MANIFEST, _LONGEST_ROW = 1 << 20, 1 << 28  # bytes
_REVISION_TABLE = "alembic_version"
#: In the data directory while a restore writes there.
_UNFINISHED = "restore-unfinished.json"
_Value: TypeAlias = str | int | float | bool | None
#: What a file raises that is not one of ours, or not any more.
_DAMAGE = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, msgspec.MsgspecError, EOFError, KeyError, ValueError),
    # Encrypted members, ways of packing that Python does not know, and numbers that SQLite's driver does not take.
    *(RuntimeError, NotImplementedError, OverflowError),
)


class BackupError(DeuteronError):
    """A backup cannot be written, read or restored here."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup says of itself. ``revision`` is the one of the tables, ``rows`` counts those of each."""

    schema: int
    deuteron: str
    revision: str
    made_at: str
    rows: dict[str, int]
    files: int
    #: Profiles that jobs name and the data directory had not.
    missing_profiles: int = 0


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """What a restore is about to write: the address of the database, and paths below the data directory."""

    database: str
    files: list[str]


def back_up(settings: Settings, target: Path) -> Backup:
    """Write a backup of the service that has these settings to ``target``. The service may be running. What comes back
    says how many profiles were not to be found.

    Raises:
        BackupError: the target exists, the database has another revision than this version's, or the file cannot be
            written; nothing is left of it.
    """
    if target.exists():
        raise BackupError(f"{target} exists", hint="name a file that does not")
    found = migrations.current(settings.database_url)
    if found != migrations.head():
        raise BackupError(
            f"the database is at revision {found or 'base'}, this version writes {migrations.head()}",
            hint=f"{migrations.remedy(found)}, or the version of deuteron that the service runs",
        )
    try:
        with (
            whole_file(target, mode=0o600, durable=True) as file,  # the signing key is in it
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
        ):
            return _write(archive, settings, found)
    except OSError as error:
        raise BackupError(f"{target}: {error.strerror or error}", hint="nothing was left there") from None


def restore(settings: Settings, source: Path) -> Backup:
    """Put a backup into an empty database and a data directory that has none of its files.

    Raises:
        BackupError: the file is no backup, is damaged or of a version that this one does not know, or what is to be
            written is there already, or the disk is full. Nothing is left of a backup that fails; of one that is killed
            the next restore takes back what is there, and nobody serves it (:func:`refuse_unfinished`).
    """
    _undo_unfinished(settings)
    with _explained(source), open_file(source) as file, zipfile.ZipFile(file) as archive:
        backup = _backup(archive, source)
        files = _files(archive, source, backup)
        _refuse_what_is_there(settings, files)
        marker = _mark(settings, files)
        try:
            _make_tables(settings.database_url, backup)
            _restore_rows(archive, backup, settings.database_url)
            for member, path in files.items():
                _restore_file(archive, member, settings.home / path)
            migrations.upgrade(settings.database_url)
            _release_running(settings)
        except BaseException:
            _undo_unfinished(settings)
            raise
        marker.unlink()
    return backup


def refuse_unfinished(settings: Settings) -> None:
    """Nobody serves half of a backup.

    Raises:
        BackupError: a restore into this data directory was killed.
    """
    if (settings.home / _UNFINISHED).exists():
        raise BackupError(
            f"a restore into {settings.home} was not finished", hint="run `deuteron db restore` again, with its backup"
        )


@contextmanager
def _explained(source: Path) -> Iterator[None]:
    """What reading a file raises that is no backup, or not any more, as :class:`BackupError`."""
    try:
        yield
    except sa.exc.OperationalError:
        raise  # the database does not answer, or its disk is full
    except (*_DAMAGE, sa.exc.StatementError) as error:
        reason = getattr(error, "orig", None) or error or "nested too deeply"
        raise BackupError(f"{source} is no backup, or damaged: {reason}", hint="see `deuteron db backup`") from None
    except OSError as error:
        raise BackupError(f"{error.filename or source}: {error.strerror or error}") from None


def _mark(settings: Settings, files: dict[str, PurePosixPath]) -> Path:
    """Note what a restore is about to write. Its place and the note go away when it has ended."""
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    note = _Unfinished(_place(settings), [str(path) for path in files.values()])
    write_whole(settings.home / _UNFINISHED, json.dumps(asdict(note)), durable=True)
    return settings.home / _UNFINISHED


def _undo_unfinished(settings: Settings) -> None:
    """Take back what a restore that failed, or was killed, has written."""
    marker = settings.home / _UNFINISHED
    if not marker.exists():
        return
    try:
        note = msgspec.json.decode(marker.read_bytes(), type=_Unfinished)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise BackupError(
            f"{marker}, which says what a restore had begun to write, is damaged",
            hint="restore into another data directory and another database",
        ) from None
    if note.database != _place(settings):
        raise BackupError(
            f"a restore into {note.database} was not finished", hint="give that address with --url, or another home"
        )
    migrations.downgrade(settings.database_url, "base")
    for path in note.files:
        (settings.home / path).unlink(missing_ok=True)
    marker.unlink()


def _place(settings: Settings) -> str:
    return sa.make_url(settings.database_url).render_as_string(hide_password=True)


def _write(archive: zipfile.ZipFile, settings: Settings, revision: str) -> Backup:
    engine = make_engine(settings.database_url)
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                rows = {t.name: _write_table(archive, connection, t) for t in Base.metadata.sorted_tables}
                named = set(connection.execute(sa.select(JobRow.profile_sha256).distinct()).scalars())
    finally:
        engine.dispose()
    # After the rows: a profile is stored before the job that names it.
    files = [path for path in _below(settings.home) if _KEPT.fullmatch(path.as_posix())]
    for path in files:
        archive.write(settings.home / path, _FILES + path.as_posix())
    missing = _missing(named, files)
    backup = Backup(SCHEMA, __version__, revision, datetime.now(UTC).isoformat(), rows, len(files), missing)
    archive.writestr(_MANIFEST, json.dumps(asdict(backup), indent=1))
    return backup


def _missing(named: set[str | None], files: list[Path]) -> int:
    return len(named - {None} - {path.stem for path in files})


def _below(home: Path) -> Iterator[Path]:
    for folder in ("profiles", "keys"):
        yield from (path.relative_to(home) for path in sorted((home / folder).rglob("*")) if path.is_file())
    yield from (path.relative_to(home) for path in home.glob("predictors.bundle"))


def _write_table(archive: zipfile.ZipFile, connection: sa.Connection, table: sa.Table) -> int:
    with archive.open(f"{_TABLES}{table.name}.jsonl", "w", force_zip64=True) as file:
        file.write(json.dumps(list(table.columns.keys())).encode() + b"\n")
        count = 0
        for row in connection.execution_options(yield_per=_BATCH).execute(sa.select(table)):
            file.write(json.dumps([v.isoformat() if isinstance(v, datetime) else v for v in row]).encode() + b"\n")
            count += 1
    return count


def _backup(archive: zipfile.ZipFile, source: Path) -> Backup:
    with archive.open(_MANIFEST) as file:
        text = file.read(_LONGEST_MANIFEST + 1)
    if len(text) > _LONGEST_MANIFEST:
        raise ValueError(f"{_MANIFEST} is longer than {_LONGEST_MANIFEST} bytes")
    backup = msgspec.json.decode(text, type=Backup)
    if backup.schema != SCHEMA:
        raise BackupError(
            f"{source} has schema {backup.schema}, this version reads {SCHEMA}",
            hint=f"deuteron {backup.deuteron} wrote it",
        )
    return backup


def _files(archive: zipfile.ZipFile, source: Path, backup: Backup) -> dict[str, PurePosixPath]:
    """Members that are files, with their paths below the data directory."""
    names = [name for name in archive.namelist() if name.startswith(_FILES)]
    paths = {name: PurePosixPath(name.removeprefix(_FILES)) for name in names}
    for name, path in paths.items():
        if not _KEPT.fullmatch(str(path)):
            raise BackupError(f"{source} has a file that no service keeps: {name!r}")
    if len(paths) != backup.files:
        raise ValueError(f"{len(paths)} files, {backup.files} were written")
    return paths


def _refuse_what_is_there(settings: Settings, files: dict[str, PurePosixPath]) -> None:
    for path in files.values():
        if (settings.home / path).exists():
            raise BackupError(
                f"{settings.home / path} exists", hint="restore into an empty data directory: DEUTERON_HOME"
            )
    if migrations.current(settings.database_url) is not None:
        raise BackupError("the database has tables already", hint="restore into an empty one: DEUTERON_DATABASE_URL")


def _make_tables(url: str, backup: Backup) -> None:
    if backup.revision not in migrations.revisions():
        raise BackupError(
            f"the backup is of revision {backup.revision!r}, which deuteron {__version__} does not know",
            hint=f"deuteron {backup.deuteron} wrote it",
        )
    migrations.upgrade(url, backup.revision)


def _restore_rows(archive: zipfile.ZipFile, backup: Backup, url: str) -> None:
    engine = make_engine(url)
    try:
        with engine.execution_options(writing=True).begin() as connection:
            # As they were at that revision, not as the models are.
            reflected = sa.MetaData()
            reflected.reflect(connection)
            tables = [table for table in reflected.sorted_tables if table.name != _REVISION_TABLE]
            if {table.name for table in tables} != backup.rows.keys():
                raise ValueError(f"its tables are not those of revision {backup.revision}")
            for table in tables:
                _insert(archive, connection, table, backup.rows[table.name])
    finally:
        engine.dispose()


def _release_running(settings: Settings) -> None:
    """No run goes on from a backup: what one has reported since, nobody here knows. Its job is queued with the trials
    that are there. A worker that still measures it hands over all that it has, stops and is free for the next job."""
    store = ServiceStore.open(settings.database_url)
    try:
        Ingest(settings, store, JobSignals(), Metrics()).release_running("a backup was restored")
    finally:
        store.close()


def _insert(archive: zipfile.ZipFile, connection: sa.Connection, table: sa.Table, expected: int) -> None:
    # Migrations may have put rows here, for a database that begins.
    connection.execute(sa.delete(table))
    with archive.open(f"{_TABLES}{table.name}.jsonl") as file:
        columns = msgspec.json.decode(file.readline(_LONGEST_ROW), type=list[str])
        instants = [isinstance(table.columns[name].type, sa.DateTime) for name in columns]
        count = 0
        for batch in _batches(file):
            rows = [
                [datetime.fromisoformat(str(v)) if at and v else v for v, at in zip(row, instants, strict=True)]
                for row in batch
            ]
            connection.execute(sa.insert(table), [dict(zip(columns, row, strict=True)) for row in rows])
            count += len(rows)
    if count != expected:
        raise ValueError(f"{count} rows of {table.name}, {expected} were written")
    if connection.dialect.name == "postgresql":
        _go_on_counting(connection, table)


def _batches(file: IO[bytes]) -> Iterator[list[list[_Value]]]:
    batch = []
    while line := file.readline(_LONGEST_ROW):
        batch.append(_row(line))
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _row(line: bytes) -> list[_Value]:
    return msgspec.json.decode(line, type=list[_Value])


def _go_on_counting(connection: sa.Connection, table: sa.Table) -> None:
    """PostgreSQL numbers new rows from a sequence, which does not see numbers that are given."""
    for column in table.primary_key:
        name = connection.scalar(sa.func.pg_get_serial_sequence(table.name, column.name).select())
        highest = connection.scalar(sa.select(sa.func.max(column)))
        if name is not None and highest is not None:
            connection.execute(sa.select(sa.func.setval(name, highest)))


def _restore_file(archive: zipfile.ZipFile, member: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with archive.open(member) as packed, whole_file(path, mode=0o600, durable=True) as file:
        shutil.copyfileobj(packed, file, 1 << 20)
