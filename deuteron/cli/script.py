"""Running a user's script inside a command."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from deuteron.compiler.as_main import frames_of_main, main_kept, run_as_main
from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.standard_streams import streams_kept

from .errors import CommandError, no_file


def run_script(script: Path, arguments: Sequence[str]) -> str | None:
    """Run ``script`` as ``python script arguments...`` would, in this process, whose streams stay the command's.

    Returns how it failed, None where it did not; what it raises is printed as Python prints it, from the script's own
    frames on.

    Raises:
        CommandError: there is no such file.
    """
    if not script.is_file():
        raise CommandError(no_file(script), hint="name a Python file, and after it its arguments")
    try:
        with main_kept(), streams_kept():
            run_as_main(str(script), arguments)
    except SystemExit as end:
        if end.code is None or end.code == 0:
            return None
        if not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
            return "it exited with a message"
        return f"it exited with {end.code}"
    except Exception as error:
        _print(error)
        return f"it raised {type(error).__name__}"
    return None


def _print(error: Exception) -> None:
    """Print the traceback of ``error`` without the frames before the script's, or what it says if it is one of ours."""
    if isinstance(error, DeuteronError):
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return
    traceback.print_exception(type(error), error, frames_of_main(error))
