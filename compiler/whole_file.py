"""Writing a file so that no reader ever sees half of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_MOST_LINKS = 40  # as many as Linux follows


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write: what was written comes under its name when the block ends, forced to the disk, and not at all
    if the block raises. An earlier file stays as it is until then.

    Behind a link its target is replaced. What is there and is no file, such as a terminal, a pipe or ``/dev/null``, is
    written as it is: to put a file in its place would take it from everybody. So is what the process has open, as
    ``/dev/stdout``: also where that is a file, others write there before and afterwards. Raises OSError.
    """
    target = Path(path)
    descriptor = _descriptor(target)
    if descriptor is not None:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            yield file
        return
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            yield file
        return
    target = Path(os.path.realpath(target))
    # Not longer for a long name, of which the system may take the whole. By a name of its own instead of mkstemp's it
    # is as readable as any file; the umask cannot be asked for, only changed.
    temporary = target.parent / f".deuteron-{os.getpid()}-{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _descriptor(path: Path) -> int | None:
    """The open file of this process that a name such as ``/dev/stdout`` or ``/dev/fd/3`` leads to; None for others."""
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(path.parent)
        if path.name.isdecimal() and folder == os.path.realpath("/dev/fd"):
            return int(path.name)
        if not path.is_symlink():
            return None
        path = Path(folder, path.readlink())
    return None
