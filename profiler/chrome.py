"""A time line as Chrome's trace events: one JSON document for Perfetto and chrome://tracing.

The format is that of the Trace Event Format: complete events (ph "X") with times in microseconds, names of lanes (ph
"M"), and arrows (ph "s", maybe "t", and "f" of one id), whose ends belong to the innermost event of their ``tid`` at
their time. Viewers want the events of one ``tid`` to lie apart or within each other; where those of a lane do neither,
as the scopes of two asyncio tasks, the lane has several lines.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .graph_scopes import graph_scopes
from .timeline import Event, Lane, Timeline, metric_texts
from .tree import ROOT

#: Linux gives no thread a number from here on: those of lines that are not threads.
_NO_THREAD = 1 << 22
#: Arrows of one process have ids below this, so that traces of several can be put together.
_ARROWS = 1 << 31


class _Line(NamedTuple):
    """One row of a viewer: a lane, or a part of one."""

    lane: Lane
    part: int


def to_chrome(timeline: Timeline) -> str:
    """The document. Times are microseconds from the first event, to the nanosecond; scopes that are open end now."""
    recorded = timeline.all_events()
    # The sort is stable: of two that are equal the outer one stays before the inner one.
    events = sorted([*recorded, *graph_scopes(recorded)], key=lambda event: (event.start_ns, -event.duration_ns))
    base = events[0].start_ns if events else 0
    drawn = _drawn(events, timeline.of_scopes)
    numbers = _numbered({line for line, _ in drawn})
    document: dict[str, object] = {
        "baseTimeNanoseconds": base,
        "displayTimeUnit": timeline.shown_in,
        "traceEvents": [
            *(_line_names(numbers, timeline.thread_names) if events else []),
            *_arrows(drawn, base, numbers),
            *(_span(event, base, numbers[line]) for line, event in drawn),
        ],
    }
    if timeline.without_times:
        document["otherData"] = {"launches_without_times": timeline.without_times}
    return json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True) + "\n"


def _drawn(events: Iterable[Event], by_path: bool) -> list[tuple[_Line, Event]]:
    """Each event with the line of its lane that it is drawn in; ``events`` are in the order of their beginnings."""
    # Of each lane's lines the events that are open, the outermost first.
    lines: defaultdict[Lane, list[list[Event]]] = defaultdict(list)
    return [(_Line(event.lane, _fitting(lines[event.lane], event, by_path)), event) for event in events]


def _fitting(lines: list[list[Event]], event: Event, by_path: bool) -> int:
    """The line of the innermost span that the event is in, else the first that is free."""
    chosen, depth = len(lines), -1
    for number, spans in enumerate(lines):
        while spans and _end_of(spans[-1]) <= event.start_ns:
            spans.pop()
        around = spans[-1] if spans else None
        if (around is None or _is_in(event, around, by_path)) and len(around.path if around else ()) > depth:
            chosen, depth = number, len(around.path) if around else 0
    if chosen == len(lines):
        lines.append([])
    lines[chosen].append(event)
    return chosen


def _is_in(event: Event, around: Event, by_path: bool) -> bool:
    """Whether a span is within another one that began before it: also by its path, where paths are scopes. One task's
    scope may be over in the time of another one's. Where a call was made may be unknown, but for the time."""
    if not event.lane.nests or _end_of(event) > _end_of(around):
        return False
    own, outer = event.path, around.path
    if not by_path or (event.category == "launch" and len(own) == 1):
        return True
    return len(outer) < len(own) and own[: len(outer)] == outer


def _end_of(event: Event) -> int:
    return event.start_ns + event.duration_ns


def _numbered(lines: set[_Line]) -> dict[_Line, int]:
    """The ``tid`` of each line, in the order in which they are shown: a thread's first is its own."""
    ordered = sorted(lines, key=_place)
    return {
        line: _NO_THREAD + at if line.lane.thread is None or line.part else line.lane.thread
        for at, line in enumerate(ordered)
    }


def _place(line: _Line) -> tuple[list[tuple[str, int]], bool, int]:
    lane = line.lane
    return _natural(lane.above or lane.name), not lane.above, line.part


