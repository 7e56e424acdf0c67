"""Where the program is: the open scopes and states of the running context, and the Python frames above a call.

Scopes are a linked list in a context variable, so that each asyncio task has its own, which begins as that of the task
that made it. A thread without scopes of its own is where the main thread is. A generator has no context of its own: a
scope that it opened does not count while it is suspended, unless the generator is a context manager, whose scope is
around the body of the ``with``.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from threading import get_ident
from types import CodeType, FrameType
from typing import Protocol

from deuteron.compiler.as_main import run_as_main

from .errors import UsageError
from .place import Epoch, OpenScope, Place
from .tree import METADATA_OF, METADATA_SCOPE

# Code objects name files as they were imported, which may be through links.
_HERE = Path(__file__).parent
_INTERNAL_FILES = (
    *(str(folder.parent / room) for folder in (_HERE, _HERE.resolve()) for room in ("profiler", "compiler")),
    "<launch of ",  # functions that launches are made of (compiler/runtime/launch/binding.py)
)
#: Functions that run somebody's program, as the command ``proton`` does: what called them is no part of it.
commands: set[CodeType] = {run_as_main.__code__}
# These run in the context of whoever asks for the next item; coroutines have that of their task.
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
SWITCHING = _GENERATOR | inspect.CO_COROUTINE
# What runs a generator to its yield and leaves it there for others: context managers, and pytest for fixtures.
_ENTERING = frozenset({"__enter__", "__aenter__", "call_fixture_func"})


class Cell(Protocol):
    """Holds the number that is logged with a thread's launches; 0 stands for that of the main thread."""

    value: int


class ThreadState:
    """What the profiler knows of one thread of the system."""

    __slots__ = ("__weakref__", "cell", "evaluating", "is_main", "place")

    def __init__(self) -> None:
        self.is_main = get_ident() == shared.main_thread
        # True while launch metadata is evaluated: launches made there have no metadata of their own.
        self.evaluating = False
        # Holds the number that the driver logs with this thread's GPU launches: of the main thread the one that those
        # without a number of their own have, too. None: ask the GPU profiler.
        self.cell: Cell | None = None
        # The place that the number stands for; None where the thread is where the main thread is.
        self.place: Place | None = None


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = ThreadState()


class _Shared:
    """What contexts of one process share."""

    def __init__(self) -> None:
        # Counts the times that the last session ended: scopes still open then count as left.
        self.generation = 0
        # The innermost scope of the main thread.
        self.main: OpenScope | None = None
        self.main_thread = threading.main_thread().ident
        # Whether a generator or coroutine has opened a scope: then a thread's place changes without one being entered.
        self.interleaved = False
        # The epoch, if there are sessions, none records Python frames, and nothing is interleaved: then scopes may be
        # entered and left in the ordinary case (scopes.py).
        self.ordinary: Epoch | None = None


shared = _Shared()
local = _Local()
# The last scope that was opened in the running context, of those that nobody has left there.
last_opened: ContextVar[OpenScope | None] = ContextVar("deuteron.profiler.last_opened", default=None)
# Whether a context is the main thread's or was copied from one, as those of asyncio.to_thread are: then it knows itself
# where it is, also where that is in no scope.
_of_main: ContextVar[bool] = ContextVar("deuteron.profiler.of_main", default=False)
states: ContextVar[tuple[str, ...]] = ContextVar("deuteron.profiler.states", default=())


def _after_fork() -> None:
    """The thread that forked is the main thread of the child, and stays where it was."""
    if get_ident() != shared.main_thread and last_opened.get() is None:
        last_opened.set(shared.main)
    shared.main = last_opened.get()
    shared.main_thread = get_ident()
    here().is_main = True


os.register_at_fork(after_in_child=_after_fork)


def session_started() -> None:
    """Remember the main thread's context, from which those of its tasks will be copied."""
    if get_ident() == shared.main_thread:
        _of_main.set(True)


def here() -> ThreadState:
    """The calling thread's state."""
    return local.state


def _counts(scope: OpenScope) -> bool:
    """Whether a scope is open and running: the frame of a suspended generator has no caller."""
    if scope.closed or scope.generation != shared.generation:
        return False
    return scope.frame is None or scope.frame.f_back is not None


def innermost() -> OpenScope | None:
    """The innermost scope that the caller is in."""
    scope = last_opened.get()
    if not shared.interleaved and scope is not None and not scope.closed and scope.generation == shared.generation:
        return scope  # nearly always
    top, scope = scope, _counted(scope)
    if scope is None and _without_own():
        # Also where the thread's own scopes are those of suspended generators.
        top = shared.main
        scope = _counted(top)
    if shared.interleaved and scope is not None:
        return _resumed(top, scope)
    return scope


def of_main() -> OpenScope | None:
    """The innermost scope that the main thread is in."""
    return _counted(shared.main)


def _without_own() -> bool:
    """Whether a context in no scope is where the main thread is."""
    return get_ident() != shared.main_thread and not _of_main.get()


def follows_main() -> bool:
    """Whether the caller is where the main thread is, wherever that goes."""
    return _without_own() and not states.get() and _counted(last_opened.get()) is None


def _counted(scope: OpenScope | None) -> OpenScope | None:
    """A scope, or the last one opened before it that counts."""
    while scope is not None and not _counts(scope):
        scope = scope.below
    return scope


