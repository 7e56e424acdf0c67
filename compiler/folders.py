"""Folders that are made when they are first needed."""

from __future__ import annotations

from pathlib import Path

from . import knobs


def make_folder(path: Path) -> None:
    """Make a folder, and those that it is in. Where that makes DEUTERON_HOME nobody else may enter it, whichever
    command comes first: a service keeps its database there later. Raises OSError."""
    home = knobs.home.get()
    if path.is_relative_to(home):
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.mkdir(parents=True, exist_ok=True)