def _natural(lane: str) -> list[tuple[str, int]]:
    """Orders lanes by the numbers in their names: 2 before 10."""
    return [(word, 0) if not word.isdecimal() else ("", int(word)) for word in lane.split()]


def _line_names(numbers: Mapping[_Line, int], threads: Mapping[int, Sequence[str]]) -> list[dict[str, object]]:
    described = [_described("process_name", 0, {"name": "Trace"})]
    for place, (line, number) in enumerate(numbers.items()):
        name = line.lane.name
        if line.lane.thread is not None and threads.get(line.lane.thread):
            name += f" ({', '.join(threads[line.lane.thread])})"
        if line.part:
            name += f", line {line.part + 1}"
        described.append(_described("thread_name", number, {"name": name}))
        described.append(_described("thread_sort_index", number, {"sort_index": place}))
    return described


def _described(what: str, tid: int, arguments: dict[str, object]) -> dict[str, object]:
    return {"ph": "M", "name": what, "pid": os.getpid(), "tid": tid, "args": arguments}


def _span(event: Event, base: int, tid: int) -> dict[str, object]:
    name = event.path[-1] if event.path else ROOT
    arguments: dict[str, object] = {"call_stack": [ROOT, *event.path]}
    category = event.category
    metrics = metric_texts(event.metrics)
    if metrics:
        arguments["metrics"] = metrics
        if category == "scope" and event.node is None:
            category = "metric"
            name += ": " + ", ".join(f"<{key}, {value}>" for key, value in metrics.items())
    if event.correlation:
        arguments["correlation"] = event.correlation
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "pid": os.getpid(),
        "tid": tid,
        "ts": (event.start_ns - base) / 1000,
        "dur": event.duration_ns / 1000,
        "args": arguments,
    }


class _Scopes:
    """Finds the scope that a call was made in, on the lane of its thread."""

    def __init__(self, drawn: Sequence[tuple[_Line, Event]]) -> None:
        self._entered: defaultdict[tuple[Lane, tuple[str, ...]], list[tuple[_Line, Event]]] = defaultdict(list)
        for line, event in drawn:
            if event.category == "scope" and event.node is None:
                self._entered[event.lane, event.path].append((line, event))

    def around(self, call: Event) -> tuple[_Line, Event] | None:
        """The scope with its line; None where the call's place is not a scope of its thread that is still open."""
        entered = self._entered.get((call.lane, call.path[:-1]), [])
        at = bisect_right(entered, call.start_ns, key=lambda drawn: drawn[1].start_ns) - 1
        if at < 0 or entered[at][1].start_ns + entered[at][1].duration_ns < call.start_ns:
            return None
        return entered[at]


def _arrows(drawn: Sequence[tuple[_Line, Event]], base: int, numbers: Mapping[_Line, int]) -> list[dict[str, object]]:
    """From each call to the first of what it launched on each lane, where both are there. The first one of a graph's
    launch begins at the scope that this is in, and passes through the call."""
    calls = {event.correlation: (line, event) for line, event in drawn if event.category == "launch"}
    scopes = _Scopes(drawn)
    arrows: list[dict[str, object]] = []
    begun: set[int] = set()
    reached: set[tuple[int, Lane]] = set()
    for line, event in drawn:
        id_ = event.correlation
        if id_ not in calls or event.category in ("launch", "scope") or (id_, event.lane) in reached:
            continue
        call = calls[id_]
        scope = scopes.around(call[1]) if event.node is not None and id_ not in begun else None
        if scope is not None:
            begun.add(id_)
        number = os.getpid() * _ARROWS + len(reached)
        reached.add((id_, event.lane))
        for phase, end in (("s", scope or call), ("t", call if scope else None), ("f", (line, event))):
            if end is not None:
                arrows.append(_end(phase, number, end[1].start_ns - base, numbers[end[0]]))
    return arrows


def _end(phase: str, number: int, at_ns: int, tid: int) -> dict[str, object]:
    """An end of an arrow, or a point that it passes through."""
    return {
        "name": "launch->kernel",
        "cat": "flow",
        "ph": phase,
        "id": number,
        "pid": os.getpid(),
        "tid": tid,
        "ts": at_ns / 1000,
        "bp": "e",
    }
