"""Mistakes on the command line that only show once a command has begun."""

from __future__ import annotations

from pathlib import Path

from deuteron.compiler.errors import DeuteronError


class CommandError(DeuteronError):
    """An argument or option cannot be used as it was given; the message names it."""


def no_file(path: Path) -> str:
    """What ``path`` is instead of a file that a command could read."""
    if path.is_dir():
        return f"{path} is a folder"
    return f"{path} is a pipe or a device, and no file" if path.exists() else f"there is no file {path}"
