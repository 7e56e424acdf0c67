"""The command ``proton``."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from deuteron.compiler import knobs
from deuteron.compiler.as_main import frames_of_main, main_kept, run_as_main
from deuteron.compiler.errors import DeuteronError

from . import open_scopes
from .api import start_session
from .ending import finalize_sessions
from .errors import UsageError
from .session import registry

_USAGE = """proton [options] script.py [arguments of the script]
       proton [options] pytest [arguments of pytest]"""


def _parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="proton", usage=_USAGE, description="Profile a script, or pytest, from start to end."
    )
    add = result.add_argument
    add("-n", "--name", help="output path without suffix (proton); {pid} becomes the process id")
    add(
        "-b",
        "--backend",
        choices=("cpu", "cupti", "instrumentation"),
        help="default: CPU launches, and GPUs where there are any; instrumentation: scopes inside kernels",
    )
    add(
        "-c",
        "--context",
        choices=("shadow", "python"),
        default="shadow",
        help="what a path is made of",
    )
    add(
        "-m",
        "--mode",
        help="periodic_flushing[:format=...] or pcsampling[:interval=...]; with -b instrumentation default[:...]",
    )
    add("-d", "--data", choices=("tree", "trace"), default="tree", help="a tree, or a chrome trace")
    add("-k", "--hook", choices=("triton",), help="evaluate the kernels' launch_metadata")
    add("target", nargs=argparse.REMAINDER, help="script.py or pytest, and its arguments")
    return result


def proton_main(arguments: Sequence[str] | None = None) -> int:
    """Run ``proton``; returns the target's exit code, or 2 with a message for a mistake in our own arguments."""
    options = _parser().parse_args(arguments)
    try:
        return _profile(options)
    except DeuteronError as error:
        print(f"proton: error: {error}", file=sys.stderr)
        return 2


def _profile(options: argparse.Namespace) -> int:
    target = options.target[1:] if options.target[:1] == ["--"] else options.target
    if not target:
        raise UsageError("nothing to run", hint="proton script.py, or proton pytest")
    script, *rest = target
    is_pytest = Path(script).name == "pytest"
    if not is_pytest and not Path(script).is_file():
        raise UsageError(f"no such script: {script}", hint="give the path of a Python file, or pytest")
    if is_pytest and find_spec("pytest") is None:
        raise UsageError("pytest is not installed for this Python", hint="pip install pytest")
    if knobs.proton_disable.get():
        return _run(script, rest, is_pytest)

    start_session(
        options.name,
        context=options.context,
        data=options.data,
        backend=options.backend,
        mode=options.mode,
        hook=options.hook,
    )
    registry.command_line = True
    before = threading.enumerate()
    try:
        return _run(script, rest, is_pytest)
    finally:
        # Threads that the script has left behind go on, and Python waits for them: what they launch is written then.
        if all(thread.daemon or thread in before for thread in threading.enumerate()):
            _finalize()
        else:
            atexit.register(_finalize_at_exit)


def _finalize() -> None:
    registry.command_line = False
    finalize_sessions(list(registry.sessions.values()), "")


def _finalize_at_exit() -> None:
    with contextlib.suppress(DeuteronError):  # a session that cannot be written stays, and its end says why
        _finalize()


def _run(script: str, arguments: list[str], is_pytest: bool) -> int:
    if is_pytest:
        import pytest

        return int(pytest.main(arguments))
    try:
        with main_kept():
            run_as_main(script, arguments)
    except SystemExit as error:
        return _exit_code(error)
    except KeyboardInterrupt as error:
        traceback.print_exception(KeyboardInterrupt, error, frames_of_main(error))
        return 130
    except Exception as error:
        print("An error occurred while executing the script:", file=sys.stderr)
        traceback.print_exception(type(error), error, frames_of_main(error))
        return 1
    return 0


open_scopes.commands.add(_run.__code__)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=sys.stderr)
    return 1
