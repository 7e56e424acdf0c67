"""Stacks and what each has of a metric: collapsed stacks for flame graph tools, and speedscope's file format."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence

from ...errors import UsageError
from ..columns import Column
from ..frames import Number, Numbers
from ..names import printable
from ..view import View
from .exports import Export, finite, must_add_up

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_SPEEDSCOPE_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_PLACE = re.compile(r"^(?P<file>.+?):(?P<line>\d+)@(?P<function>.+)$")


def folded_text(export: Export) -> str:
    """Collapsed stacks, as flamegraph.pl reads them: ``ROOT;scope;kernel 1234``, a line for each frame of its own time.

    Values are integers: times in nanoseconds, other metrics in their unit, or in a thousandth, millionth or billionth
    of it where it would lose digits. The unit is said on the standard error. For two profiles each line has two
    values, the second profile's first, as difffolded.pl writes them. Raises UsageError for several metrics.
    """
    view = export.view
    if len(view.columns) != 1:
        raise UsageError("collapsed stacks have one metric", hint="name one with -m, for example -m time")
    columns = [*view.right, *view.left] or view.columns
    values = [finite(column, must_add_up(column, "collapsed stacks are sums")[0]) for column in columns]
    scale, unit = _whole_unit(columns[0], [number for numbers in values for number in numbers])
    print(f"proton-viewer: the values are {printable(view.columns[0].label)} in {printable(unit)}", file=sys.stderr)
    whole = [[round(number * scale) for number in numbers] for numbers in values]
    names = [_step(name) for name in view.names]
    lines = []
    for index, path in _paths(view, names):
        numbers = [column[index] for column in whole]
        if any(numbers):
            lines.append(f"{';'.join(path)} {' '.join(map(str, numbers))}\n")
    return "".join(lines)


def _whole_unit(column: Column, numbers: Numbers) -> tuple[Number, str]:
    """(factor, name of the unit) for integers."""
    if column.unit in _NANOSECONDS:
        return _NANOSECONDS[column.unit], "ns"
    unit = column.unit or {"bytes": "bytes", "count": "calls"}.get(column.label, "units")
    for factor, part in ((1, ""), (10**3, "thousandths of "), (10**6, "millionths of ")):
        if all(float(number * factor).is_integer() for number in numbers):
            return factor, part + unit
    largest = max(numbers, default=0)
    if largest >= 10**6:
        return 1, unit
    return 10**9, f"billionths of {unit}"


def _step(name: str) -> str:
    """A name that is one step of a collapsed stack: no semicolon, no line break."""
    return printable(name).replace(";", ":")


def _paths(view: View, names: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    path: list[str] = []
    for index, name in enumerate(names):
        del path[view.depths[index] - view.depths[0] :]
        path.append(name)
        yield index, path


def speedscope_text(export: Export) -> str:
    """Speedscope's JSON file format: a sampled profile for each metric, a sample for each frame with its own value."""
    view = export.view
    places: dict[str, int] = {}
    rows = [places.setdefault(name, len(places)) for name in view.names]
    profiles = [_sampled(view, column, rows) for column in view.columns]
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "deuteron proton-viewer",
        "name": export.title,
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(name) for name in places]},
        "profiles": profiles,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def _sampled(view: View, column: Column, rows: Sequence[int]) -> dict[str, object]:
    own = finite(column, must_add_up(column, "speedscope's weights are sums")[0])
    stacks: list[list[int]] = []
    weights: list[Number] = []
    stack: list[int] = []
    for index, row in enumerate(rows):
        del stack[view.depths[index] - view.depths[0] :]
        stack.append(row)
        if own[index]:
            stacks.append(list(stack))
            weights.append(own[index])
    unit = "bytes" if column.label == "bytes" else _SPEEDSCOPE_UNITS.get(column.unit, "none")
    return {
        "type": "sampled",
        "name": column.label,
        "unit": unit,
        "startValue": 0,
        "endValue": sum(weights),
        "samples": stacks,
        "weights": weights,
    }


def _frame(name: str) -> dict[str, object]:
    place = _PLACE.match(name)
    if place is None:
        return {"name": name}
    return {"name": place["function"], "file": place["file"], "line": int(place["line"])}
