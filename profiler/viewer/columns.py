"""Columns of what is shown, and arithmetic on them that has an answer for everything: nan for no value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from .frames import NAN, Number, Numbers

_PARENTHESES = re.compile(r"\(([^()]*)\)")


@dataclass(frozen=True)
class Column:
    """One metric of the frames shown.

    ``name`` is Proton's name of the column ("time/ms (inc)"), ``label`` the metric as it was asked for, ``unit`` its
    unit, "" if it has none. ``values`` are what the tree shows: sums over subtrees if ``inclusive``, else the frames'
    own. ``own`` and ``total`` are there for metrics that add up: of the frame itself, and of its subtree. ``raw`` is
    the metric's name in the file, "" if it is computed.
    """

    name: str
    label: str
    unit: str
    values: Numbers
    own: Numbers | None = None
    total: Numbers | None = None
    inclusive: bool = True
    raw: str = ""

    @property
    def adds_up(self) -> bool:
        """Is the metric of a subtree the sum of its frames'?"""
        return self.own is not None

    def each(self, name: str, label: str, unit: str, change: Callable[[Number], Number]) -> Column:
        """The column with ``change``, which must be linear, applied to every number."""

        def changed(numbers: Numbers | None) -> Numbers | None:
            return None if numbers is None else [change(number) for number in numbers]

        values = changed(self.values) or []
        total = values if self.total is self.values else changed(self.total)
        own = changed(self.own)
        return replace(self, name=name, label=label, unit=unit, values=values, own=own, total=total, raw="")


def unit_of(metric: str) -> str:
    """The unit in parentheses behind a metric's name."""
    found = _PARENTHESES.search(metric)
    return found[1].strip() if found and found[1] not in ("inc", "exc", "pty") else ""


def quotient(over: Number, under: Number) -> float:
    """``over / under`` as IEEE 754 has it: dividing by zero gives an infinity or nan."""
    try:
        return over / under
    except ZeroDivisionError:
        return NAN if over == 0 or over != over else math.copysign(math.inf, over)
    except OverflowError:
        return NAN


def quotients(over: Numbers, under: Numbers) -> Numbers:
    """Element by element; nan where either has no value."""
    return [quotient(a, b) for a, b in zip(over, under, strict=True)]


def sum_of(values: Numbers) -> Number:
    """The sum of all that are numbers."""
    return sum(value for value in values if value == value)


def is_set(value: Number) -> bool:
    """Is there a value (and not nan)?"""
    return value == value
