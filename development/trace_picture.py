"""A picture of a trace: its lanes over time, as an SVG that is read in light and in dark pages.

    python development/trace_picture.py trace.chrome_trace out.svg
    python development/trace_picture.py trace.chrome_trace out.svg --lanes "program 0 warp" --from 2000 --to 9000

The trace is what a session with data="trace" wrote, of launches or of what kernels recorded. Each lane is a row, with a
level for scopes inside scopes; colours are those of the names that took the most time. ``--lanes`` takes regular
expressions; ``--from`` and ``--to`` are in microseconds, as the trace has them. An arrow leads from a launch to its
kernel where both are shown.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, cast

WIDTH, LABELS, PAD = 1120, 220, 12
LEVEL, BETWEEN = 18, 8
AXIS, LEGEND_ROW = 26, 20
#: Spans narrower than this are drawn together with neighbours of their name, in pixels.
NARROW = 1.0
#: Distinct in light and in dark, also to people who see few colours (Okabe and Ito's, without black).
COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#4a90c4", "#d55e00", "#cc79a7", "#9a8fd1")
OTHER = "#9aa0a6"
#: Units of the axis: the microseconds below which each is used, its name, and how many make a microsecond.
UNITS: tuple[tuple[float, str, float], ...] = ((10, "ns", 1000), (10_000, "µs", 1), (math.inf, "ms", 0.001))
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.back { fill: #ffffff; } .line { stroke: #d0d7de; } .faint { fill: #656d76; } .arrow { stroke: #656d76; }
.name { fill: #1f2328; font-size: 11px; pointer-events: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .back { fill: #0d1117; } .line { stroke: #30363d; } .faint { fill: #9198a1; }
  .arrow { stroke: #9198a1; } .name { fill: #1f2328; }
}
"""


class TraceError(Exception):
    """A file that is no trace, or has nothing to draw."""


@dataclass(slots=True)
class Span:
    """An event; times in microseconds. ``level``: how many spans of its lane it is in."""

    name: str
    start: float
    end: float
    level: int = 0


@dataclass(slots=True)
class Row:
    """A lane: its name, its place among the others, its spans in the order of their beginnings."""

    name: str
    place: float
    spans: list[Span] = field(default_factory=list)

    @property
    def levels(self) -> int:
        """How many spans are open at once at most."""
        return 1 + max((span.level for span in self.spans), default=0)


@dataclass(slots=True)
class Trace:
    """Rows by process and thread number, and arrows: where and when each begins and ends."""

    rows: dict[tuple[object, object], Row]
    arrows: list[tuple[tuple[object, object], float, tuple[object, object], float]]


def read_trace(text: str) -> Trace:
    """The lanes of a Chrome trace. Raises TraceError."""
    try:
        document = json.loads(text)
        events = cast(list[dict[str, Any]], document["traceEvents"])
        rows = {(event["pid"], event["tid"]): Row(str(event["tid"]), 0.0) for event in events if event["ph"] == "X"}
        ends: defaultdict[object, dict[str, tuple[tuple[object, object], float]]] = defaultdict(dict)
        for event in events:
            lane = (event["pid"], event["tid"])
            if event["ph"] in ("s", "t", "f"):
                ends[event["id"]][event["ph"]] = lane, event["ts"]
            elif event["ph"] == "X":
                rows[lane].spans.append(Span(event["name"], event["ts"], event["ts"] + event["dur"]))
            elif lane in rows and event["name"] == "thread_name":
                rows[lane].name = event["args"]["name"]
            elif lane in rows and event["name"] == "thread_sort_index":
                rows[lane].place = event["args"]["sort_index"]
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(f"not a trace of a session with data='trace': {error!r}") from error
    for row in rows.values():
        _set_levels(row.spans)
    # One that begins at a scope passes through the launch.
    arrows = [(*found.get("t", found["s"]), *found["f"]) for found in ends.values() if {"s", "f"} <= found.keys()]
    return Trace(dict(sorted(rows.items(), key=lambda item: item[1].place)), arrows)


def _set_levels(spans: list[Span]) -> None:
    spans.sort(key=lambda span: (span.start, -span.end))
    open_: list[float] = []
    for span in spans:
        while open_ and open_[-1] <= span.start:
            open_.pop()
        span.level = len(open_)
        open_.append(span.end)


