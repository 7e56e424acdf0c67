"""Scopes: named regions of a program, as context managers, decorators and enter/exit pairs.

A scope around every launch of a tiny kernel must cost less than the launch. So ``with scope(...)`` itself does the
*ordinary case*: a plain function enters a scope that was entered in the same one before, without metrics and in no
state, while no session records times of scopes or Python frames, and no generator or coroutine has opened a scope. Then
nothing is new in any tree, and all there is to say is which scope is the last one of the context and of the main
thread, and where launches belong. Everything else is left to the recorder, which would do the same: the tests compare
the two, by keeping ``open_scopes.shared.ordinary`` None.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from . import open_scopes
from .errors import UsageError
from .open_scopes import SWITCHING, last_opened, local, shared, states
from .place import OpenScope
from .recorder import recorder
from .session import registry
from .wrapping import decorated

P = ParamSpec("P")
R = TypeVar("R")

# Bound once: Python 3.11 is slow to call methods of names that are imported.
_last_opened, _set_last_opened, _states, _frame = last_opened.get, last_opened.set, states.get, sys._getframe


class scope:  # noqa: N801 - the name Proton's users write
    """A named region with optional metrics, as a context manager or a decorator.

        with proton.scope("step", {"flops": 2e9, "bytes": 4096}):
            kernel[grid](x, y)

    Metrics follow :mod:`deuteron.profiler.metrics`. Does nothing when no session runs. An object may be entered
    again while it is open, and used by several threads.
    """

    __slots__ = ("__weakref__", "metrics", "name")

    #: What a kind of scope adds when it is left.
    _leave: Callable[[OpenScope], None] | None = None

    def __init__(self, name: str, metrics: Mapping[str, object] | None = None) -> None:
        self.name = name
        self.metrics = metrics

    def __enter__(self) -> Self:
        epoch = shared.ordinary
        if epoch is None:
            if registry.sessions:
                recorder.open_scope(self.name, self.metrics, self, _frame(1))
            return self
        thread, below, name = local.state, _last_opened(), self.name
        # The place around. A scope whose place is of this epoch is of this generation, too; where there is none, only
        # the main thread is known to be in none. Nothing is interleaved: what was opened last is around.
        if below is None:
            around = epoch.root if thread.is_main else None
        else:
            around = below.place if below.epoch is epoch and not below.closed else None
        place = around.children.get(name) if around is not None and type(name) is str else None
        # Whether the caller is a plain function is asked of one that is new; an unsettled place knows none.
        code = _frame(1).f_code
        if (
            place is None
            or (code is not place.caller and (not place.settled or code.co_flags & SWITCHING))
            or self.metrics
            or _states()
        ):
            recorder.open_scope(name, self.metrics, self, _frame(1))
            return self
        opened = OpenScope()
        opened.name = name
        opened.owner = self
        opened.outer = opened.below = below
        opened.generation = epoch.generation
        opened.epoch = opened.ordinary = epoch
        opened.place = opened.entered = place
        opened.closed = False
        opened.frame = opened.metrics = None
        opened.start_ns = 0
        _set_last_opened(opened)
        if thread.is_main:
            shared.main = opened
        gpu = recorder.gpu
        if gpu is not None:
            cell, number = thread.cell, place.number
            if cell is None or number < 0:  # the first time
                gpu.mark(thread, place)
            else:
                thread.place = place
                cell.value = number
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        opened = _last_opened()
        if opened is None:
            return
        epoch, thread, below = shared.ordinary, local.state, opened.below
        # The place around, which is still that of the scope's entry if the epoch is; but others may have left it.
        if below is None:
            around = epoch.root if epoch is not None and thread.is_main else None
        else:
            around = None if below.closed else below.place
        if (
            around is None
            or epoch is None
            or opened.ordinary is not epoch
            or opened.owner is not self
            or opened.closed
            or _states()
        ):
            self._close(error)
            return
        opened.closed = True
        _set_last_opened(below)
        if shared.main is opened:
            shared.main = below
        gpu = recorder.gpu
        if gpu is not None:
            cell, number = thread.cell, around.number
            if cell is None or number < 0:
                gpu.mark(thread, around)
            else:
                thread.place = around
                cell.value = number

    def _close(self, error: BaseException | None) -> None:
        """Leave what this object opened last, if it is open."""
        opened = open_scopes.opened_by(self)
        if opened is not None:
            if self._leave is not None:
                self._leave(opened)
            # A pending exception is worth more than a complaint about the scopes it left open.
            recorder.close_scope(opened, strict=error is None)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """``function`` in this scope. A coroutine is in it from its first step until it is done; a generator, also an
        asynchronous one, only while it runs, not while its consumer does. Metrics are added once a call."""
        return decorated(function, lambda resumed: type(self)(self.name) if resumed else self)


class cpu_timed_scope(scope):  # noqa: N801 - the name Proton's users write
    """A scope that also measures its own duration as ``cpu_time (ns)``, exclusive. Raises UsageError if the
    metrics name ``cpu_time`` themselves."""

    def __init__(self, name: str, metrics: Mapping[str, object] | None = None) -> None:
        if metrics and any(str(key).split("(")[0].strip() == "cpu_time" for key in metrics):
            raise UsageError("the metric name 'cpu_time' is reserved", hint="call the metric something else")
        super().__init__(name, metrics)

    def __enter__(self) -> Self:
        opened = recorder.open_scope(self.name, self.metrics, self, sys._getframe(1))
        if opened is not None:
            opened.start_ns = opened.start_ns or time.perf_counter_ns()
        return self

    def _leave(self, opened: OpenScope) -> None:
        duration_ns = time.perf_counter_ns() - opened.start_ns
        recorder.add_metrics(opened, {"cpu_time (ns)(exc)": duration_ns})


class _Entered:
    """Owns a scope that was entered by hand."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self.number = next(self._numbers)


def enter_scope(name: str, *, metrics: Mapping[str, object] | None = None) -> int | None:
    """Enter a scope that :func:`exit_scope` leaves; returns its id, None when nothing is profiled."""
    owner = _Entered()
    return None if recorder.open_scope(name, metrics, owner, sys._getframe(1)) is None else owner.number


def exit_scope(name: str | None = None, *, metrics: Mapping[str, object] | None = None) -> int | None:
    """Leave the innermost scope of :func:`enter_scope`, adding ``metrics`` to it.

    Raises UsageError if ``name`` is not its name, or if there is none.
    """
    opened = next((opened for opened in open_scopes.opened() if isinstance(opened.owner, _Entered)), None)
    if opened is None:
        if not registry.sessions:
            return None
        raise UsageError("exit_scope without enter_scope on this thread", hint="enter a scope first")
    if name and name != opened.name:
        raise UsageError(
            f"scope name mismatch: exit_scope({name!r}), but {opened.name!r} is innermost",
            hint="leave scopes in the reverse order they were entered",
        )
    if metrics:
        recorder.add_metrics(opened, metrics)
    recorder.close_scope(opened)
    owner = opened.owner
    return owner.number if isinstance(owner, _Entered) else None
