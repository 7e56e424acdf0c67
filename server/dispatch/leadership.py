"""Which of several servers on one database dispatches: the one that holds the database's lock.

The lock is the operating system's on SQLite and an advisory one on PostgreSQL, so it ends with the process that held
it, however that ended; no lease has to run out. PostgreSQL notices within a minute that a machine is gone
(:mod:`..database`). A process that hangs is there and keeps the lock, since it may go on at any moment: never do two
dispatch. The others answer requests and ask for the lock again.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

# Any number that no other program locks in this database; migrations use 20826.
_ADVISORY_KEY = 20827


class DispatchLock(Protocol):
    """Held by one server process of a database at most."""

    def acquire(self) -> bool:
        """Try to take the lock; True if this process has it now. Never waits."""

    def held(self) -> bool:
        """Whether this process has it still: a database that restarts forgets who had it."""

    def release(self) -> None:
        """Give it to the next who asks."""


def dispatch_lock(engine: Engine) -> DispatchLock:
    """The lock of the engine's database."""
    if engine.dialect.name == "postgresql":
        return AdvisoryLock(engine)
    path = Path(engine.url.database or "")
    return FileLock(path.with_name(f"{path.name}.dispatch"))


class FileLock:
    """An ``flock`` on a file beside the database. The file stays; only the lock means something."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def acquire(self) -> bool:
        """As :meth:`DispatchLock.acquire`; raises OSError where the file system has no locks."""
        if self._handle is not None:
            return True
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        return True

    def held(self) -> bool:
        """As :meth:`DispatchLock.held`: until it is released."""
        return self._handle is not None

    def release(self) -> None:
        """As :meth:`DispatchLock.release`."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class AdvisoryLock:
    """PostgreSQL's lock of a session: the connection that took it stays open as long as it is wanted."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._connection: Connection | None = None

    def acquire(self) -> bool:
        """As :meth:`DispatchLock.acquire`; raises SQLAlchemyError where the database does not answer."""
        if self._connection is not None:
            return True
        connection = self._engine.connect()
        try:
            taken = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({_ADVISORY_KEY})").scalar_one()
        except BaseException:
            connection.close()
            raise
        if not taken:
            connection.close()
            return False
        self._connection = connection
        return True

    def held(self) -> bool:
        """As :meth:`DispatchLock.held`: whether the session that took it answers."""
        if self._connection is None:
            return False
        try:
            self._connection.exec_driver_sql("SELECT 1")
        except SQLAlchemyError:
            self._drop()
            return False
        return True

    def release(self) -> None:
        """As :meth:`DispatchLock.release`."""
        if self._connection is not None:
            # At once: PostgreSQL ends the session of a closed connection a moment later.
            with suppress(SQLAlchemyError):
                self._connection.exec_driver_sql(f"SELECT pg_advisory_unlock({_ADVISORY_KEY})")
            # Not back into the pool: where that failed its next user would hold the lock.
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()
