"""A device is measured by one process of its host, whoever started it: two that time at once time each other."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deuteron.compiler.runtime.devices import get_device

logger = logging.getLogger("deuteron.worker")

_ASK_AGAIN_S = 0.2


@contextmanager
def exclusive(device: str, folder: Path) -> Iterator[None]:
    """Wait until no other process of this host measures on ``device``, and keep others waiting meanwhile.

    The lock is a file of ``folder``, named by what the device is: ``cuda:0`` of one process may be ``cuda:1`` of
    another. It ends with its process.
    """
    path = folder / f"{_identity(device)}.lock"
    handle = _open(path)
    try:
        _wait(handle, device)
        yield
    finally:
        os.close(handle)


def _identity(device: str) -> str:
    if device == "cpu":
        return "cpu"
    return get_device(device).properties.uuid or device.replace(":", "-")


def _open(path: Path) -> int:
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.parent.mkdir()
        # Like /tmp: every user of the host makes locks here, nobody takes those of others away. Only of a new folder.
        path.parent.chmod(0o1777)
    try:
        # Not O_CREAT at once: Linux refuses that for files of other users in such a folder.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        os.fchmod(handle, 0o644)  # for other users, whatever the umask
        return handle


def _wait(handle: int, device: str) -> None:
    said = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not said:
                logger.info("another process of this machine measures on %s; this one waits", device)
                said = True
            time.sleep(_ASK_AGAIN_S)
