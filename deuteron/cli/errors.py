"""Mistakes on the command line that only show once a command has begun."""

from __future__ import annotations

import errno
from pathlib import Path

from deuteron.compiler.errors import DeuteronError

#: What the system may have no more of, whatever a command does, and how there is more.
_REMEDIES = {
    errno.EMFILE: "let this shell open more: ulimit -n 1024",
    errno.ENFILE: "end other programs, or let the system open more: sysctl fs.file-max",
    errno.ENOMEM: "end other programs, or use a machine with more memory",
}


class CommandError(DeuteronError):
    """An argument or option cannot be used as it was given; the message names it."""


def remedy_of(error: OSError) -> str | None:
    """What helps where the system has no more open files or memory; None for what is wrong otherwise."""
    return _REMEDIES.get(error.errno or 0)


def no_file(path: Path) -> str:
    """What ``path`` is instead of a file that a command could read."""
    if path.is_dir():
        return f"{path} is a folder"
    return f"{path} is a pipe or a device, and no file" if path.exists() else f"there is no file {path}"
