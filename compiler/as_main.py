"""A Python file as the main program of this process: for commands that run a user's script."""

from __future__ import annotations

import builtins
import pkgutil
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import cast


def run_as_main(script: str, arguments: Sequence[str]) -> None:
    """Run ``script`` as ``python script arguments...`` does, and raise what it raises.

    It is ``__main__`` with an absolute ``__file__``, its folder comes first in ``sys.path``, and ``sys.argv[0]`` is as
    it was typed, but that of an archive, which is absolute, too. All this stays, for threads and exit functions that
    the script leaves behind.
    """
    sys.argv = [script, *arguments]
    path = Path(script).absolute()
    if pkgutil.get_importer(str(path)) is not None:  # an archive, with its __main__ inside
        runpy.run_path(str(path), run_name="__main__")
        return
    sys.path.insert(0, str(path.resolve().parent))
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = str(path)
    main.__dict__["__builtins__"] = builtins
    exec(_code(path), main.__dict__)


@contextmanager
def main_kept() -> Iterator[None]:
    """Afterwards the main program, its arguments and ``sys.path`` are what they were, whatever ran in between."""
    argv, path, main = sys.argv, list(sys.path), sys.modules["__main__"]
    try:
        yield
    finally:
        sys.argv = argv
        sys.path[:] = path
        sys.modules["__main__"] = main


def frames_of_main(error: BaseException) -> TracebackType | None:
    """The traceback of what :func:`run_as_main` raised, from the script's own frames on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__") != "__main__":
        frames = frames.tb_next
    return frames


def _code(path: Path) -> CodeType:
    with path.open("rb") as file:
        compiled = pkgutil.read_code(file)  # of a .pyc file
    if compiled is not None:
        return cast(CodeType, compiled)
    return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
