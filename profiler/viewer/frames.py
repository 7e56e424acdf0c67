"""From a profile to a hatchet ``GraphFrame``: reading, dropping bookkeeping frames, filtering, naming."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from deuteron.compiler.extras import require_extras

from ..contexts import METADATA_SCOPE
from ..decode import check_literal, decode, read_literal
from ..errors import EmptyProfile, MalformedProfile, UsageError
from ..profile import Profile
from .columns import is_number_column, sum_inclusive

if TYPE_CHECKING:
    import hatchet as ht

Literal = list[dict[str, object]]
Source = str | os.PathLike[str] | Profile
DeviceInfo = dict[str, dict[str, dict[str, object]]]

# hatchet keeps these columns beside the metrics.
_TAKEN_COLUMNS = frozenset({"name", "node", "_hatchet_nid", "_missing_node"})
_WHOLE = 1 << 63
# file:line@function, and file:function@line of older files.
_PYTHON_FRAME = re.compile(r"^(?P<file>.+?):(?:(?P<line>\d+)@(?P<function>.+)|.+@\d+)$")


def read(filename: Source) -> tuple[ht.GraphFrame, list[str], list[str], DeviceInfo]:
    """Read a profile (a path, or a :class:`~deuteron.profiler.Profile`).

    Returns the frame with inclusive columns filled in, the names of the inclusive and of the exclusive metrics, and
    the devices. Raises ProfileFileError, MalformedProfile, EmptyProfile.
    """
    where = "the profile" if isinstance(filename, Profile) else os.fspath(filename)
    database = load(filename)
    gf, inclusive, exclusive, devices = get_raw_metrics(database)
    if not inclusive and not exclusive:
        raise EmptyProfile(f"{where} has no metrics", hint="was anything launched or any metric given?")
    sum_inclusive(gf)
    return gf, inclusive, exclusive, devices


def load(source: Source) -> Literal:
    """The checked literal of a path, of the text of a ``.hatchet`` file, or of a Profile."""
    if isinstance(source, Profile):
        return check_literal(source.to_literal(), "the profile")
    if isinstance(source, str) and source.lstrip().startswith("["):
        return decode(source.encode(), "the text")
    return read_literal(source)


def remove_frames(database: Literal) -> Literal:
    """Drop what nobody wants to see: launch metadata frames, and frames with neither metrics nor children.

    A frame whose children all vanish goes with them unless it has metrics of its own. ROOT stays.
    """
    root = _pruned(database[0])
    return [root, *database[1:]]


def _pruned(root: dict[str, object]) -> dict[str, object]:
    copies: list[tuple[dict[str, object], list[dict[str, object]]]] = []
    top: list[dict[str, object]] = []
    pending = [(root, top)]
    while pending:
        node, siblings = pending.pop()
        children: list[dict[str, object]] = []
        copy = {**node, "children": children}
        siblings.append(copy)
        copies.append((copy, siblings))
        visible = [child for child in _children(node) if not _is_metadata(child)]
        pending.extend((child, children) for child in reversed(visible))
    for copy, siblings in reversed(copies):
        if copy is not top[0] and not copy["metrics"] and not copy["children"]:
            siblings.remove(copy)
    return top[0]


def _children(node: dict[str, object]) -> Literal:
    return cast(Literal, node.get("children") or [])


def _name(node: dict[str, object]) -> str:
    return cast(dict[str, str], node["frame"])["name"]


def _is_metadata(node: dict[str, object]) -> bool:
    name = _name(node)
    return name == METADATA_SCOPE or name.startswith(METADATA_SCOPE + ":")


def get_raw_metrics(database: Literal) -> tuple[ht.GraphFrame, list[str], list[str], DeviceInfo]:
    """Build a frame from a checked literal; metrics are as in the file, nothing is summed yet.

    A metric is inclusive when ROOT has it.

    Raises MissingExtra where hatchet or what it is made of is not installed; MalformedProfile, EmptyProfile.
    """
    require_extras("viewer", by="the profile viewer")
    database = remove_frames(database)
    devices = cast(DeviceInfo, database[1]) if len(database) > 1 else {}
    depth = _check_frames(database[0])
    import hatchet as ht

    with recursion_for(depth):
        gf = ht.GraphFrame.from_literal(database[:1])
    if not len(gf.dataframe.columns) or "name" not in gf.dataframe.columns:
        raise EmptyProfile("the profile has no frames")
    inclusive = [name for name in gf.show_metric_columns() if is_number_column(gf, name)]
    gf.exc_metrics = list(inclusive)
    gf.inc_metrics = []
    exclusive = [name for name in gf.dataframe.columns if name not in inclusive and name != "name"]
    return gf, inclusive, exclusive, devices


def _check_frames(root: dict[str, object]) -> int:
    """Refuse what hatchet cannot hold, and make numbers beyond 64 bits floats; returns the depth of the tree."""
    deepest = 0
    pending = [(root, 1)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        _check_description(node)
        metrics = cast(dict[str, object], node["metrics"])
        clash = _TAKEN_COLUMNS & metrics.keys()
        if clash:
            raise MalformedProfile(
                f"frame {_name(node)!r} has a metric called {sorted(clash)[0]!r}, a name the viewer uses itself",
                hint="rename the metric",
            )
        node["metrics"] = {name: _shown(node, name, value) for name, value in metrics.items()}
        pending.extend((child, depth + 1) for child in _children(node))
    return deepest


def _check_description(node: dict[str, object]) -> None:
    frame = cast(dict[str, object], node["frame"])
    if not frame["name"]:
        raise MalformedProfile("a frame has an empty name", hint="give every scope a name")
    for key, value in frame.items():
        if not isinstance(value, str | int | float | None):
            raise MalformedProfile(
                f"frame {_name(node)!r} has the {key} {value!r}, which is no text", hint='write "type": "function"'
            )


def _shown(node: dict[str, object], name: str, value: object) -> object:
    """A column takes integers of 64 bits; a larger one is shown as the nearest float."""
    if not isinstance(value, int) or -_WHOLE <= value < _WHOLE:
        return value
    try:
        return float(value)
    except OverflowError:
        raise MalformedProfile(
            f"metric {name!r} of frame {_name(node)!r} is a number of more than 308 digits",
            hint="metrics are numbers up to 1.8e308",
        ) from None


@contextmanager
def recursion_for(depth: int) -> Iterator[None]:
    """hatchet walks trees recursively; allow it to go this deep."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 1000 + 10 * depth))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


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
    if include:
        gf = _keep(gf, _matching_paths(gf, _pattern(include)), f"no frame matches --include {include!r}")
        sum_inclusive(gf)
    if exclude:
        kept = _unmatched(gf, _pattern(exclude))
        gf = _keep(gf, kept, f"every frame matches --exclude {exclude!r}")
        sum_inclusive(gf)
    if threshold is not None and metric is not None:
        kept = _at_least(gf, metric, threshold)
        gf = _keep(gf, kept, f"no frame has {metric} of {threshold:g} or more")
    return gf


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(
            f"{text!r} is not a regular expression: {error}",
            hint="matching starts at the beginning of a name: use '.*word' to find a word anywhere",
        ) from error


