"""Files that must be whole or absent."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from pathlib import Path

from deuteron.tuner.event_log import sync_folder

_CHUNK = 1 << 20
# Of a file that somebody is still writing.
_LONGEST_WRITE_S = 86400.0


def file_sha256(path: Path) -> str:
    """sha256 of a file in hex, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


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


def remove_parts(folder: Path) -> None:
    """Remove what processes that were killed had begun to write in a folder of this service."""
    for path in folder.glob("*.part*"):
        if is_older(path, _LONGEST_WRITE_S):
            path.unlink(missing_ok=True)


def is_older(path: Path, seconds: float) -> bool:
    """Whether a file or folder is there and was not changed for so long."""
    try:
        return time.time() - path.stat().st_mtime > seconds
    except OSError:
        return False
