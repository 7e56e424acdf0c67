"""Engines and transactions for the two databases: SQLite in one file, PostgreSQL for a fleet."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from deuteron.compiler.extras import require_extras

from .addresses import without_secrets
from .settings import SettingsError

logger = logging.getLogger("deuteron.server")

# Starlette runs synchronous endpoints on up to 40 threads; each may hold one connection.
_POOL_SIZE = 10
_POOL_OVERFLOW = 30
_BUSY_TIMEOUT_MS = 15_000
_POSTGRES_READ_ONLY = "25006"
# When an end of a connection to PostgreSQL takes the other for dead: silent for _IDLE_S, it is asked, and says nothing
# _COUNT times; or nobody acknowledges what was sent for _UNACKNOWLEDGED_MS. Else that takes hours, for which a machine
# that lost its power keeps the lock of who dispatches, and those of jobs.
_IDLE_S, _INTERVAL_S, _COUNT, _UNACKNOWLEDGED_MS = 15, 5, 3, 30_000
_OUR_END: dict[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": _IDLE_S,
    "keepalives_interval": _INTERVAL_S,
    "keepalives_count": _COUNT,
    "tcp_user_timeout": _UNACKNOWLEDGED_MS,
}
_ITS_END: dict[str, int] = {
    "tcp_keepalives_idle": _IDLE_S,
    "tcp_keepalives_interval": _INTERVAL_S,
    "tcp_keepalives_count": _COUNT,
    "tcp_user_timeout": _UNACKNOWLEDGED_MS,
}


class DatabaseLost(OperationalError):
    """The file of a SQLite database was deleted, or another put in its place, while it was open: what is written now
    goes where nobody will find it."""

    message = "the file of the database was deleted or replaced under this server"
    hint = "start the server anew, with its database in place or a backup restored"

    def __init__(self) -> None:
        super().__init__(None, None, Exception(self.message))


class DatabaseReadOnly(OperationalError):
    """The database answers and takes no writes: a replica, as a primary becomes by a failover, or a file on a file
    system that was taken for reading alone."""

    message = "the database is read-only"
    hint = "name the server that takes writes (target_session_attrs=read-write finds it), or make the file writable"

    def __init__(self) -> None:
        super().__init__(None, None, Exception(self.message))


def _is_read_only(error: BaseException | None) -> bool:
    """What SQLite and PostgreSQL say of a write that they do not take."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY
    return getattr(error, "sqlstate", None) == _POSTGRES_READ_ONLY


def parse_url(url: str) -> URL:
    """The address with the driver filled in: ``postgresql://`` means psycopg 3.

    Raises:
        SettingsError: not an address of SQLite or PostgreSQL, of a driver that is not psycopg, or with options that
            nobody would heed.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the second of a port that is no number, as in postgresql://[::1/name
        raise SettingsError(
            f"database address {without_secrets(url)!r} does not parse",
            hint="sqlite:////absolute/path.db or postgresql://user:password@host/name",
        ) from None
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "postgresql":
        raise SettingsError(
            f"database driver {parsed.drivername!r} is not supported", hint="postgresql:// uses psycopg"
        )
    if parsed.get_backend_name() != "sqlite":
        raise SettingsError(
            f"database {parsed.get_backend_name()!r} is not supported",
            hint="sqlite or postgresql",
        )
    if parsed.database in (None, "", ":memory:"):
        raise SettingsError(
            f"database address {without_secrets(url)!r} names no file, and servers, workers and commands share one",
            hint="sqlite:////absolute/path.db",
        )
    if parsed.query:  # SQLite's driver passes over most, and mode=ro would write
        raise SettingsError(
            f"database address {without_secrets(url)!r}: a file of SQLite has no options",
            hint=f"leave out what begins at the question mark ({', '.join(sorted(parsed.query))}); in a name it is %3F",
        )
    # Here, since versions of SQLAlchemy differ in whether they do so, and none knows names that are no UTF-8.
    file = unquote(url.partition(":///")[2].partition("?")[0], errors="surrogateescape")
    return parsed.set(database=file)


def make_engine(url: str) -> Engine:
    """An engine with the settings this service relies on. Makes the folder of a SQLite file, and the file for its owner
    alone.

    Raises:
        SettingsError: as :func:`parse_url`.
        MissingExtra: the address is of PostgreSQL, whose driver is not installed.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        Path(str(parsed.database)).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(parsed, pool_size=_POOL_SIZE, max_overflow=_POOL_OVERFLOW)
        event.listen(engine, "do_connect", _make_private)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    require_extras("postgres", by="a PostgreSQL database")
    engine = create_engine(
        parsed,
        pool_size=_POOL_SIZE,
        max_overflow=_POOL_OVERFLOW,
        pool_pre_ping=True,
        connect_args={name: value for name, value in _OUR_END.items() if name not in parsed.query},
    )
    event.listen(engine, "connect", _prepare_postgres)
    return engine


