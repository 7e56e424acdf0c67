"""Files of the service: their sums, locks on them, room for them, and what is left of unfinished ones."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CHUNK = 1 << 20
_POSTGRES_DISK_FULL = "53100"
# Of a file that somebody is still writing.
_LONGEST_WRITE_S = 86400.0


def file_sha256(path: Path) -> str:
    """sha256 of a file in hex, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process or thread at a time is in the blocks of one path, where a file is meanwhile; the others wait. Where
    there can be no file, or no lock on it, nobody waits."""
    handle = _locked(path)
    try:
        yield
    finally:
        if handle is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(handle)


def _locked(path: Path) -> int | None:
    with suppress(OSError):
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                if _is_at(handle, path):
                    return handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # who had it has removed it, and the next one makes another
    return None


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def is_full(error: BaseException | None) -> bool:
    """Whether this, or an error that it came of, says that there was no room for a file or a database: where SQLite has
    none it ends the transaction, and what is said last is that there is nothing to take back."""
    while error is not None:
        if _says_full(error):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def _says_full(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    if getattr(error, "sqlstate", None) == _POSTGRES_DISK_FULL:
        return True
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def remove_parts(folder: Path) -> None:
    """Remove what processes that were killed had begun to write in a folder of this service."""
    for path in folder.glob("*.part*"):
        if is_older(path, _LONGEST_WRITE_S):
            path.unlink(missing_ok=True)


def is_older(path: Path, seconds: float) -> bool:
    """Whether a file or folder is there and was not changed for so long."""
    try:
        return time.time() - path.stat().st_mtime > seconds
    except OSError:
        return False
