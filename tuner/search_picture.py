"""A search as a picture: every proposal with its time, why it was made and what bounds it, as SVG.

One panel for each shape and dtype. Across are the trials in order, first those that screen, then the races and the
final, shaded; up are times over the best one's, doubling by doubling. The mark says why a configuration was proposed,
its colour what bounds it (:mod:`.measure.bounds`); what failed lies on the upper edge as a cross. The line is the
fastest so far. Each mark has a tooltip with configuration, time and reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from .events import TrialFinished, TuneEvent
from .job import shape_key
from .search_profile import config_label
from .strategies.surrogate import reasons
from .trial import Trial

FILE_NAME = "search.svg"
WIDTH, HEIGHT = 900, 270
LEFT, RIGHT, TOP, BOTTOM, LEGEND = 52, 14, 30, 40, 48
#: Times of more than this many best ones lie on the upper edge.
MOST = 16.0

#: Colours that stay apart for people who do not tell red from green (Okabe and Ito), by what bounds a variant.
BOUNDS = {
    "memory": "#0072b2",
    "compute": "#d55e00",
    "latency": "#cc79a7",
    "registers, shared memory, threads": "#e69f00",
    "parallelism, tail": "#009e73",
    "spills": "#000000",
    "not known": "#8a8a8a",
}
#: Marks as paths around 0, 0, by why a configuration was proposed.
MARKS = {
    "start": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0",
    "beside the best": "M0,-5L5,0L0,5L-5,0Z",
    "far from the best": "M0,-5L5,4L-5,4Z",
    "from other searches": "M-4,-4H4V4H-4Z",
    "race and final": "M-5,-1H5V1H-5Z",
    "failed": "M-4,-4L4,4M4,-4L-4,4",
}


@dataclass(frozen=True)
class _Scale:
    """Where numbers of trials and times lie in a panel."""

    first: int
    last: int
    best_ns: float

    def x(self, number: float) -> float:
        return LEFT + (WIDTH - RIGHT - LEFT) * (number - self.first + 1) / (self.last - self.first + 2)

    def y(self, time_ns: float) -> float:
        share = math.log2(min(time_ns / self.best_ns, MOST)) / math.log2(MOST)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share


def search_svg(events: Iterable[TuneEvent]) -> str:
    """The text of an SVG file of the events of a job; empty panels for shapes of which nothing was measured."""
    panels: dict[tuple[str, str], list[Trial]] = {}
    for event in events:
        if isinstance(event, TrialFinished):
            panels.setdefault((shape_key(event.shape), event.dtype), []).append(event.trial)
    height = LEGEND + HEIGHT * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *_legend(),
    ]
    for index, ((shape, dtype), trials) in enumerate(panels.items()):
        parts += [
            f'<g transform="translate(0,{LEGEND + index * HEIGHT})">',
            *_panel(f"{shape} {dtype}", trials),
            "</g>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    parts, x = [], LEFT
    for name, mark in MARKS.items():
        parts.append(f'<path d="{mark}" transform="translate({x},14)" fill="#444" stroke="#444"/>')
        parts.append(f'<text x="{x + 10}" y="18">{name}</text>')
        x += 32 + 6 * len(name)
    parts.append(f'<text x="{LEFT - 5}" y="38">bound by</text>')
    x = LEFT + 52
    for name, colour in BOUNDS.items():
        parts.append(f'<rect x="{x}" y="29" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="38">{name}</text>')
        x += 32 + 6 * len(name)
    return parts


def _panel(title: str, trials: Sequence[Trial]) -> list[str]:
    trials = sorted(trials, key=lambda trial: trial.number)
    times = [trial.time_ns.median for trial in trials if trial.time_ns is not None]
    scale = _Scale(trials[0].number, trials[-1].number, min(times, default=1.0))
    parts = [f'<text x="{LEFT}" y="{TOP - 12}" font-weight="bold">{escape(title)}</text>', *_axes(scale)]
    decided = [trial.number for trial in trials if trial.phase != "screen"]
    if decided:
        left, right = scale.x(decided[0] - 0.5), scale.x(decided[-1] + 0.5)
        parts.append(
            f'<rect x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{HEIGHT - BOTTOM - TOP}" '
            'fill="#000" fill-opacity="0.05"/>'
        )
    parts += _incumbent(scale, trials)
    return parts + [part for trial in trials for part in _mark(scale, trial)]


def _axes(scale: _Scale) -> list[str]:
    parts = []
    for doubling in range(round(math.log2(MOST)) + 1):
        y = scale.y(scale.best_ns * 2**doubling)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{2**doubling}x</text>')
    step = max(1, 10 ** round(math.log10(max(scale.last - scale.first, 1) / 5)))
    for number in range(-(-scale.first // step) * step, scale.last + 1, step):
        parts.append(f'<text x="{scale.x(number):.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{number}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - BOTTOM + 30}" text-anchor="middle">trial</text>')
    parts.append(
        f'<text transform="translate(12,{(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
        "time over the best</text>"
    )
    return parts


def _incumbent(scale: _Scale, trials: Sequence[Trial]) -> list[str]:
    best, points = math.inf, list[str]()
    screened = [trial for trial in trials if trial.phase == "screen"]
    for trial in screened:
        if trial.time_ns is not None and trial.time_ns.median < best:
            if points:
                points.append(f"{scale.x(trial.number):.1f},{scale.y(best):.1f}")
            best = trial.time_ns.median
            points.append(f"{scale.x(trial.number):.1f},{scale.y(best):.1f}")
    if not points:
        return []
    points.append(f"{scale.x(screened[-1].number):.1f},{scale.y(best):.1f}")
    return [f'<polyline points="{" ".join(points)}" fill="none" stroke="#444" stroke-width="1.5"/>']


def _mark(scale: _Scale, trial: Trial) -> list[str]:
    x = scale.x(trial.number)
    colour = BOUNDS[_bound(trial)]
    if trial.time_ns is None:
        kind, y = "failed", float(TOP)
    else:
        kind, y = _kind(trial), scale.y(trial.time_ns.median)
    parts = []
    if trial.phase == "final" and trial.time_ns is not None:
        low, high = scale.y(trial.time_ns.low), scale.y(trial.time_ns.high)
        parts.append(f'<line x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}" stroke="{colour}"/>')
    parts.append(
        f'<path d="{MARKS[kind]}" transform="translate({x:.1f},{y:.1f})" fill="{colour}" stroke="{colour}" '
        f'fill-opacity="0.75"><title>{escape(_words(trial))}</title></path>'
    )
    return parts


def _kind(trial: Trial) -> str:
    reason = trial.reason or ""
    if trial.phase != "screen":
        return "race and final"
    if reason in (reasons.KNOWN_BEFORE, reasons.PREDICTED):
        return "from other searches"
    if reason.endswith("beside the best"):
        return "beside the best"
    if reason.endswith(("changes from the best", "unexplored region")):
        return "far from the best"
    return "start"


def _bound(trial: Trial) -> str:
    bound = None if trial.measurement is None else trial.measurement.bound
    return next((name for name in BOUNDS if bound in name.split(", ")), "not known")


def _words(trial: Trial) -> str:
    lines = [f"#{trial.number} {trial.phase} {config_label(trial.config)}"]
    if trial.time_ns is None:
        lines.append(f"{trial.status}: {trial.error}")
    else:
        lines.append(f"{trial.time_ns.median / 1e3:.4g} us, bound by {_bound(trial)}")
    return "\n".join([*lines, *([trial.reason] if trial.reason else [])])
