"""From a file to text: the tree, the flat list, the list of metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .columns import is_number_column
from .derive import base_name
from .diff import apply_diff_profile
from .frames import Source, format_frames, get_raw_metrics, load, recursion_for
from .parse import parse

if TYPE_CHECKING:
    import hatchet as ht

DEFAULT_DEPTH = 100


def render(
    path_or_text: Source,
    metrics: Sequence[str],
    *,
    color: bool = False,
    include: str | None = None,
    exclude: str | None = None,
    threshold: float | None = None,
    depth: int = DEFAULT_DEPTH,
    format: str | None = None,
    print_sorted: bool = False,
    diff_profile: Source | None = None,
) -> str:
    """What ``proton-viewer`` prints for a path, the text of a ``.hatchet`` file, or a Profile."""
    gf, columns = parse(metrics, path_or_text, include, exclude, threshold)
    if diff_profile is not None:
        gf = apply_diff_profile(gf, columns, diff_profile, metrics, include, exclude, threshold)
    return tree_text(gf, columns, depth, format, print_sorted, color=color)


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
    print(tree_text(gf, metrics, depth, format, print_sorted, color=chosen), end="")


def wants_color() -> bool:
    """Is the standard output a terminal that should get colours (NO_COLOR is respected)?"""
    import sys

    if not sys.stdout.isatty():
        return False
    from rich.console import Console

    return not Console().no_color


def tree_text(
    gf: ht.GraphFrame,
    metrics: Sequence[str],
    depth: int = DEFAULT_DEPTH,
    format: str | None = None,
    print_sorted: bool = False,
    *,
    color: bool = False,
) -> str:
    """The text that :func:`print_tree` prints."""
    gf = format_frames(gf, format)
    parts = [_render(gf, list(metrics), depth, color), "\n"]
    if print_sorted:
        parts += _sorted_lines(gf, metrics[0])
    if "bytes (inc)" in metrics and gf.dataframe["bytes (inc)"].min() < 0:
        parts.append("Warning: Negative byte values detected, this is usually the result of a datatype overflow\n\n")
    return "".join(parts)


class _SeenNodes:
    """What hatchet's renderer keeps in a list and searches for every node, as a set."""

    def __init__(self) -> None:
        self._ids: set[int] = set()

    def append(self, node: object) -> None:
        self._ids.add(id(node))

    def __contains__(self, node: object) -> bool:
        return id(node) in self._ids


def _render(gf: ht.GraphFrame, columns: list[str], depth: int, color: bool) -> str:
    from hatchet.external.console import ConsoleRenderer

    renderer = ConsoleRenderer(unicode=True, color=color)
    renderer.visited = _SeenNodes()
    with recursion_for(depth):
        text = renderer.render(
            gf.graph.roots,
            gf.dataframe,
            render_header=False,
            metric_column=columns,
            annotation_column=None,
            precision=3,
            name_column="name",
            expand_name=True,
            context_column="file",
            rank=0,
            thread=0,
            depth=depth,
            highlight_name=False,
            colormap="RdYlGn",
            invert_colormap=False,
            colormap_annotations=None,
            min_value=None,
            max_value=None,
        )
    return str(text)


def _sorted_lines(gf: ht.GraphFrame, metric: str) -> list[str]:
    """All frames but the roots by one metric, largest first, those without a value last."""
    # Sorted before the roots are dropped, and with pandas' default algorithm: ties then come in Proton's order.
    rows = gf.dataframe.sort_values(by=metric, ascending=False)
    roots = {id(root) for root in gf.graph.roots}
    rows = rows[[id(node) not in roots for node in rows.index]]
    lines = [f"Sorted kernels by metric {metric}\n"]
    for name, value in zip(rows["name"].tolist(), rows[metric].tolist(), strict=True):
        short = name[:100] + "..." if len(name) > 100 else name
        lines.append(f"{short:105} {float(value):.4}\n")
    return lines


def list_metrics(file_name: Source) -> tuple[list[str], list[str]]:
    """Names, without units, of the inclusive and of the exclusive metrics of a file that hold numbers."""
    gf, inclusive, exclusive, _ = get_raw_metrics(load(file_name))
    numbers = [metric for metric in exclusive if is_number_column(gf, metric)]
    return [base_name(metric) for metric in inclusive], [base_name(metric) for metric in numbers]


def show_metrics(file_name: Source) -> None:
    """Print the metrics of a file."""
    inclusive, exclusive = list_metrics(file_name)
    print("Available inclusive metrics:")
    for metric in inclusive:
        print(f"- {metric}")
    print("Available exclusive metrics:")
    for metric in exclusive:
        print(f"- {metric}")
