"""Where a thread is: its open scopes, its states, and the Python frames above a call."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Protocol

from .place import OpenScope, Place

METADATA_SCOPE = "__proton_launch_metadata"
# Code objects name files as they were imported, which may be through links.
_HERE = Path(__file__).parent
_INTERNAL_FILES = tuple(
    str(folder.parent / room) for folder in (_HERE, _HERE.resolve()) for room in ("profiler", "compiler")
)


class Cell(Protocol):
    """Holds the number that is logged with a thread's launches; 0 is none."""

    value: int


class ThreadState:
    """What the profiler knows of one thread.

    A thread that is seen for the first time starts with a copy of the main thread's scopes, so that what worker
    threads launch for a scope is found below it.
    """

    __slots__ = ("cell", "epoch", "evaluating", "opened", "place", "scopes", "states")

    def __init__(self, scopes: list[str]) -> None:
        self.scopes = scopes
        self.states: list[str] = []
        self.opened: list[OpenScope] = []
        # True while launch metadata is evaluated: launches made there have no metadata of their own.
        self.evaluating = False
        # The place of `scopes`, as of this epoch of :class:`deuteron.profiler.places.Places`.
        self.place: Place | None = None
        self.epoch = -1
        # Holds the number that the driver logs with this thread's GPU launches.
        self.cell: Cell | None = None


_local = threading.local()
_main_scopes: list[str] = []


def here() -> ThreadState:
    """The calling thread's state."""
    try:
        return _local.state  # type: ignore[no-any-return]
    except AttributeError:
        is_main = threading.current_thread() is threading.main_thread()
        state = _local.state = ThreadState(_main_scopes if is_main else list(_main_scopes))
        return state


def shadow_path() -> tuple[str, ...]:
    """The calling thread's scopes, and its innermost state as the last frame."""
    thread = here()
    return (*thread.scopes, *thread.states[-1:])


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
    return (*names, *here().states[-1:])


def reset() -> None:
    """Forget the calling thread's scopes and states (after the last session ended)."""
    thread = here()
    thread.scopes.clear()
    thread.states.clear()
    thread.opened.clear()
    thread.place = None
    thread.epoch = -1
    thread.cell = None
