"""What every format is given, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...errors import MetricError
from ..columns import Column
from ..frames import Number, Numbers
from ..show import joined
from ..view import View

TOP = 30  # rows of a table


@dataclass(frozen=True)
class Export:
    """A profile (or this one and the one it is compared with) to be written.

    ``sides`` have the frames to write and no others: what deeper or hidden frames have of a metric that adds up counts
    as their nearest visible ancestor's own. ``titles`` name the sides, ``top`` is the number of rows (0: all).
    """

    sides: Sequence[View]
    titles: Sequence[str]
    top: int = TOP

    @cached_property
    def view(self) -> View:
        """The one side, or the difference of the two."""
        return joined(self.sides)

    @property
    def title(self) -> str:
        """What is shown, as one line."""
        return " minus ".join(self.titles)


def must_add_up(column: Column, use: str) -> tuple[Numbers, Numbers]:
    """The own and total values of a column; raises MetricError, naming the ``use``, if they do not add up."""
    if column.own is None or column.total is None:
        raise MetricError(
            f"metric {column.label!r} does not add up over frames, and {use}",
            hint="time, count, bytes and flops do, and metrics that ROOT has, but not rates, averages, shares of peak",
        )
    return column.own, column.total


def finite(column: Column, numbers: Numbers) -> Numbers:
    """The numbers with 0 for frames without a value; raises MetricError for infinities and negative ones."""
    for number in numbers:
        if number < 0 or math.isinf(number):
            raise MetricError(
                f"metric {column.label!r} has the value {number:g}, which has no width in a picture",
                hint="--format tree and table show such values",
            )
    return [number if number == number else 0 for number in numbers]


def plain(value: Number) -> Number | None:
    """A number as JSON and CSV have it: None for what is neither a number nor finite."""
    return value if math.isfinite(value) else None
