"""Events in time order, for sessions with ``data="trace"``: scopes, kernels and the metrics they carry."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from .tree import ROOT

#: Linux gives no thread a number from here on: those of lanes that are not threads.
_NO_THREAD = 1 << 22


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
    """Where spans are drawn: ``thread`` is the system's number of a thread, None for a GPU's stream and the like."""

    name: str
    thread: int | None = None


@dataclass(slots=True)
class Event:
    """One span. Times are nanoseconds on the clock named by ``lane``'s kind: host or device, both since the epoch."""

    path: tuple[str, ...]
    start_ns: int
    duration_ns: int
    lane: Lane
    category: str
    metrics: dict[str, str] = field(default_factory=dict)


class Timeline:
    """Events of one phase; adding is thread safe. ``shown_in``: the unit in which viewers should show times."""

    def __init__(self, shown_in: Literal["us", "ns"] = "us") -> None:
        self._shown_in = shown_in
        self.events: list[Event] = []
        # Spans that have begun and not ended: their path and lane.
        self._open: dict[Opened, tuple[tuple[str, ...], Lane]] = {}
        # perf_counter has no fixed zero; this moves it to the epoch, on which CUPTI's timestamps are.
        self.epoch_offset_ns = time.time_ns() - time.perf_counter_ns()

    def begin(self, path: tuple[str, ...], scope: Opened) -> None:
        """A scope is entered by the calling thread. A trace that is written before :meth:`end` shows it until then."""
        self._open[scope] = path, _own_lane()

    def end(self, scope: Opened) -> None:
        """The scope is left, maybe by another thread than the one that entered it, whose lane it stays in."""
        if scope in self._open:
            path, lane = self._open.pop(scope)
            self.events.append(self._until_now(path, lane, scope))

    def _until_now(self, path: tuple[str, ...], lane: Lane, scope: Opened) -> Event:
        start, now = scope.start_ns, time.perf_counter_ns()
        return Event(path, start + self.epoch_offset_ns, now - start, lane, "scope", _texts(scope.metrics))

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
            _own_lane() if lane is None else Lane(lane),
            category,
            metrics,
        )

    def add_device_span(
        self,
        path: tuple[str, ...],
        start_ns: int,
        end_ns: int,
        *,
        lane: str,
        category: str = "kernel",
        metrics: Mapping[str, object] | None = None,
    ) -> Event:
        """Add a span whose times are nanoseconds since the epoch."""
        return self._add(path, start_ns, end_ns - start_ns, Lane(lane), category, metrics)

    def _add(
        self,
        path: tuple[str, ...],
        start_ns: int,
        duration_ns: int,
        lane: Lane,
        category: str,
        metrics: Mapping[str, object] | None,
    ) -> Event:
        event = Event(path, start_ns, duration_ns, lane, category, _texts(metrics))
        self.events.append(event)
        return event

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been recorded."""
        return not (self.events or self._open)

    def to_chrome(self) -> str:
        """One JSON document for Perfetto and chrome://tracing; times in microseconds from the first event. Scopes that
        are open end now."""
        still_open = [self._until_now(path, lane, scope) for scope, (path, lane) in list(self._open.items())]
        events = sorted([*self.events, *still_open], key=lambda event: (event.start_ns, -event.duration_ns))
        base = events[0].start_ns if events else 0
        lanes = _numbered({event.lane for event in events})
        document = {
            "baseTimeNanoseconds": base,
            "displayTimeUnit": self._shown_in,
            "traceEvents": [
                *(_lane_names(lanes) if events else []),
                *(_chrome_event(event, base, lanes[event.lane]) for event in events),
            ],
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n"


def _own_lane() -> Lane:
    """The calling thread's."""
    thread = threading.get_native_id()
    name = threading.current_thread().name
    return Lane(f"CPU Thread {thread} ({name})", thread)


def _numbered(lanes: set[Lane]) -> dict[Lane, int]:
    """The ``tid`` of each lane, in the order in which they are shown: a thread's is its own."""
    ordered = sorted(lanes, key=lambda lane: _natural(lane.name))
    return {lane: _NO_THREAD + at if lane.thread is None else lane.thread for at, lane in enumerate(ordered)}


def _natural(lane: str) -> list[tuple[str, int]]:
    """Orders lanes by the numbers in their names: 2 before 10."""
    return [(word, 0) if not word.isdecimal() else ("", int(word)) for word in lane.split()]


def _lane_names(lanes: Mapping[Lane, int]) -> list[dict[str, object]]:
    described: list[dict[str, object]] = [_described("process_name", 0, {"name": "Trace"})]
    for place, (lane, number) in enumerate(lanes.items()):
        described.append(_described("thread_name", number, {"name": lane.name}))
        described.append(_described("thread_sort_index", number, {"sort_index": place}))
    return described


def _described(what: str, lane: int, arguments: dict[str, object]) -> dict[str, object]:
    return {"ph": "M", "name": what, "pid": os.getpid(), "tid": lane, "args": arguments}


def _chrome_event(event: Event, base: int, lane: int) -> dict[str, object]:
    name = event.path[-1] if event.path else ROOT
    arguments: dict[str, object] = {"call_stack": [ROOT, *event.path]}
    category = event.category
    if event.metrics:
        arguments["metrics"] = event.metrics
        if category == "scope":
            category = "metric"
            name += ": " + ", ".join(f"<{key}, {value}>" for key, value in event.metrics.items())
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "pid": os.getpid(),
        "tid": lane,
        "ts": (event.start_ns - base) / 1000,
        "dur": event.duration_ns / 1000,
        "args": arguments,
    }


def _texts(metrics: Mapping[str, object] | None) -> dict[str, str]:
    return {key: _metric_text(value) for key, value in sorted((metrics or {}).items())}


def _metric_text(value: object) -> str:
    """As Proton writes it, which has six digits behind the point, where that is the number to its last digit."""
    if isinstance(value, float):
        return shown if float(shown := f"{value:f}") == value else repr(value)
    if isinstance(value, list):
        return "[" + ",".join(_metric_text(item) for item in value) + "]"
    return str(value)
