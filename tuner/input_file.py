"""Reading files that people name: they are regular files, and of a size that fits into memory, packed or not.

A pipe or a device may never end, and nothing is read of it. So a process substitution (``<(...)``) is refused, too:
most of what is read here is read twice, to be verified first.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import zlib
from pathlib import Path
from typing import BinaryIO

#: What is read into memory of one file at most, unpacked: the largest recordings of searches have a few hundred MiB.
MOST_BYTES = 1 << 29
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_file(path: Path) -> BinaryIO:
    """A regular file, to read. Raises OSError, also for what is none, with the reason as its ``strerror``."""
    try:
        # Without waiting: a pipe would keep the call until somebody writes.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a zero in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    try:
        check_regular(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def check_regular(descriptor: int, path: Path) -> None:
    """Raises OSError where an open file is no regular one."""
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind == stat.S_IFDIR:
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if kind != stat.S_IFREG:
        what = _KINDS.get(kind, "something else")
        raise OSError(errno.EINVAL, f"it is {what}, not a file; save its content as a file first", str(path))


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """What is in a regular file, unpacked where its name ends in ``.gz``: ``most`` bytes at most. Raises OSError, also
    for more, for what is no regular file, and for damaged gzip, with the reason as its ``strerror``."""
    try:
        with open_file(path) as file:
            if path.suffix != ".gz":
                found = file.read(most + 1)
            else:
                with gzip.open(file) as unpacked:
                    found = unpacked.read(most + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise OSError(errno.EINVAL, f"damaged gzip: {error}", str(path)) from None
    if len(found) > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB", str(path))
    return found
