"""Whose turn it is: files whose locks processes of a host take one after the other, whatever job they are of.

Where there can be no such file, or no lock, everybody goes on.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from deuteron.compiler import knobs

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import Device

#: What is timed waits no longer for a GPU: whoever has it may hang in a kernel of its own, until that is ended.
TIMING_PATIENCE_SECONDS = 1.0
_ASK_AGAIN_SECONDS = 0.0005


@contextmanager
def timing(gpu: str) -> Iterator[None]:
    """Time kernels on a ``gpu``, named by what it is, while no other process of this host does, nor computes there what
    is expected (:func:`chunk`); unless one of them does for longer than a second."""
    with turn(_device_lock(gpu), TIMING_PATIENCE_SECONDS, _ASK_AGAIN_SECONDS):
        yield


@contextmanager
def chunk(gpu: str) -> Iterator[None]:
    """Compute on a ``gpu`` for some milliseconds between two timings, however long that has to wait: whoever times
    ends, or is ended."""
    with turn(_device_lock(gpu), None):
        yield


@contextmanager
def turn(path: Path, patience: float | None, ask_again: float = 0.02) -> Iterator[bool]:
    """Whether a lock was free, or became so within ``patience`` seconds, asked for every ``ask_again`` seconds; without
    patience it is waited for."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield False
        return
    try:
        yield _locked(handle, patience, ask_again)
    finally:
        os.close(handle)  # and with it the lock


def _locked(handle: int, patience: float | None, ask_again: float) -> bool:
    deadline = None if patience is None else time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if deadline is None else fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(ask_again)
        except OSError:  # a file system without locks
            return False


def gpu_name(device: Device) -> str:
    """What names a GPU in files, for all processes of this host."""
    return device.properties.uuid or device.name.replace(":", "-")


def _device_lock(gpu: str) -> Path:
    return knobs.cache_dir.get() / "turns" / f"{gpu}.lock"
