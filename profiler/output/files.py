"""Writing a file so that no reader ever sees half of it."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from ..errors import ProfileFileError


def write_atomic(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write ``data`` to a temporary file beside ``path``, force it to the disk, and rename it over ``path``.

    Raises ProfileFileError with the system's reason (full disk, no permission, no such folder).
    """
    target = Path(path)
    # Not longer for a long name, of which the system may take the whole.
    temporary = target.parent / f".deuteron-{os.getpid()}-{threading.get_ident()}.tmp"
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ProfileFileError(
            f"cannot write {target}: {error.strerror or error}",
            hint="an earlier file of that name is unchanged; give a name on a disk with space that you may write to",
        ) from error
    return target
