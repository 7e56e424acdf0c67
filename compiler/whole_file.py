"""Writing a file so that no reader ever sees half of it."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_MOST_LINKS = 40  # as many as Linux follows


def write_whole(
    path: str | os.PathLike[str], content: str | bytes, *, mode: int = 0o666, new: bool = False, durable: bool = False
) -> None:
    """Write a file that is at hand as a whole, text as UTF-8: see :func:`whole_file`."""
    with whole_file(path, mode=mode, new=new, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_file(
    path: str | os.PathLike[str], *, mode: int = 0o666, new: bool = False, durable: bool = False
) -> Iterator[BinaryIO]:
    """A file to write: what was written comes under its name when the block ends, forced to the disk, and not at all
    if the block raises. An earlier file stays as it is until then.

    Behind a link its target is replaced. What is there and is no file, such as a terminal, a pipe or ``/dev/null``, is
    written as it is: to put a file in its place would take it from everybody. So is what the process has open, as
    ``/dev/stdout``: also where that is a file, others write there before and afterwards.

    ``mode``: permissions of the file, of which the umask takes some. ``new``: of several that write it at once one
    does, and for the others it exists. ``durable``: when the block has ended a power cut does not take the name away.
    Raises OSError.
    """
    target = Path(path)
    if new and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    descriptor = open_descriptor(target)
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
    temporary = target.parent / f".deuteron-{os.getpid()}-{secrets.token_hex(8)}.part"
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if new:
            target.hardlink_to(temporary)
        else:
            temporary.replace(target)
    except OSError as error:
        if error.filename == str(temporary):  # which nobody knows
            error.filename, error.filename2 = str(target), None
        raise
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make the names that files of this folder were given survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_descriptor(path: Path) -> int | None:
    """The open file of this process that a name such as ``/dev/stdout`` or ``/dev/fd/3`` leads to; None for others."""
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(path.parent)
        if path.name.isdecimal() and folder == os.path.realpath("/dev/fd"):
            return int(path.name)
        if not path.is_symlink():
            return None
        path = Path(folder, path.readlink())
    return None
