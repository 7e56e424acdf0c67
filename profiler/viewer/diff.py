"""The difference of two profiles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .frames import Source, recursion_for
from .parse import parse

if TYPE_CHECKING:
    import hatchet as ht

_BOTH, _LEFT_ONLY, _RIGHT_ONLY = (
    0,
    1,
    2,
)  # what hatchet's renderer looks for in the column _missing_node


def apply_diff_profile(
    gf: ht.GraphFrame,
    derived_metrics: Sequence[str],
    diff_file: Source,
    metrics: Sequence[str],
    include: str | None = None,
    exclude: str | None = None,
    threshold: float | None = None,
) -> ht.GraphFrame:
    """``gf`` minus the profile in ``diff_file``, for the same metrics and filters.

    Frames that only one of the two has are marked: one of ``gf`` keeps its value, one of ``diff_file`` shows nan. A
    frame that has a value on one side only counts as 0 on the right and as nan on the left.
    """
    other, _ = parse(metrics, diff_file, include, exclude, threshold)
    return _subtract(gf, other, list(dict.fromkeys(derived_metrics)))


def _subtract(left: ht.GraphFrame, right: ht.GraphFrame, columns: list[str]) -> ht.GraphFrame:
    # hatchet's own sub() does the same, but its compiled part refuses pandas 3's read-only arrays.
    import pandas as pd
    from hatchet import GraphFrame
    from hatchet.graph import Graph
    from hatchet.node import Node

    left_values, right_values = _rows(left, columns), _rows(right, columns)
    rows: list[dict[str, object]] = []
    roots: list[ht.node.Node] = []
    pending = [(None, pair) for pair in _pairs(left.graph.roots, right.graph.roots)]
    while pending:
        parent, (ours, theirs) = pending.pop()
        node = Node([side for side in (ours, theirs) if side is not None][0].frame, parent)
        (parent.children if parent is not None else roots).append(node)
        row: dict[str, object] = {"node": node, "name": node.frame.get("name")}
        row["_missing_node"] = _RIGHT_ONLY if ours is None else _LEFT_ONLY if theirs is None else _BOTH
        for column in columns:
            mine = left_values[id(ours)][column] if ours is not None else math.nan
            other = right_values[id(theirs)][column] if theirs is not None else math.nan
            row[column] = mine if math.isnan(other) else mine - other
        rows.append(row)
        children = _pairs(ours.children if ours else [], theirs.children if theirs else [])
        pending.extend((node, pair) for pair in reversed(children))
    graph = Graph(roots)
    with recursion_for(len(rows)):
        graph.enumerate_traverse()
    frame = pd.DataFrame(rows).set_index("node").sort_index()
    if not frame["_missing_node"].any():
        del frame["_missing_node"]
    inclusive = [column for column in columns if column.endswith("(inc)")]
    return GraphFrame(graph, frame, [c for c in columns if c not in inclusive], inclusive)


def _rows(gf: ht.GraphFrame, columns: list[str]) -> dict[int, dict[str, float]]:
    values = gf.dataframe[columns].to_dict("records")
    return {id(node): row for node, row in zip(gf.dataframe.index, values, strict=True)}


Pair = tuple["ht.node.Node | None", "ht.node.Node | None"]


def _pairs(left: Sequence[ht.node.Node], right: Sequence[ht.node.Node]) -> list[Pair]:
    """Siblings of both sides by frame, in the order of their frames; the second of two equal frames meets the
    second."""
    ours, theirs = _numbered(left), _numbered(right)
    return [(ours.get(key), theirs.get(key)) for key in sorted(ours.keys() | theirs.keys())]


def _numbered(nodes: Sequence[ht.node.Node]) -> dict[tuple[str, int], ht.node.Node]:
    seen: Counter[str] = Counter()
    numbered = {}
    for node in nodes:
        name = str(node.frame.get("name"))
        numbered[name, seen[name]] = node
        seen[name] += 1
    return numbered
