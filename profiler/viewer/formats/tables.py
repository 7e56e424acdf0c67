"""The table: the most expensive frames by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..columns import Column
from ..frames import Number
from ..names import columns_wide, printable
from ..show import joined
from ..view import Side, View
from .exports import Export
from .flat import flattened

_MARKS = {Side.BOTH: "", Side.LEFT: " ◀", Side.RIGHT: " ▶"}
_WIDEST = 100  # columns of a name


def table_text(export: Export) -> str:
    """A line for each name: its frames' own values and totals added up, largest first by the first metric.

    A frame inside another one of its name is not counted twice in the total. Shares are of ROOT.
    """
    view = joined([flattened(side) for side in export.sides])
    first = view.columns[0]
    keys = [abs(value) if value == value else -1.0 for value in (first.own or first.values)]
    totals = [abs(value) if value == value else -1.0 for value in (first.total or first.values)]
    rows = sorted(range(len(view)), key=lambda row: (-keys[row], -totals[row], view.names[row]))
    shown = rows[: export.top] if export.top else rows
    cells = [list(_header(view))]
    for row in shown:
        cells.append([text for column in view.columns for text in _cells(column, row, view.is_difference)])
        cells[-1].append(_name(view, row))
    lines = _aligned(cells)
    if len(shown) < len(rows):
        lines.append(f"and {len(rows) - len(shown)} more (-n 0 shows all)\n")
    return "".join(lines)


def _header(view: View) -> Iterator[str]:
    for column in view.columns:
        unit = f" ({column.unit})" if column.unit and column.unit not in column.label else ""
        if column.adds_up:
            yield f"{printable(column.label + unit)} self"
            if not view.is_difference:
                yield "%"
            yield "total"
            if not view.is_difference:
                yield "%"
        else:
            yield printable(column.label + unit)
    yield "name"


def _cells(column: Column, row: int, difference: bool) -> Iterator[str]:
    if column.own is None or column.total is None:
        yield _number(column.values[row], difference)
        return
    whole = column.total[0]
    for value in (column.own[row], column.total[row]):
        yield _number(value, difference)
        if not difference:
            yield f"{value / whole * 100:.1f}" if value == value and whole and math.isfinite(whole) else ""


def _number(value: Number, signed: bool) -> str:
    if value != value:
        return "-"
    sign = "+" if signed else ""
    return format(value, f"{sign}d" if isinstance(value, int) else f"{sign}.3f")


def _name(view: View, row: int) -> str:
    name = printable(view.names[row])
    if len(name) > _WIDEST:
        name = f"{name[: _WIDEST - 3]}..."
    return name + (_MARKS[view.sides[row]] if view.sides else "")


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells: numbers to the right, the last cell, a name, to the left."""
    widths = [max(columns_wide(row[at]) for row in cells) for at in range(len(cells[0]) - 1)]
    lines = []
    for row in cells:
        padded = [" " * (width - columns_wide(cell)) + cell for cell, width in zip(row[:-1], widths, strict=True)]
        lines.append("  ".join([*padded, row[-1]]) + "\n")
    return lines
