"""Standard streams of our commands that are closed, have no room, or lack characters."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def prepare_streams() -> None:
    """Let everything be written: what was closed on purpose takes it and forgets it, and what an encoding lacks is
    replaced, by ``?`` where people read it in columns, else by its escape."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or stream.closed:
            # Kept open by the module: a file that is opened later would get the number, and what is printed.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure") and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="replace" if stream.isatty() else "backslashreplace")


@contextmanager
def streams_kept() -> Iterator[None]:
    """Afterwards the standard streams are what they were, and can be written, whatever ran in between."""
    kept = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout, sys.stderr = kept
        prepare_streams()


def is_full(error: OSError) -> bool:
    """Whether there was no room for what was written; of the standard output the system names no file."""
    return error.filename is None and error.errno in _FULL


def drop_output(*, messages: bool = False) -> None:
    """Print into nothing from here on, ``messages`` on stderr, too: Python would complain once more when it flushes the
    streams at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr) if messages else (sys.stdout,):
        os.dup2(nothing, stream.fileno())