def _walk(gf: ht.GraphFrame) -> list[ht.node.Node]:
    """All nodes, parents before children."""
    order: list[ht.node.Node] = []
    pending = list(reversed(gf.graph.roots))
    while pending:
        node = pending.pop()
        order.append(node)
        pending.extend(reversed(node.children))
    return order


def _names(gf: ht.GraphFrame) -> dict[int, str]:
    names = gf.dataframe["name"].tolist()
    return {id(node): name for node, name in zip(gf.dataframe.index, names, strict=True)}


def _matching_paths(gf: ht.GraphFrame, pattern: re.Pattern[str]) -> set[int]:
    names, order = _names(gf), _walk(gf)
    hit = {id(node) for node in order if pattern.match(names[id(node)])}
    below = set(hit)
    for node in order:
        if id(node) in below:
            below.update(id(child) for child in node.children)
    return below | _ancestors(order, hit)


def _ancestors(order: list[ht.node.Node], wanted: set[int]) -> set[int]:
    kept = set(wanted)
    for node in reversed(order):
        if any(id(child) in kept for child in node.children):
            kept.add(id(node))
    return kept


def _unmatched(gf: ht.GraphFrame, pattern: re.Pattern[str]) -> set[int]:
    names, order = _names(gf), _walk(gf)
    dropped = {id(node) for node in order if pattern.match(names[id(node)])}
    for node in order:
        if id(node) in dropped:
            dropped.update(id(child) for child in node.children)
    return {id(node) for node in order} - dropped


def _at_least(gf: ht.GraphFrame, metric: str, threshold: float) -> set[int]:
    values = gf.dataframe[metric].tolist()
    wanted = {id(node) for node, value in zip(gf.dataframe.index, values, strict=True) if value >= threshold}
    return _ancestors(_walk(gf), wanted)


def _keep(gf: ht.GraphFrame, kept: set[int], otherwise: str) -> ht.GraphFrame:
    """A frame with the kept nodes only; every kept node's parent is kept too."""
    if not kept:
        raise EmptyProfile(otherwise, hint="nothing is left to show: loosen the filter")
    from hatchet import GraphFrame
    from hatchet.graph import Graph
    from hatchet.node import Node

    order = [node for node in _walk(gf) if id(node) in kept]
    copies: dict[int, Node] = {}
    for node in order:
        parent = copies.get(id(node.parents[0])) if node.parents else None
        copy = copies[id(node)] = Node(node.frame, parent)
        if parent is not None:
            parent.add_child(copy)
    graph = Graph([copies[id(root)] for root in gf.graph.roots if id(root) in kept])
    with recursion_for(len(order)):
        graph.enumerate_traverse()
    frame = gf.dataframe.loc[[id(node) in kept for node in gf.dataframe.index]].copy()
    frame.index = frame.index.map(lambda node: copies[id(node)]).rename("node")
    return GraphFrame(graph, frame.sort_index(), list(gf.exc_metrics), list(gf.inc_metrics))


def format_frames(gf: ht.GraphFrame, format: str | None) -> ht.GraphFrame:
    """Shorten the names of Python frames: "file_function_line", "function_line" or "file_function"; others stay."""
    shorten = _FORMATS.get(format or "full")
    if shorten is None:
        raise UsageError(f"unknown format {format!r}", hint=f"one of {', '.join(FORMATS)}")
    if format not in (None, "full"):
        names = [shorten(name) if _PYTHON_FRAME.match(name) else name for name in gf.dataframe["name"]]
        gf.dataframe["name"] = names
    return gf


def _file_function_line(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _function_line(name: str) -> str:
    return name.rsplit(":", 1)[-1]


def _file_function(name: str) -> str:
    file = _file_function_line(name).split(":")[0]
    last = name.rsplit("@", 1)[-1]
    function = name.rsplit(":", 1)[-1].split("@")[0] if last.isdigit() else last.split(":")[0]
    return f"{file}@{function}"


_FORMATS: dict[str, Callable[[str], str]] = {
    "full": str,
    "file_function_line": _file_function_line,
    "function_line": _function_line,
    "file_function": _file_function,
}
FORMATS = tuple(_FORMATS)
