"""Events in time order, for sessions with ``data="trace"``: scopes, kernels and the metrics they carry."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .tree import ROOT


@dataclass(slots=True)
class Event:
    """One span. Times are nanoseconds on the clock named by ``lane``'s kind: host or device, both since the epoch."""

    path: tuple[str, ...]
    start_ns: int
    duration_ns: int
    lane: str
    category: str
    metrics: dict[str, str] = field(default_factory=dict)


class Timeline:
    """Events of one phase; adding is thread safe. ``shown_in``: the unit in which viewers should show times."""

    def __init__(self, shown_in: Literal["us", "ns"] = "us") -> None:
        self._shown_in = shown_in
        self.events: list[Event] = []
        # perf_counter has no fixed zero; this moves it to the epoch, on which CUPTI's timestamps are.
        self.epoch_offset_ns = time.time_ns() - time.perf_counter_ns()

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
        """Add a span timed by ``time.perf_counter_ns`` on the calling thread."""
        return self.add_device_span(
            path,
            start_ns + self.epoch_offset_ns,
            end_ns + self.epoch_offset_ns,
            lane=lane or f"CPU Thread {threading.get_native_id()}",
            category=category,
            metrics=metrics,
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
        shown = {key: _metric_text(value) for key, value in sorted((metrics or {}).items())}
        event = Event(path, start_ns, end_ns - start_ns, lane, category, shown)
        self.events.append(event)
        return event

    def to_chrome(self) -> str:
        """One JSON document for Perfetto and chrome://tracing; times in microseconds from the first event."""
        events = sorted(self.events, key=lambda event: (event.start_ns, -event.duration_ns))
        base = events[0].start_ns if events else 0
        lanes = {lane: number for number, lane in enumerate(sorted({e.lane for e in events}, key=_natural))}
        document = {
            "baseTimeNanoseconds": base,
            "displayTimeUnit": self._shown_in,
            "traceEvents": [
                *(_lane_names(lanes) if events else []),
                *(_chrome_event(event, base, lanes[event.lane]) for event in events),
            ],
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n"


def _natural(lane: str) -> list[tuple[str, int]]:
    """Orders lanes by the numbers in their names: 2 before 10."""
    return [(word, 0) if not word.isdecimal() else ("", int(word)) for word in lane.split()]


def _lane_names(lanes: Mapping[str, int]) -> list[dict[str, object]]:
    process: dict[str, object] = {
        "ph": "M",
        "name": "process_name",
        "pid": 0,
        "args": {"name": "Trace"},
    }
    threads: list[dict[str, object]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": number, "args": {"name": lane}}
        for lane, number in lanes.items()
    ]
    return [process, *threads]


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
        "pid": 0,
        "tid": lane,
        "ts": (event.start_ns - base) / 1000,
        "dur": event.duration_ns / 1000,
        "args": arguments,
    }


def _metric_text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:f}"
    if isinstance(value, list):
        return "[" + ",".join(_metric_text(item) for item in value) + "]"
    return str(value)
