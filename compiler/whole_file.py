"""Writing a file so that no reader ever sees half of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write: what was written comes under its name when the block ends, forced to the disk, and not at all
    if the block raises. An earlier file stays as it is until then.

    Behind a link its target is replaced. What is there and is no file, such as a terminal, a pipe or ``/dev/null``, is
    written as it is: to put a file in its place would take it from everybody. Raises OSError.
    """
    target = Path(path)
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
