"""Everything in the view as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..columns import Column
from ..view import Side, View
from .exports import Export, plain

_SIDES = {Side.BOTH: "both", Side.LEFT: "left", Side.RIGHT: "right"}


def json_text(export: Export) -> str:
    """A JSON document (its keys are in docs/profiling.md); numbers are those of the file, to the last digit.

    Frames come parents first, and name their parent by its place in the list. A metric that adds up has ``self`` and
    ``total``, another one ``value``; of two profiles it has these for ``left``, ``right`` and their ``difference``.
    Frames without a value have no entry; what is not finite is null.
    """
    view = export.view
    document = {
        "format": "deuteron-profile-view",
        "version": 1,
        "profiles": list(export.titles),
        "devices": view.tree.devices,
        "metrics": [_metric(column) for column in view.columns],
        "frames": _frames(view),
    }
    return json.dumps(_jsonable(document), ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"


def _metric(column: Column) -> dict[str, object]:
    kind = {"name": column.label, "unit": column.unit, "adds_up": column.adds_up}
    return {**kind, "total_in_tree": column.inclusive}


def _frames(view: View) -> list[dict[str, object]]:
    named = [(column.label, _cells(column)) for column in view.columns]
    both = [(left.label, _cells(left), _cells(right)) for left, right in zip(view.left, view.right, strict=True)]
    texts = {metric: cells for metric, cells in view.tree.cells.items() if not view.tree.is_number(metric)}
    frames: list[dict[str, object]] = []
    for index, name in enumerate(view.names):
        parent = view.parents[index]
        frame: dict[str, object] = {"name": name, "parent": parent if parent >= 0 else None}
        values: dict[str, object] = {label: cells[index] for label, cells in named if cells[index]}
        if view.is_difference:
            values = {
                label: {"difference": values.get(label, {}), "left": left[index], "right": right[index]}
                for label, left, right in both
                if left[index] or right[index]
            }
            frame["side"] = _SIDES[view.sides[index]]
        frame["metrics"] = values
        origin = view.origin[index]
        properties = {metric: cells[origin] for metric, cells in texts.items() if origin in cells}
        if properties:
            frame["properties"] = properties
        frames.append(frame)
    return frames


def _cells(column: Column) -> Sequence[dict[str, object]]:
    """For each frame what it has of a metric; nothing for nan."""
    if column.own is None or column.total is None:
        return [{"value": plain(value)} if value == value else {} for value in column.values]
    cells: list[dict[str, object]] = []
    for own, total in zip(column.own, column.total, strict=True):
        cell: dict[str, object] = {"self": plain(own)} if own == own else {}
        if total == total:
            cell["total"] = plain(total)
        cells.append(cell)
    return cells


def _jsonable(value: object) -> object:
    """Devices and lists of a file may hold nan and infinities, which JSON has no numbers for: they become null."""
    pending: list[object] = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            entries = list(part.items())
        elif isinstance(part, list):
            entries = list(enumerate(part))
        else:
            continue
        for key, inner in entries:
            if isinstance(inner, float):
                if plain(inner) is None:
                    part[key] = None
            elif isinstance(inner, dict | list):
                pending.append(inner)
    return value
