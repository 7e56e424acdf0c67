"""The tree as text, line by line as hatchet's renderer prints it for Proton's viewer, with colours for terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .columns import Column
from .frames import Number, Numbers
from .names import printable
from .view import Side, View

_END, _FAINT, _BLUE = "\033[0m", "\033[2m", "\033[34m"
# From the smallest share of the range of values to which each belongs: red, orange, yellow, three greens.
_HEAT = (
    (0.9, "\033[38;5;196m"),
    (0.7, "\033[38;5;208m"),
    (0.5, "\033[38;5;220m"),
    (0.3, "\033[38;5;46m"),
    (0.1, "\033[38;5;34m"),
    (0.0, "\033[38;5;22m"),
)
_ONLY_LEFT, _ONLY_RIGHT = ("\033[38;5;160m", "◀ "), ("\033[38;5;28m", "▶ ")


def tree_text(view: View, depth: int, print_sorted: bool = False, *, color: bool = False) -> str:
    """The tree of at most ``depth`` levels; with ``print_sorted`` the list of all frames after it."""
    parts = _lines(view, depth, color)
    if color:
        parts += _legend(view.columns[0])
    parts.append("\n")
    if print_sorted:
        parts += _sorted_lines(view)
    if any(column.name == "bytes (inc)" and min(column.values, default=0) < 0 for column in view.columns):
        parts.append("Warning: Negative byte values detected, this is usually the result of a datatype overflow\n\n")
    return "".join(parts)


def _lines(view: View, depth: int, color: bool) -> list[str]:
    heads = _first_values(view.columns[0].values, color)
    start, end = (f" {_FAINT}", _END) if color else (" ", "")
    rest = [[f"{start}{value:.3f}{end}" for value in column.values] for column in view.columns[1:]]
    metrics = ["".join(values) for values in zip(*rest, strict=True)] if rest else [""] * len(heads)
    marks = _marks(view.sides, color)
    last = _last_children(view.parents)
    reset = _END if color else ""
    lines = []
    indents: list[str] = []  # by depth: what stands before the children of the latest frame of that depth
    for index, level in enumerate(view.depths):
        if level >= depth:
            continue
        before = indents[level - 1] if level else ""
        branch, below = ("└─ ", "   ") if last[index] else ("├─ ", "│  ")
        indents[level:] = [before + below if level else ""]
        mark = marks[view.sides[index]] if view.sides else ""
        lead = before + branch if level else ""
        lines.append(f"{lead}{heads[index]}{metrics[index]} {printable(view.names[index])}{reset}{mark}\n")
    return lines


def _last_children(parents: Sequence[int]) -> list[bool]:
    """Which frames are the last of their siblings."""
    last = [False] * len(parents)
    seen: set[int] = set()
    for index in range(len(parents) - 1, -1, -1):
        if parents[index] not in seen:
            seen.add(parents[index])
            last[index] = True
    return last


def _first_values(values: Numbers, color: bool) -> list[str]:
    if not color:
        return [f"{value:.3f}" for value in values]
    low, high = _range(values)
    return [f"{_heat(value, low, high)}{value:.3f}{_END}" for value in values]


def _range(values: Numbers) -> tuple[Number, Number]:
    finite = [value for value in values if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (math.nan, math.nan)


def _heat(value: Number, low: Number, high: Number) -> str:
    share = (value - low) / (high - low) if high != low else value
    for bound, code in _HEAT:
        if share > bound or (bound == 0 and share == 0):
            return code
    return _BLUE


def _marks(sides: Sequence[Side], color: bool) -> dict[Side, str]:
    if not any(sides):
        return dict.fromkeys(Side, "")
    marks = {Side.BOTH: ""}
    for side, (code, arrow) in ((Side.LEFT, _ONLY_LEFT), (Side.RIGHT, _ONLY_RIGHT)):
        marks[side] = f" {code}{arrow}{_END}" if color else f" {arrow}"
    return marks


def _legend(column: Column) -> list[str]:
    low, high = _range(column.values)
    lines = [f"\n\033[4mLegend{_END} (Metric: {printable(column.name)} Min: {low:.2f} Max: {high:.2f})\n"]
    above = 1.0
    for bound, code in _HEAT:
        first, second = bound * (high - low) + low, above * (high - low) + low
        lines.append(f"{code}█ {_END}{first:.2f} - {second:.2f}\n")
        above = bound
    left, right = (f"{code}{arrow}{_END}" for code, arrow in (_ONLY_LEFT, _ONLY_RIGHT))
    lines.append(f"\nname{_END} User code    {left} Only in left graph    {right} Only in right graph\n")
    return lines


def _sorted_lines(view: View) -> list[str]:
    """All frames but the roots by the first metric, largest first, those without a value last."""
    values = view.columns[0].values
    rows = [index for index, parent in enumerate(view.parents) if parent >= 0]
    rows.sort(key=lambda index: (values[index] != values[index], -values[index]))
    lines = [f"Sorted kernels by metric {printable(view.columns[0].name)}\n"]
    for index in rows:
        name = printable(view.names[index])
        short = name[:100] + "..." if len(name) > 100 else name
        lines.append(f"{short:105} {float(values[index]):.4}\n")
    return lines