def chosen(trace: Trace, lanes: Sequence[str], begin: float | None, end: float | None) -> Trace:
    """The lanes whose names match one of the expressions (none: all), cut to a time. Raises TraceError if nothing is
    left."""
    rows = {}
    for lane, row in trace.rows.items():
        if lanes and not any(re.search(pattern, row.name) for pattern in lanes):
            continue
        first, last = -math.inf if begin is None else begin, math.inf if end is None else end
        kept = [
            Span(span.name, max(span.start, first), min(span.end, last), span.level)
            for span in row.spans
            if span.start <= last and span.end >= first
        ]
        if kept:
            rows[lane] = Row(row.name, row.place, kept)
    if not rows:
        names = ", ".join(repr(row.name) for row in list(trace.rows.values())[:5]) or "none"
        raise TraceError(f"no lane has something to draw; lanes of the trace: {names}")
    return Trace(rows, trace.arrows)


def colours(trace: Trace) -> dict[str, str]:
    """A colour for each name; names beyond the colours share a grey. The names with the most time come first."""
    time: defaultdict[str, float] = defaultdict(float)
    for row in trace.rows.values():
        for span in row.spans:
            time[span.name] += span.end - span.start
    ordered = sorted(time, key=lambda name: (-time[name], name))
    return {name: COLOURS[at] if at < len(COLOURS) else OTHER for at, name in enumerate(ordered)}


class Scale:
    """Microseconds to pixels."""

    def __init__(self, trace: Trace) -> None:
        spans = [span for row in trace.rows.values() for span in row.spans]
        self.begin = min(span.start for span in spans)
        self.end = max(max(span.end for span in spans), self.begin + 1e-3)
        self.per_us = (WIDTH - LABELS - PAD) / (self.end - self.begin)

    def x(self, microseconds: float) -> float:
        """Where a time is."""
        return LABELS + (microseconds - self.begin) * self.per_us

    def ticks(self) -> Iterator[float]:
        """Times at round distances from the beginning, some ten of them."""
        rough = (self.end - self.begin) / 10
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
        for at in range(int((self.end - self.begin) / step * (1 + 1e-9)) + 1):
            yield self.begin + at * step


def picture(trace: Trace, title: str) -> str:
    """The SVG. Times on the axis count from the beginning of what is shown."""
    scale, palette = Scale(trace), colours(trace)
    parts: list[str] = []
    tops: dict[tuple[object, object], float] = {}
    top = PAD + 20 + _legend_rows(palette) * LEGEND_ROW + AXIS
    first = top
    for lane, row in trace.rows.items():
        tops[lane] = top
        parts += _row(row, top, scale, palette)
        top += row.levels * LEVEL + BETWEEN
    height = top + PAD
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-label="{_text(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{height:g}"/>',
        f'<text x="{PAD}" y="{PAD + 10}" font-weight="bold">{_text(title)}</text>',
        *_legend(palette),
        *_axis(scale, first, top),
    ]
    return "\n".join([*head, *parts, *_arrows(trace, tops, scale), "</svg>", ""])


def _row(row: Row, top: float, scale: Scale, palette: dict[str, str]) -> Iterator[str]:
    label = row.name if len(row.name) <= 34 else row.name[:33] + "…"
    yield f'<text class="label" x="{PAD}" y="{top + 13:g}"><title>{_text(row.name)}</title>{_text(label)}</text>'
    for span, count in _merged(row.spans, scale):
        left = scale.x(span.start)
        width = max(scale.x(span.end) - left, 0.4)
        y = top + span.level * LEVEL
        took = f"{_time(span.end - span.start)}" + (f" in {count} spans" if count > 1 else "")
        yield (
            f'<rect class="span" x="{left:.2f}" y="{y:g}" width="{width:.2f}" height="{LEVEL - 2}" rx="1.5" '
            f'fill="{palette[span.name]}"><title>{_text(span.name)}: {took}</title></rect>'
        )
        if len(span.name) * 6.5 + 8 < width and count == 1:
            yield f'<text class="name" x="{left + 4:.2f}" y="{y + 12:g}">{_text(span.name)}</text>'


