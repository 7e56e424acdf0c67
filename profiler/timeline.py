"""Events in time order, for sessions with ``data="trace"``: scopes, launches, kernels and the metrics they carry."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from .metrics import Awaited, parse_name


class Opened(Protocol):
    """A scope that is open: when it was entered, on ``time.perf_counter_ns``'s clock, and its metrics so far."""

    @property
    def start_ns(self) -> int:
        """When it was entered."""
        ...

    @property
    def metrics(self) -> Mapping[str, object] | None:
        """What was given so far."""
        ...


@dataclass(frozen=True, slots=True)
class Lane:
    """Where spans are drawn: ``thread`` is the system's number of a thread, None for a GPU's stream and the like.
    ``nests``: whether a span may be within another one, as scopes are, or else runs beside it. ``above``: the name of
    the lane that this one is shown above."""

    name: str
    thread: int | None = None
    nests: bool = True
    above: str = ""


class GraphNode(NamedTuple):
    """What a span ran as in a launch of a CUDA graph. ``path[:launch]`` of its frames are the place of the launch,
    ``path[launch:end]`` the frame of the capture and the scopes that were open there, at ``captured_ns`` since the
    epoch, in ``captured_in``. ``lane``: where these scopes are drawn."""

    launch: int
    end: int
    captured_ns: int
    captured_in: Timeline
    lane: Lane


@dataclass(slots=True)
class Event:
    """One span. Times are nanoseconds since the epoch. ``correlation``: the launch that it is, or comes from; 0 if that
    is not known. The call that launches has the category "launch". ``node``: of a graph, if it is known where that was
    captured."""

    path: tuple[str, ...]
    start_ns: int
    duration_ns: int
    lane: Lane
    category: str
    metrics: Mapping[str, object] = field(default_factory=dict)
    correlation: int = 0
    node: GraphNode | None = None


class Timeline:
    """Events of one phase; adding is thread safe. ``shown_in``: the unit in which viewers should show times.
    ``of_scopes``: paths are those of scopes, in which the path of one span within another begins with that one's; paths
    of Python frames have lines, which differ."""

    def __init__(self, shown_in: Literal["us", "ns"] = "us", *, of_scopes: bool = True) -> None:
        self.shown_in = shown_in
        self.of_scopes = of_scopes
        self.events: list[Event] = []
        #: The names that threads had, by the system's number, which it gives again when a thread has ended.
        self.thread_names: dict[int, list[str]] = {}
        #: Launches that the GPU has run and not timed, for want of memory: they are not among the events.
        self.without_times = 0
        # Spans that have begun and not ended: their path and lane.
        self._open: dict[Opened, tuple[tuple[str, ...], Lane]] = {}
        # perf_counter has no fixed zero; this moves it to the epoch, on which CUPTI's timestamps are.
        self.epoch_offset_ns = time.time_ns() - time.perf_counter_ns()

    def begin(self, path: tuple[str, ...], scope: Opened) -> None:
        """A scope is entered by the calling thread. A trace that is written before :meth:`end` shows it until then."""
        self._open[scope] = path, self._own_lane()

    def end(self, scope: Opened) -> None:
        """The scope is left, maybe by another thread than the one that entered it, whose lane it stays in."""
        if scope in self._open:
            path, lane = self._open.pop(scope)
            self.events.append(self._until_now(path, lane, scope))

    def _until_now(self, path: tuple[str, ...], lane: Lane, scope: Opened) -> Event:
        start, now = scope.start_ns, time.perf_counter_ns()
        return Event(path, start + self.epoch_offset_ns, now - start, lane, "scope", dict(scope.metrics or {}))

    def add_span(
        self,
        path: tuple[str, ...],
        start_ns: int,
        end_ns: int,
        *,
        category: str,
        metrics: Mapping[str, object] | None = None,
        lane: str | None = None,
    ) -> Event:
        """Add a span timed by ``time.perf_counter_ns``, to the calling thread's lane if none is named."""
        return self._add(
            path,
            start_ns + self.epoch_offset_ns,
            end_ns - start_ns,
            self._own_lane() if lane is None else Lane(lane),
            category,
            metrics,
        )

    def add_call(self, path: tuple[str, ...], start_ns: int, end_ns: int, *, thread: int, correlation: int) -> Event:
        """Add a call of the driver that launches, in the lane of the thread that the system numbers so, timed by
        ``time.perf_counter_ns``."""
        self._note_name(thread, None)
        offset = self.epoch_offset_ns
        return self._add(path, start_ns + offset, end_ns - start_ns, _lane_of(thread), "launch", None, correlation)

    def add_device_span(
        self,
        path: tuple[str, ...],
        start_ns: int,
        end_ns: int,
        *,
        lane: str,
        category: str = "kernel",
        metrics: Mapping[str, object] | None = None,
        correlation: int = 0,
        node: GraphNode | None = None,
    ) -> Event:
        """Add what a device did, with times in nanoseconds since the epoch. Spans of one lane do not nest."""
        on = Lane(lane, nests=False)
        return self._add(path, start_ns, end_ns - start_ns, on, category, metrics, correlation, node)

    def _add(
        self,
        path: tuple[str, ...],
        start_ns: int,
        duration_ns: int,
        lane: Lane,
        category: str,
        metrics: Mapping[str, object] | None,
        correlation: int = 0,
        node: GraphNode | None = None,
    ) -> Event:
        event = Event(path, start_ns, duration_ns, lane, category, metrics or {}, correlation, node)
        self.events.append(event)
        return event

    def _own_lane(self) -> Lane:
        """The calling thread's."""
        thread = threading.get_native_id()
        self._note_name(thread, threading.current_thread().name)
        return _lane_of(thread)

    def _note_name(self, thread: int, name: str | None) -> None:
        """Keep a thread's name; None: one of another thread, that may have ended."""
        known = self.thread_names.get(thread)
        if known is None:
            found = name or _name_of(thread)
            self.thread_names[thread] = [found] if found else []
        elif name is not None and name not in known:
            known.append(name)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been recorded. Scopes that are open are frames of the tree, but for those in which a
        forked child began, of which it has recorded nothing yet."""
        return not (self.events or self.without_times)

    def all_events(self) -> list[Event]:
        """The events so far, and the scopes that are open as if they ended now."""
        return [*self.events, *(self._until_now(path, lane, scope) for scope, (path, lane) in list(self._open.items()))]


def _lane_of(thread: int) -> Lane:
    return Lane(f"CPU Thread {thread}", thread)


def _name_of(thread: int) -> str | None:
    """What Python calls a thread, or the system calls one that is not Python's; None if it is gone."""
    for found in threading.enumerate():
        if found.native_id == thread:
            return found.name
    try:
        return Path(f"/proc/self/task/{thread}/comm").read_text(errors="replace").strip()
    except OSError:
        return None


def metric_texts(metrics: Mapping[str, object]) -> dict[str, str]:
    """Metrics as a trace shows them, without those that a GPU has not told yet."""
    known = {
        parse_name(key).stored: value.value if isinstance(value, Awaited) else value for key, value in metrics.items()
    }
    return {key: _metric_text(value) for key, value in sorted(known.items()) if value is not None}


def _metric_text(value: object) -> str:
    """As Proton writes it, which has six digits behind the point, where that is the number to its last digit."""
    if isinstance(value, float):
        return shown if float(shown := f"{value:f}") == value else repr(value)
    if isinstance(value, list):
        return "[" + ",".join(_metric_text(item) for item in value) + "]"
    return str(value)