def _resumed(top: OpenScope | None, scope: OpenScope) -> OpenScope:
    """Where a generator runs on that opened a scope before ``scope``, and was resumed within it: its own scope."""
    around = {id(outer) for outer in chain(scope)}
    below = top
    while below is not None:
        if below.frame is not None and id(below) not in around and _counts(below) and _is_above(below, scope):
            return below
        below = below.below
    return scope


def _is_above(generator: OpenScope, scope: OpenScope) -> bool:
    """Whether the generator's scope was opened before ``scope``."""
    below = scope.below
    while below is not None and below is not generator:
        below = below.below
    return below is generator


def chain(scope: OpenScope | None) -> Iterator[OpenScope]:
    """A scope and those around it, innermost first."""
    while scope is not None:
        yield scope
        scope = scope.outer


def opened() -> Iterator[OpenScope]:
    """The open scopes of the running context, those of suspended generators included, the last one first."""
    scope = last_opened.get()
    while scope is not None:
        if not scope.closed and scope.generation == shared.generation:
            yield scope
        scope = scope.below


def opened_by(owner: object) -> OpenScope | None:
    """The last scope opened in the running context that ``owner`` entered and that is still open."""
    top = last_opened.get()
    if top is None:
        return None
    if top.owner is owner and not top.closed and top.generation == shared.generation:
        return top
    return next((scope for scope in opened() if scope.owner is owner), None)


def _around_body(frame: FrameType) -> FrameType:
    """The code whose scopes are those of a generator: its own, or where it is a context manager that of the ``with``,
    which may be a generator again."""
    while frame.f_code.co_flags & _GENERATOR:
        entering = frame.f_back
        if entering is None or entering.f_code.co_name not in _ENTERING or entering.f_back is None:
            break
        frame = entering.f_back
    return frame


def plain_name(name: object, of: str) -> str:
    """The name of a scope or a state as Python's own text, also where it is one of a subclass, such as a StrEnum.

    Raises UsageError for what is no text, or an empty one.
    """
    text = str.__str__(name) if isinstance(name, str) else ""
    if not text:
        raise UsageError(f"a {of} cannot be called {name!r}", hint="give it a name, a non-empty string")
    return text


def enter(name: str, owner: object, frame: FrameType) -> OpenScope:
    """Enter a scope from the code of ``frame``. It does not count while that is a generator's and suspended."""
    if frame.f_code.co_flags & _GENERATOR:
        frame = _around_body(frame)
    flags = frame.f_code.co_flags
    if flags & SWITCHING:
        shared.interleaved = True
        shared.ordinary = None
    below = last_opened.get()
    is_main = get_ident() == shared.main_thread
    # Nearly always the last scope that was opened, or none, is the one around.
    plain = not shared.interleaved and (
        is_main if below is None else not below.closed and below.generation == shared.generation
    )
    scope = OpenScope()
    scope.name = name
    scope.owner = owner
    scope.outer = below if plain else innermost()
    scope.below = below
    scope.generation = shared.generation
    scope.closed = False
    scope.frame = frame if flags & _GENERATOR else None
    scope.place = scope.epoch = scope.ordinary = scope.metrics = None
    scope.start_ns = 0
    last_opened.set(scope)
    if is_main:
        shared.main = scope
    return scope


def pop(scope: OpenScope) -> bool:
    """Leave a scope, and those inside that were not left; returns whether there were none.

    Scopes of generators are left whenever the generator is done with them.
    """
    top = last_opened.get()
    if top is scope and (scope.below is None or not scope.below.closed):  # nearly always
        scope.closed = True
        last_opened.set(scope.below)
        if shared.main is scope:
            shared.main = scope.below
        return True
    inner: list[OpenScope] = []
    if top is not scope and scope.frame is None:
        inner = [other for other in _until(scope) if _counts(other)]
    scope.closed = True
    for other in inner:
        other.closed = True
    while top is not None and (top.closed or top.generation != shared.generation):
        top = top.below
    _set(top)
    return not inner


def _until(scope: OpenScope) -> Iterator[OpenScope]:
    """The scopes that were opened after ``scope`` in the running context."""
    found = list(opened())
    yield from found[: found.index(scope)] if scope in found else []


def _set(scope: OpenScope | None) -> None:
    last_opened.set(scope)
    if get_ident() == shared.main_thread:
        shared.main = scope


def scope_path() -> tuple[str, ...]:
    """The names of the scopes that the caller is in, outermost first."""
    return tuple(scope.name for scope in chain(innermost()))[::-1]


def _state_frames() -> tuple[str, ...]:
    """The innermost state as frames: one of a kernel's metadata is the kernel's below that of all."""
    state = states.get()[-1:]
    if state and state[0].startswith(METADATA_OF) and state[0] != METADATA_OF:
        return METADATA_SCOPE, state[0].removeprefix(METADATA_OF)
    return state


def shadow_path() -> tuple[str, ...]:
    """The caller's scopes, and its innermost state as the last frame or two."""
    return (*scope_path(), *_state_frames())


def python_path() -> tuple[str, ...]:
    """The Python frames of the calling thread, outermost first, and its innermost state as the last frame or two.

    Frames are ``file:line@function``; the profiler's and the compiler's own frames are left out, and those of a command
    that runs the program.
    """
    names: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code in commands:
            break
        if not code.co_filename.startswith(_INTERNAL_FILES):
            names.append(f"{code.co_filename}:{frame.f_lineno}@{code.co_name}")
        frame = frame.f_back
    names.reverse()
    return (*names, *_state_frames())


def reset() -> None:
    """Forget the running context's scopes and states (after the last session ended)."""
    shared.generation += 1
    shared.interleaved = False
    _set(None)
    states.set(())