def _merged(spans: Sequence[Span], scale: Scale) -> Iterator[tuple[Span, int]]:
    """Spans, and those too narrow to tell apart as one: so the picture is no larger than it can show."""
    waiting: dict[int, tuple[Span, int]] = {}
    for span in spans:
        before = waiting.pop(span.level, None)
        narrow = (span.end - span.start) * scale.per_us < NARROW
        if before is not None:
            held, count = before
            if narrow and held.name == span.name and (span.start - held.end) * scale.per_us < NARROW:
                waiting[span.level] = Span(held.name, held.start, span.end, held.level), count + 1
                continue
            yield before
        if narrow:
            waiting[span.level] = span, 1
        else:
            yield span, 1
    yield from waiting.values()


def _legend_places(palette: dict[str, str]) -> Iterator[tuple[str, str, float, int]]:
    """Names, colours, and where they stand: pixels from the left, and the row. All names of the grey are one entry."""
    entries = [(name, colour) for name, colour in palette.items() if colour != OTHER]
    if len(entries) < len(palette):
        entries.append((f"{len(palette) - len(entries)} others", OTHER))
    left, row = float(PAD), 0
    for name, colour in entries:
        shown = name if len(name) <= 48 else name[:47] + "…"
        width = 24 + 7.0 * len(shown)
        if left > PAD and left + width > WIDTH - PAD:
            left, row = float(PAD), row + 1
        yield shown, colour, left, row
        left += width


def _legend_rows(palette: dict[str, str]) -> int:
    return 1 + max(row for *_, row in _legend_places(palette))


def _legend(palette: dict[str, str]) -> Iterator[str]:
    for name, colour, left, row in _legend_places(palette):
        y = PAD + 22 + row * LEGEND_ROW
        yield f'<rect class="key" x="{left:g}" y="{y}" width="12" height="12" rx="2" fill="{colour}"/>'
        yield f'<text class="legend" x="{left + 17:g}" y="{y + 10}">{_text(name)}</text>'


def _axis(scale: Scale, first: float, bottom: float) -> Iterator[str]:
    unit, factor = next((unit, factor) for most, unit, factor in UNITS if scale.end - scale.begin < most)
    for tick in scale.ticks():
        x = scale.x(tick)
        yield f'<line class="line" x1="{x:.2f}" x2="{x:.2f}" y1="{first - 6:g}" y2="{bottom:g}"/>'
        shown = f"{(tick - scale.begin) * factor:g}"
        yield f'<text class="faint tick" x="{x:.2f}" y="{first - 10:g}" text-anchor="middle">{shown}</text>'
    yield f'<text class="faint unit" x="{PAD}" y="{first - 10:g}">{unit}</text>'


def _arrows(trace: Trace, tops: dict[tuple[object, object], float], scale: Scale) -> Iterator[str]:
    for begin, at, end, then in trace.arrows:
        if begin in tops and end in tops and scale.begin <= min(at, then) and max(at, then) <= scale.end:
            place = f'x1="{scale.x(at):.2f}" y1="{tops[begin] + LEVEL:g}" x2="{scale.x(then):.2f}" y2="{tops[end]:g}"'
            yield f'<line class="arrow" {place}/>'


def _time(microseconds: float) -> str:
    return f"{microseconds:.4g} µs" if microseconds >= 1 else f"{microseconds * 1000:.4g} ns"


def _text(words: str) -> str:
    """For XML, which has no way to write most control characters and lone surrogates."""
    return escape("".join(c if c.isprintable() else "�" for c in words))


def main() -> int:
    """Write the picture; exit code 2 and a message if there is none to write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--lanes", nargs="+", default=[], metavar="REGEX", help="lanes whose names match one of these")
    parser.add_argument("--from", dest="begin", type=float, metavar="US", help="microseconds")
    parser.add_argument("--to", dest="end", type=float, metavar="US", help="microseconds")
    parser.add_argument("--title", default=None)
    given = parser.parse_args()
    try:
        trace = chosen(read_trace(given.trace.read_text(encoding="utf-8")), given.lanes, given.begin, given.end)
        title = given.trace.stem if given.title is None else given.title
        given.picture.write_text(picture(trace, title), encoding="utf-8")
    except (TraceError, OSError, UnicodeDecodeError, re.error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
