"""All frames as comma-separated values, for programs and for spreadsheets."""

from __future__ import annotations

import csv

from ..columns import Column
from ..frames import Number, Numbers
from .exports import Export, plain

# What spreadsheets take for the beginning of a formula, also in the wide forms of East Asian keyboards, and the
# apostrophe that says that no formula follows.
_NOT_FIRST = tuple("=+-@\t\r\n＝＋－＠'")


class _Lines:
    """What csv.writer writes to, which quotes carriage returns only where they end lines: here they do not."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        """Take a line that ends in carriage return and line feed."""
        self.lines.append(line[:-2] + "\n")


def csv_text(export: Export) -> str:
    """All frames, parents first: number, number of the parent, depth, name, and what each metric has.

    A metric that adds up has two columns, self and total, another one a single column; of two profiles each of these
    is there three times: left, right and difference. Then come metrics that hold text or lists. Names and texts are
    written as :func:`cell_text` says.
    """
    view = export.view
    header = ["id", "parent", "depth", "name", *(["side"] if view.is_difference else [])]
    numbers: list[Numbers] = []
    for at, column in enumerate(view.columns):
        given = [("", column)]
        if view.is_difference:
            given = [(" left", view.left[at]), (" right", view.right[at]), (" difference", column)]
        for suffix, side in given:
            for part, values in _parts(side):
                header.append(f"{column.label}{part}{suffix}")
                numbers.append(values)
    texts = {metric: cells for metric, cells in view.tree.cells.items() if not view.tree.is_number(metric)}
    written = _Lines()
    writer = csv.writer(written)
    writer.writerow([cell_text(label) for label in (*header, *texts)])
    for index, name in enumerate(view.names):
        parent = view.parents[index]
        row: list[object] = [index, parent if parent >= 0 else "", view.depths[index], cell_text(name)]
        if view.is_difference:
            row.append(view.sides[index].name.lower())
        row += [_field(values[index]) for values in numbers]
        row += [cell_text(str(cells.get(view.origin[index], ""))) for cells in texts.values()]
        writer.writerow(row)
    return "".join(written.lines)


def cell_text(text: str) -> str:
    """A text as a cell: with an apostrophe before it where a spreadsheet would compute it, or where it begins with an
    apostrophe itself. So a reader who takes one apostrophe from the beginning of a cell has every text as it was."""
    return f"'{text}" if text.startswith(_NOT_FIRST) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isprintable()


def _parts(column: Column) -> list[tuple[str, Numbers]]:
    if column.own is None or column.total is None:
        return [("", column.values)]
    return [(" self", column.own), (" total", column.total)]


def _field(value: Number) -> object:
    if value != value:
        return ""
    return value if plain(value) is not None else ("inf" if value > 0 else "-inf")
