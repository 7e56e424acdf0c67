"""Scopes: named regions of a program, as context managers, decorators and enter/exit pairs."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from .errors import UsageError
from .recorder import OpenScope, recorder

P = ParamSpec("P")
R = TypeVar("R")


class _OpenScopes(threading.local):
    def __init__(self) -> None:
        self.stack: list[tuple[int, OpenScope]] = []


class scope:  # noqa: N801 - the name Proton's users write
    """A named region with optional metrics, as a context manager or a decorator.

        with proton.scope("step", {"flops": 2e9, "bytes": 4096}):
            kernel[grid](x, y)

    Metrics follow :mod:`deuteron.profiler.metrics`. Does nothing when no session runs. An object may be entered
    again while it is open, and used by several threads.
    """

    def __init__(self, name: str, metrics: Mapping[str, object] | None = None) -> None:
        self.name = name
        self.metrics = metrics
        self._open = _OpenScopes()

    def __enter__(self) -> Self:
        opened = recorder.open_scope(self.name, self.metrics)
        if opened is not None:
            self._open.stack.append((time.perf_counter_ns(), opened))
        else:
            self._open.stack.clear()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._open.stack:
            start_ns, opened = self._open.stack.pop()
            self._leave(opened, time.perf_counter_ns() - start_ns)
            # A pending exception is worth more than a complaint about the scopes it left open.
            recorder.close_scope(opened, strict=error is None)

    def _leave(self, opened: OpenScope, duration_ns: int) -> None:
        """What a kind of scope adds when it is left."""

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return wrapper


class cpu_timed_scope(scope):  # noqa: N801 - the name Proton's users write
    """A scope that also measures its own duration as ``cpu_time (ns)``, exclusive. Raises UsageError if the
    metrics name ``cpu_time`` themselves."""

    def __init__(self, name: str, metrics: Mapping[str, object] | None = None) -> None:
        if metrics and any(key.split("(")[0].strip() == "cpu_time" for key in metrics):
            raise UsageError(
                "the metric name 'cpu_time' is reserved", hint="call the metric something else"
            )
        super().__init__(name, metrics)

    def _leave(self, opened: OpenScope, duration_ns: int) -> None:
        recorder.add_metrics(opened, {"cpu_time (ns)(exc)": duration_ns})


class _Entered(threading.local):
    def __init__(self) -> None:
        self.stack: list[tuple[int, OpenScope]] = []


_entered = _Entered()
_ids = iter(range(1 << 62))


def enter_scope(name: str, *, metrics: Mapping[str, object] | None = None) -> int | None:
    """Enter a scope that :func:`exit_scope` leaves; returns its id, None when nothing is profiled."""
    opened = recorder.open_scope(name, metrics)
    if opened is None:
        return None
    number = next(_ids)
    _entered.stack.append((number, opened))
    return number


def exit_scope(
    name: str | None = None, *, metrics: Mapping[str, object] | None = None
) -> int | None:
    """Leave the innermost scope of :func:`enter_scope`, adding ``metrics`` to it.

    Raises UsageError if ``name`` is not its name, or if there is none.
    """
    stack = _entered.stack
    while stack and stack[-1][1].generation != recorder.generation:
        stack.pop()  # entered in a session that is over
    if not stack:
        from .session import registry

        if not registry.sessions:
            return None
        raise UsageError(
            "exit_scope without enter_scope on this thread", hint="enter a scope first"
        )
    number, opened = stack[-1]
    if name and name != opened.name:
        raise UsageError(
            f"scope name mismatch: exit_scope({name!r}), but {opened.name!r} is innermost",
            hint="leave scopes in the reverse order they were entered",
        )
    if metrics:
        recorder.add_metrics(opened, metrics)
    stack.pop()
    recorder.close_scope(opened)
    return number
