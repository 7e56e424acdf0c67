"""Files of profiles."""

from __future__ import annotations

import os
from pathlib import Path

from deuteron.compiler.whole_file import write_whole

from ..errors import ProfileFileError


def write_atomic(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write ``data`` under a name, whole or not at all (:mod:`deuteron.compiler.whole_file`).

    Raises ProfileFileError with the system's reason (full disk, no permission, no such folder).
    """
    target = Path(path)
    try:
        write_whole(target, data)
    except OSError as error:
        raise ProfileFileError(
            f"cannot write {target}: {error.strerror or error}",
            hint="an earlier file of that name is unchanged; give a name on a disk with space that you may write to",
        ) from error
    return target
