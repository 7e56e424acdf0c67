"""Servers of one database have one data directory: profiles, bundles, the signing key and what predicts are in it, and
each of them is asked for these."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from deuteron.compiler.whole_file import write_whole

from .dispatch.leadership import dispatch_lock
from .settings import Settings, SettingsError
from .store import ServiceStore

_FILE = "home.id"
_MOST = 2**62


def require_shared_home(settings: Settings, store: ServiceStore) -> None:
    """Note in the database which data directory is its own.

    Raises:
        SettingsError: the server that dispatches now has another one. Where none does, the directory was moved, or a
            backup restored.
    """
    own = _identity(settings.home)
    lock = dispatch_lock(store.database.engine)
    alone = lock.acquire()
    try:
        with store.write() as tx:
            noted = tx.home()
            if noted is not None and noted != own and not alone:
                raise SettingsError(
                    f"another server of this database has another data directory than {settings.home}: what one keeps "
                    "there, such as profiles, the other would not find",
                    hint="give all of them one DEUTERON_HOME, on a volume or a file system that they share",
                )
            if noted != own:
                tx.note_home(own)
    finally:
        lock.release()


def _identity(home: Path) -> int:
    """The number in the directory, made where there is none."""
    path = home / _FILE
    with suppress(FileNotFoundError, ValueError):
        return int(path.read_text()) % _MOST
    write_whole(path, str(secrets.randbelow(_MOST)), durable=True)
    return int(path.read_text())
