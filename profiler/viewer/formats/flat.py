"""A profile with one row for each name instead of the tree."""

from __future__ import annotations

from collections.abc import Sequence

from ..columns import Column
from ..derive import derive, is_quantity, raw_column
from ..frames import NAN, FrameTree, Numbers
from ..view import View


def flattened(view: View) -> View:
    """A row for each name of the view, the root's first.

    Own values of frames of one name are added up, and their totals but for those inside another frame of that name.
    Rates, averages and shares are computed from these sums. What does not add up stays where only one frame has it.
    """
    groups: dict[str, int] = {}
    rows = [groups.setdefault(name, len(groups)) for name in view.names]
    outermost = _outermost(view, rows)
    tree = view.tree
    place = dict(zip(view.origin, rows, strict=True))
    heirs = [-1] * len(tree)
    for index, parent in enumerate(tree.parents):
        heirs[index] = place.get(index, heirs[parent] if parent >= 0 else -1)
    flat = FrameTree(
        [{"name": name} for name in groups],
        list(groups),
        [-1] * len(groups),
        [0] * len(groups),
        {metric: _gathered(tree, metric, heirs, view.origin) for metric in tree.cells},
        tree.inclusive,
        tree.exclusive,
        tree.devices,
    )
    for metric in tree.cells:
        if metric in tree.inclusive or (is_quantity(metric) and tree.is_number(metric)):
            flat.sums[metric] = _sums(tree.totals(metric), view.origin, rows, outermost, len(groups))
    columns = [_again(column, flat) for column in view.columns]
    return View(flat, list(range(len(flat))), list(groups), flat.parents, flat.depths, columns)


def _again(column: Column, tree: FrameTree) -> Column:
    """The column of the same metric for another tree."""
    return raw_column(tree, column.raw) if column.raw else derive(tree, [column.label])[0]


def _outermost(view: View, rows: Sequence[int]) -> list[bool]:
    """Which frames have no frame of their name above them."""
    found: list[bool] = []
    path: list[int] = []
    inside: dict[int, int] = {}
    for index, row in enumerate(rows):
        for left in path[view.depths[index] - view.depths[0] :]:
            inside[left] -= 1
        del path[view.depths[index] - view.depths[0] :]
        found.append(not inside.get(row, 0))
        path.append(row)
        inside[row] = inside.get(row, 0) + 1
    return found


def _gathered(tree: FrameTree, metric: str, heirs: Sequence[int], shown: Sequence[int]) -> dict[int, object]:
    """The own values of a metric by row. Sums where they add up; else what all visible frames of the row agree on."""
    cells = tree.cells[metric]
    gathered: dict[int, object] = {}
    if metric in tree.inclusive or (is_quantity(metric) and tree.is_number(metric)):
        for index, value in cells.items():
            row = heirs[index]
            if row >= 0 and value == value:
                gathered[row] = gathered[row] + value if row in gathered else value  # type: ignore[operator]
        return gathered
    different: set[int] = set()
    visible = set(shown)
    for index, value in cells.items():
        if index in visible:
            row = heirs[index]
            if row in gathered and gathered[row] != value:
                different.add(row)
            gathered[row] = value
    return {row: value for row, value in gathered.items() if row not in different}


def _sums(
    totals: Numbers, origin: Sequence[int], rows: Sequence[int], outermost: Sequence[bool], count: int
) -> Numbers:
    sums: Numbers = [NAN] * count
    for at, row, counted in zip(origin, rows, outermost, strict=True):
        value = totals[at]
        if counted and value == value:
            sums[row] = sums[row] + value if sums[row] == sums[row] else value
    return sums
