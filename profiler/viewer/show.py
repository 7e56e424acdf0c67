"""From a file to text: the tree, and the list of metrics."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from ..errors import UsageError
from .console import tree_text
from .derive import base_name
from .diff import subtract
from .frames import Source, load, tree_of
from .names import printable
from .view import DEFAULT_DEPTH, Choice, View, view_of


def views(source: Source, choice: Choice) -> list[View]:
    """What is asked for of a profile, and of the one it is compared with if there is one, with all levels.

    Raises ProfileFileError, MalformedProfile, EmptyProfile, MetricNotFound, MetricError, UsageError.
    """
    first, other = view_of(source, choice), choice.diff_profile
    if other is None:
        return [first]
    if not choice.metrics:
        # Those of the first file, by name: the second one may have others.
        choice = replace(choice, metrics=[column.label for column in first.columns])
    return [first, view_of(other, choice)]


def joined(sides: Sequence[View]) -> View:
    """The one view there is, or the difference of the two."""
    return sides[0] if len(sides) == 1 else subtract(sides[0], sides[1])


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
    if not metrics:
        raise UsageError("no metric was asked for", hint="-m time/ms,util, for example; -l lists them")
    choice = Choice(metrics, include, exclude, threshold, depth, format, diff_profile)
    return tree_text(joined(views(path_or_text, choice)), depth, print_sorted, color=color)


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
    return [_listed(metric) for metric in tree.inclusive], [_listed(metric) for metric in numbers]


def _listed(metric: str) -> str:
    """A metric's name without unit, as it is where nothing else is left of it."""
    return base_name(metric) or repr(metric)


def show_metrics(file_name: Source) -> None:
    """Print the metrics of a file."""
    inclusive, exclusive = list_metrics(file_name)
    print("Available inclusive metrics:")
    for metric in inclusive:
        print(f"- {printable(metric)}")
    print("Available exclusive metrics:")
    for metric in exclusive:
        print(f"- {printable(metric)}")
