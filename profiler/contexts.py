"""Where a thread is: its open scopes, its states, and the Python frames above a call."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

METADATA_SCOPE = "__proton_launch_metadata"
_PACKAGE = str(Path(__file__).resolve().parent)
_COMPILER = str(Path(__file__).resolve().parent.parent / "compiler")
_INTERNAL_FILES = (_PACKAGE, _COMPILER)


class ThreadContext(threading.local):
    """The calling thread's open scopes and states.

    A thread that is seen for the first time starts with a copy of the main thread's scopes, so that what worker
    threads launch for a scope is found below it.
    """

    def __init__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.scopes: list[str] = _main_scopes if is_main else list(_main_scopes)
        self.states: list[str] = []
        # True while launch metadata is evaluated: launches made there have no metadata of their own.
        self.evaluating = False
        # The id under which the driver records this thread's GPU launches; 0 is none.
        self.correlation = 0


_main_scopes: list[str] = []
current = ThreadContext()


def shadow_path() -> tuple[str, ...]:
    """The calling thread's scopes, and its innermost state as the last frame."""
    if current.states:
        return (*current.scopes, current.states[-1])
    return tuple(current.scopes)


def python_path() -> tuple[str, ...]:
    """The Python frames of the calling thread, outermost first, and its innermost state as the last frame.

    Frames are ``file:line@function``; the profiler's and the compiler's own frames are left out.
    """
    names: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_INTERNAL_FILES):
            names.append(f"{code.co_filename}:{frame.f_lineno}@{code.co_name}")
        frame = frame.f_back
    names.reverse()
    if current.states:
        names.append(current.states[-1])
    return tuple(names)


def reset() -> None:
    """Forget the calling thread's scopes and states (after the last session ended)."""
    current.scopes.clear()
    current.states.clear()
