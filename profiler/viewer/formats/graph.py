"""The tree as a graph for Graphviz."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..columns import Column, quotient
from ..frames import Number
from ..names import printable
from ..view import Side, View
from .exports import Export

_SIDES = {Side.BOTH: "", Side.LEFT: "only in the first profile", Side.RIGHT: "only in the second profile"}


def dot_text(export: Export) -> str:
    """A directed graph in Graphviz's language: a box for each frame with all metrics, darker the larger the first is.

    For two profiles boxes are red where the first has more, blue where it has less; signs say the same.
    """
    view = export.view
    lines = [
        "digraph profile {\n",
        f"  graph [label={_quoted(export.title)}, labelloc=t, rankdir=TB];\n",
        '  node [shape=box, style=filled, fontname="sans-serif", fillcolor="#ffffff"];\n',
    ]
    lines += _nodes(view)
    lines += [f"  n{parent} -> n{index};\n" for index, parent in enumerate(view.parents) if parent >= 0]
    lines.append("}\n")
    return "".join(lines)


def _nodes(view: View) -> Iterator[str]:
    first = view.columns[0]
    sizes = first.total or first.values
    largest = max((abs(size) for size in sizes if math.isfinite(size)), default=0)
    for index, name in enumerate(view.names):
        label = [printable(name), *(_row(column, index, view.is_difference) for column in view.columns)]
        if view.sides and view.sides[index]:
            label.append(_SIDES[view.sides[index]])
        color = _color(quotient(sizes[index], largest), view.is_difference)
        yield f'  n{index} [label={_quoted(chr(10).join(label))}, fillcolor="{color}"];\n'


def _row(column: Column, index: int, signed: bool) -> str:
    unit = f" {column.unit}" if column.unit and column.unit not in column.label else ""
    if column.own is None or column.total is None:
        return f"{printable(column.label)}: {_number(column.values[index], signed)}{unit}"
    own, total = _number(column.own[index], signed), _number(column.total[index], signed)
    return f"{printable(column.label)}: self {own}, total {total}{unit}"


def _number(value: Number, signed: bool) -> str:
    return "-" if value != value else format(value, "+.6g" if signed else ".6g")


def _color(share: float, difference: bool) -> str:
    """White for nothing, orange for everything; red and blue for differences."""
    if not math.isfinite(share):
        return "#ffffff"
    pale = round(255 - 155 * min(abs(share), 1))
    if not difference:
        return f"#ff{(255 + pale) // 2:02x}{pale:02x}"
    return f"#ff{pale:02x}{pale:02x}" if share >= 0 else f"#{pale:02x}{pale:02x}ff"


def _quoted(text: str) -> str:
    """A string of Graphviz's language; line breaks in it are ends of centred lines."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
