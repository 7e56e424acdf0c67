"""From a file to text: the tree, and the list of metrics."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .console import tree_text
from .derive import base_name
from .diff import subtract
from .frames import Source, load, tree_of
from .view import DEFAULT_DEPTH, Choice, View, view_of


def show(source: Source, choice: Choice) -> View:
    """What is asked for of a profile, or of its difference to another, with all levels.

    Raises ProfileFileError, MalformedProfile, EmptyProfile, MetricNotFound, MetricError, UsageError.
    """
    view = view_of(source, choice)
    return view if choice.diff_profile is None else subtract(view, view_of(choice.diff_profile, choice))


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
    choice = Choice(metrics, include, exclude, threshold, depth, format, diff_profile)
    return tree_text(show(path_or_text, choice), depth, print_sorted, color=color)


def wants_color() -> bool:
    """Is the standard output a terminal that should get colours (NO_COLOR is respected)?"""
    if not sys.stdout.isatty():
        return False
    from rich.console import Console  # lazy: only a terminal is asked

    return not Console().no_color


def list_metrics(file_name: Source) -> tuple[list[str], list[str]]:
    """Names, without units, of the inclusive and of the exclusive metrics of a file that hold numbers."""
    tree = tree_of(load(file_name))
    numbers = [metric for metric in tree.exclusive if tree.is_number(metric)]
    return [base_name(metric) for metric in tree.inclusive], [base_name(metric) for metric in numbers]


def show_metrics(file_name: Source) -> None:
    """Print the metrics of a file."""
    inclusive, exclusive = list_metrics(file_name)
    print("Available inclusive metrics:")
    for metric in inclusive:
        print(f"- {metric}")
    print("Available exclusive metrics:")
    for metric in exclusive:
        print(f"- {metric}")