def close_to_others(url: str) -> None:
    """Take a SQLite database of this service from everybody but its owner: kernels, trials and hashes of tokens are in
    it, and servers made it as the umask had it. Only once it was opened: an address may name any file or folder."""
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite":
        return
    for suffix in ("", "-wal", "-shm"):
        path = Path(f"{parsed.database}{suffix}")
        try:
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)
                logger.warning("%s was open to other users; it is closed to them now", path)
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.warning("%s is open to other users, and cannot be closed: %s", path, error.strerror)


def _make_private(_dialect: object, _entry: object, arguments: Sequence[str], _named: object) -> None:
    # SQLite gives the files beside it the same mode. One that is there is not opened: to close it again would take away
    # the locks that this process has on it.
    with suppress(OSError):  # SQLite says why there can be none
        os.close(os.open(arguments[0], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _file_at(path: str) -> tuple[int, int]:
    facts = Path(path).stat()
    return facts.st_dev, facts.st_ino


def _prepare_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    # The driver's own transaction control begins late and deferred; _begin_sqlite does it instead.
    connection.isolation_level = None
    cursor = connection.cursor()
    # WAL: readers (lookups) never wait for the writer (a worker's trials).
    cursor.execute("PRAGMA journal_mode=WAL")
    # FULL, not NORMAL: NORMAL already survives kill -9, but a power cut may drop the last commits, and
    # by then the worker has deleted its own copy of those trials. One fsync a trial costs a few ms,
    # beside a measurement that took longer; reads do not pay it.
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _prepare_postgres(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    # Not as `options` of the connection: an address may have some of its own, and poolers take none.
    cursor = connection.cursor()
    for name, value in _ITS_END.items():
        cursor.execute(f"SET {name} = {value}")
    cursor.close()
    connection.commit()


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that turns into a write can fail with "database is locked" without waiting,
    # because its snapshot is stale. Writers therefore take the lock first and wait for it.
    writing = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


class Database:
    """Read and write transactions on one engine. Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(writing=True)
        self._opened: tuple[int, int] | None = None
        self._lost = False
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", self._note_file)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads: a consistent snapshot on SQLite. Raises :class:`DatabaseLost`."""
        self._refuse_lost()
        with self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that commits when the block ends and rolls back when it raises. Raises
        :class:`DatabaseLost` and :class:`DatabaseReadOnly`."""
        self._refuse_lost()
        try:
            with self._writer.connect() as connection, connection.begin():
                yield connection
        except DBAPIError as error:
            if not _is_read_only(error.orig):
                raise
            self.engine.dispose()  # the next connections may be to the server that is the primary now
            raise DatabaseReadOnly from error

    def is_lost(self) -> bool:
        """Whether the file of a SQLite database is not the one that was opened first: see :class:`DatabaseLost`. It may
        come back. The log tells of either, once."""
        if self._opened is None:
            return False
        try:
            lost = _file_at(str(self.engine.url.database)) != self._opened
        except (FileNotFoundError, NotADirectoryError):
            lost = True
        if lost != self._lost:
            self._lost = lost
            if lost:
                logger.error("%s; requests are refused: %s", DatabaseLost.message, DatabaseLost.hint)
            else:
                logger.warning("the file of the database is back")
        return lost

    def _refuse_lost(self) -> None:
        # Before a connection is made, which would make an empty database in the place of one that is gone.
        if self.is_lost():
            raise DatabaseLost

    def _note_file(self, _connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        if self._opened is None:
            self._opened = _file_at(str(self.engine.url.database))

    def close(self) -> None:
        self.engine.dispose()
