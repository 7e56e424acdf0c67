"""Files that must be whole or absent."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

_CHUNK = 1 << 20


def file_sha256(path: Path) -> str:
    """sha256 of a file in hex, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Make a rename in this folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, text: str) -> None:
    """Replace a small file so that readers see the old or the new text, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def is_full(error: BaseException | None) -> bool:
    """Whether something could not be written because there was no room."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
