"""Proton's functions on hatchet ``GraphFrame``s, for callers who go on with hatchet and pandas.

They turn frames into a :class:`.frames.FrameTree`, do there what the command line does, and turn the result back. All
need the extra ``viewer``; the command line does not.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from deuteron.compiler.extras import require_extras

from ..errors import UsageError
from . import derive as derived
from .columns import Column
from .console import tree_text
from .diff import subtract
from .filters import at_least, filter_tree
from .frames import DeviceInfo, FrameTree, Literal, Numbers, Source, is_metadata, read_tree, tree_of
from .names import shortener
from .show import wants_color
from .view import DEFAULT_DEPTH, Choice, Side, View, view_of

if TYPE_CHECKING:
    import hatchet as ht
    import pandas as pd

_BY = "reading profiles as hatchet frames"


def read(filename: Source) -> tuple[ht.GraphFrame, list[str], list[str], DeviceInfo]:
    """Read a profile (a path, or a :class:`~deuteron.profiler.Profile`).

    Returns the frame with inclusive columns filled in, the names of the inclusive and of the exclusive metrics, and
    the devices. Raises ProfileFileError, MalformedProfile, EmptyProfile, MissingExtra.
    """
    require_extras("viewer", by=_BY)
    tree = read_tree(filename)
    sums = [Column(f"{metric} (inc)", metric, "", tree.totals(metric)) for metric in tree.inclusive]
    gf = _to_graphframe(tree, sums)
    gf.exc_metrics = list(tree.inclusive)
    return gf, tree.inclusive, tree.exclusive, tree.devices


def get_raw_metrics(database: Literal) -> tuple[ht.GraphFrame, list[str], list[str], DeviceInfo]:
    """As :func:`read` for a checked literal, with metrics as they are in the file: nothing is summed yet."""
    require_extras("viewer", by=_BY)
    tree = tree_of(database)
    gf = _to_graphframe(tree, [])
    gf.exc_metrics = list(tree.inclusive)
    return gf, tree.inclusive, tree.exclusive, tree.devices


def parse(
    metrics: Sequence[str],
    filename: Source,
    include: str | None = None,
    exclude: str | None = None,
    threshold: float | None = None,
) -> tuple[ht.GraphFrame, list[str]]:
    """Read a profile, filter it and derive metrics; returns the frame and the columns to show.

    Metrics are derived after ``include`` and ``exclude``, so totals are those of what is shown. ``threshold`` is on the
    first metric. Raises the errors of :func:`read`, :func:`filter_frames` and :func:`derive_metrics`.
    """
    require_extras("viewer", by=_BY)
    if not metrics:
        raise UsageError("no metric was asked for", hint="-m time/ms,util, for example; -l lists them")
    view = view_of(filename, Choice(metrics, include, exclude, threshold))
    kept = [False] * len(view.tree)
    for index in view.origin:
        kept[index] = True
    tree = view.tree.keep(kept)
    # Sums of what --include and --exclude left, with those that --threshold hides.
    sums = [
        Column(f"{metric} (inc)", metric, "", [view.tree.totals(metric)[index] for index in view.origin])
        for metric in tree.inclusive
    ]
    gf = _to_graphframe(tree, [*sums, *view.columns])
    gf.exc_metrics = list(tree.inclusive)
    return gf, [column.name for column in view.columns]


def remove_frames(database: Literal) -> Literal:
    """Drop what nobody wants to see: launch metadata frames, and frames with neither metrics nor children.

    A frame whose children all vanish goes with them unless it has metrics of its own. ROOT stays.
    """
    root: dict[str, object] = {**database[0], "children": []}
    copies = [(root, database[0])]
    for copy, source in copies:  # grows while it is walked: parents before children
        for child in cast(Literal, source.get("children") or []):
            if not is_metadata(child):
                below = {**child, "children": []}
                cast(Literal, copy["children"]).append(below)
                copies.append((below, child))
    for copy, _ in reversed(copies):
        children = cast(Literal, copy["children"])
        children[:] = [child for child in children if child["metrics"] or child["children"]]
    return [root, *database[1:]]


def derive_metrics(
    gf: ht.GraphFrame,
    metrics: Sequence[str],
    inclusive_metrics: Sequence[str],
    exclusive_metrics: Sequence[str],
    device_info: DeviceInfo,
) -> list[str]:
    """Add the columns that ``metrics`` need and return the columns to show.

    Accepts what :func:`.derive.derive` does, in any case. Raises MetricNotFound, MetricError.
    """
    tree = _tree(gf, inclusive_metrics, exclusive_metrics, device_info)
    columns = derived.derive(tree, metrics)
    for column in columns:
        if column.name not in gf.dataframe.columns:
            gf.dataframe[column.name] = column.values
        # Raw exclusive columns stay out of exc_metrics: those are summed over subtrees.
        if column.name.endswith("(inc)") and column.name not in gf.inc_metrics:
            gf.inc_metrics.append(column.name)
    return [column.name for column in columns]


def filter_frames(
    gf: ht.GraphFrame,
    include: str | None = None,
    exclude: str | None = None,
    threshold: float | None = None,
    metric: str | None = None,
) -> ht.GraphFrame:
    """Keep whole paths only.

    ``include``: paths through frames whose name matches; ``exclude``: drop matching frames and all below them. Both
    are regular expressions matched from the start of the name, and inclusive sums are computed anew. ``threshold``:
    hide frames whose ``metric`` is smaller, without changing what the others show.

    Raises UsageError for a bad regular expression, EmptyProfile when nothing is left.
    """
    if include or exclude:
        tree = _tree(gf, gf.exc_metrics, [])
        tree.cells["_row"] = dict(enumerate(range(len(tree))))
        left = filter_tree(tree, include, exclude)
        gf = _rows(gf, [cast(int, row) for row in left.own("_row")])
        for summed in gf.exc_metrics:
            gf.dataframe[f"{summed} (inc)"] = left.totals(summed)
    if threshold is not None and metric is not None:
        tree = _tree(gf, [], [])
        kept = at_least(gf.dataframe[metric].tolist(), tree.parents, threshold, metric)
        gf = _rows(gf, [row for row, keep in enumerate(kept) if keep])
    return gf


def format_frames(gf: ht.GraphFrame, format: str | None) -> ht.GraphFrame:
    """Shorten the names of Python frames: "file_function_line", "function_line" or "file_function"; others stay."""
    shorten = shortener(format)
    if format not in (None, "full"):
        gf.dataframe["name"] = [shorten(name) for name in gf.dataframe["name"]]
    return gf


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
    left = _view(gf, list(dict.fromkeys(derived_metrics)))
    right = view_of(diff_file, Choice(list(dict.fromkeys(metrics)), include, exclude, threshold))
    view = subtract(left, right)
    frames: list[dict[str, object]] = [{"name": name, "type": "function"} for name in view.names]
    tree = FrameTree(frames, view.names, view.parents, view.depths, {}, [], [])
    result = _to_graphframe(tree, view.columns)
    if any(view.sides):
        result.dataframe["_missing_node"] = [int(side) for side in view.sides]
    return result


def print_tree(
    gf: ht.GraphFrame,
    metrics: Sequence[str],
    depth: int = DEFAULT_DEPTH,
    format: str | None = None,
    print_sorted: bool = False,
    *,
    color: bool | None = None,
) -> None:
    """Print a frame as a tree of at most ``depth`` levels, and with ``print_sorted`` a list after it.

    ``color`` None means: if the standard output is a terminal and NO_COLOR is not set.
    """
    chosen = wants_color() if color is None else color
    print(tree_text(_view(format_frames(gf, format), metrics), depth, print_sorted, color=chosen), end="")


def get_min_time_flops(df: pd.DataFrame, device_info: DeviceInfo) -> pd.DataFrame:
    """Seconds that each frame's operations need at its device's peak rates (column ``min_time``)."""
    return _min_time(derived.min_time_flops, df, device_info)


def get_min_time_bytes(df: pd.DataFrame, device_info: DeviceInfo) -> pd.DataFrame:
    """Seconds that each frame's bytes need at its device's peak bandwidth (column ``min_time``, nan without bytes)."""
    return _min_time(derived.min_time_bytes, df, device_info)


def _min_time(compute: Callable[..., list[float]], df: pd.DataFrame, device_info: DeviceInfo) -> pd.DataFrame:
    import pandas as pd  # lazy: pandas is of the extra viewer

    cells = {name: dict(enumerate(df[name].tolist())) for name in ("device_id", "device_type") if name in df.columns}
    numbers = {name: df[name].tolist() for name in df.columns if pd.api.types.is_numeric_dtype(df[name])}
    times = compute(numbers, derived.devices_of(cells, len(df)), device_info)
    return pd.DataFrame({"min_time": times}, index=df.index)


def _to_graphframe(tree: FrameTree, columns: Sequence[Column]) -> ht.GraphFrame:
    """A frame with the metrics of the file (nothing where a frame has none), and these columns."""
    import pandas as pd  # lazy: pandas and hatchet are of the extra viewer
    from hatchet import GraphFrame  # lazy: as pandas
    from hatchet.graph import Graph  # lazy: as pandas
    from hatchet.node import Node  # lazy: as pandas

    nodes: list[ht.node.Node] = []
    for index, frame in enumerate(tree.frames):
        parent = nodes[tree.parents[index]] if tree.parents[index] >= 0 else None
        node = Node(_hatchet_frame(frame), parent, hnid=index)
        if parent is not None:
            parent.add_child(node)
        nodes.append(node)
    graph = Graph([node for node, parent in zip(nodes, tree.parents, strict=True) if parent < 0])
    with recursion_for(max(tree.depths, default=0) + 1):
        graph.enumerate_depth()
    data: dict[str, object] = {"name": tree.names}
    for metric, cells in tree.cells.items():
        missing = math.nan
        data[metric] = [cells.get(index, missing) for index in range(len(tree))]
    data |= {column.name: column.values for column in columns}
    frame = pd.DataFrame(data, index=pd.Index(nodes, name="node"))
    inclusive = [column.name for column in columns if column.name.endswith("(inc)")]
    exclusive = [column.name for column in columns if column.name not in inclusive]
    return GraphFrame(graph, frame, exclusive, inclusive)


def _hatchet_frame(description: dict[str, object]) -> ht.frame.Frame:
    from hatchet.frame import Frame  # lazy: hatchet is of the extra viewer

    return Frame(dict(description))


def _nodes(gf: ht.GraphFrame) -> Iterator[tuple[ht.node.Node, int, int]]:
    """(node, number of its parent, depth) of all nodes, parents before children."""
    pending = [(root, -1, 0) for root in sorted(gf.graph.roots, key=_order, reverse=True)]
    count = 0
    while pending:
        node, parent, depth = pending.pop()
        yield node, parent, depth
        pending.extend((child, count, depth + 1) for child in sorted(node.children, key=_order, reverse=True))
        count += 1


def _order(node: ht.node.Node) -> int:
    return int(node._hatchet_nid)


def _tree(
    gf: ht.GraphFrame, inclusive: Sequence[str], exclusive: Sequence[str], devices: DeviceInfo | None = None
) -> FrameTree:
    """The frames of a data frame whose rows are in the order of the tree, as hatchet and this module leave them."""
    order = list(_nodes(gf))
    frame = gf.dataframe
    cells: dict[str, dict[int, object]] = {}
    for metric in [*inclusive, *exclusive]:
        values = frame[metric].tolist()
        cells[metric] = {row: value for row, value in enumerate(values) if value is not None and value == value}
    sums: dict[str, Numbers] = {
        metric: frame[f"{metric} (inc)"].tolist() for metric in inclusive if f"{metric} (inc)" in frame.columns
    }
    return FrameTree(
        [dict(node.frame.attrs) for node, _, _ in order],
        frame["name"].tolist(),
        [parent for _, parent, _ in order],
        [depth for _, _, depth in order],
        cells,
        list(inclusive),
        list(exclusive),
        devices or {},
        sums,
    )


def _view(gf: ht.GraphFrame, columns: Sequence[str]) -> View:
    tree = _tree(gf, [], [])
    shown = [Column(name, name, "", gf.dataframe[name].tolist()) for name in columns]
    sides = []
    if "_missing_node" in gf.dataframe.columns:
        sides = [Side(value) for value in gf.dataframe["_missing_node"].tolist()]
    return View(tree, list(range(len(tree))), tree.names, tree.parents, tree.depths, shown, sides)


def _rows(gf: ht.GraphFrame, rows: Sequence[int]) -> ht.GraphFrame:
    """A frame of some rows, which hold the parents of all of them."""
    from hatchet import GraphFrame  # lazy: hatchet is of the extra viewer

    kept = [False] * len(gf.dataframe)
    for row in rows:
        kept[row] = True
    copy = _to_graphframe(_tree(gf, [], []).keep(kept), [])
    frame = gf.dataframe.iloc[list(rows)].copy()
    frame.index = copy.dataframe.index
    return GraphFrame(copy.graph, frame, list(gf.exc_metrics), list(gf.inc_metrics))


@contextmanager
def recursion_for(depth: int) -> Iterator[None]:
    """hatchet walks trees recursively; allow it to go this deep."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 1000 + 10 * depth))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
