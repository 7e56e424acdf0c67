"""Columns of a frame: which can be shown, and sums over subtrees."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import hatchet as ht


def is_number_column(gf: ht.GraphFrame, name: str) -> bool:
    """Does the column hold numbers (and not text or lists)?"""
    from pandas.api.types import is_numeric_dtype

    return bool(is_numeric_dtype(gf.dataframe[name]))


def sum_inclusive(gf: ht.GraphFrame) -> None:
    """Fill ``<metric> (inc)`` with the sum over each node's subtree, for the metrics in ``gf.exc_metrics``.

    Frames without a value do not count; the sum of none is nan. (hatchet's own ``update_inclusive_columns`` gives the
    same numbers with several data frame look-ups for each node and metric.)
    """
    order = []
    pending = list(gf.graph.roots)
    while pending:
        node = pending.pop()
        order.append(node)
        pending.extend(node.children)
    for metric in gf.exc_metrics:
        column = gf.dataframe[metric]
        sums = dict(zip(map(id, gf.dataframe.index), column.tolist(), strict=True))
        for node in reversed(order):
            values = [sums[id(node)], *(sums[id(child)] for child in node.children)]
            known = [value for value in values if not math.isnan(value)]
            sums[id(node)] = sum(known) if known else math.nan
        gf.dataframe[f"{metric} (inc)"] = [sums[id(node)] for node in gf.dataframe.index]
    added = [f"{metric} (inc)" for metric in gf.exc_metrics]
    gf.inc_metrics = added + [metric for metric in gf.inc_metrics if metric not in added]
