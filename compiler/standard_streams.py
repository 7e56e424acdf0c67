"""Standard streams of our commands that are closed, have no room, or lack characters."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import TextIO

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def prepare_streams() -> None:
    """Let everything be written: what was closed on purpose takes it and forgets it, and what an encoding lacks is
    replaced, by ``?`` where people read it in columns, else by its escape."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # Kept open by the module: a file that is opened later would get the number, and what is printed.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure") and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="replace" if stream.isatty() else "backslashreplace")


@contextmanager
def streams_kept() -> Iterator[None]:
    """Inside, the standard streams are others to the same places: whoever wraps, detaches or closes one takes none away
    from what comes afterwards."""
    kept = sys.stdout, sys.stderr
    lent = sys.stdout, sys.stderr = _another(kept[0]), _another(kept[1])
    try:
        yield
    finally:
        left = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = kept
        _flush(*left, *lent)


def _another(stream: TextIO) -> TextIO:
    """A stream of its own to where ``stream`` writes; ``stream`` itself where that is memory."""
    try:
        descriptor = os.dup(stream.fileno())
    except UnsupportedOperation:
        return stream
    stream.flush()
    buffering = 1 if stream.line_buffering else -1
    return os.fdopen(descriptor, "w", buffering, encoding=stream.encoding, errors=stream.errors)


def _flush(*streams: TextIO) -> None:
    for stream in streams:
        with suppress(AttributeError, ValueError):  # none at all, one that is closed or detached
            stream.flush()


def is_full(error: OSError) -> bool:
    """Whether there was no room for what was written; of the standard output the system names no file."""
    return error.filename is None and error.errno in _FULL


def drop_output(*, messages: bool = False) -> None:
    """Print into nothing from here on, ``messages`` on stderr, too: Python would complain once more when it flushes the
    streams at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr) if messages else (sys.stdout,):
        os.dup2(nothing, stream.fileno())
