"""How the commands of this folder read names, write files and end."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.whole_file import write_whole

_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ToolError(DeuteronError):
    """An option of a tool cannot be used as it was given; the message names it."""


def check_c_name(option: str, name: str) -> None:
    """Raises ToolError where ``name``, which the option gives, can begin no name in C."""
    if not _C_NAME.fullmatch(name):
        raise ToolError(f"{option} {name!r} is no name in C", hint="letters of ASCII, digits and _, no digit first")


def write_beside(option: str, stem: Path, texts: dict[str, str]) -> list[Path]:
    """Write a file for each ending, which takes the place of the suffix of ``stem``; their paths. Raises ToolError."""
    if not stem.name:
        raise ToolError(f"{option} {str(stem)!r} names no file", hint="say what the files are called: build/kernel")
    files = []
    for ending, text in texts.items():
        file = stem.with_suffix(ending)
        try:
            write_whole(file, text)
        except OSError as error:
            raise ToolError(f"cannot write {file}: {error.strerror}", hint=f"{option} names another place") from None
        files.append(file)
    return files


def exit_status(work: Callable[[], object]) -> int:
    """Run a command's work: 0, or 2 after a mistake that the printed message explains."""
    try:
        work()
    except (DeuteronError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
