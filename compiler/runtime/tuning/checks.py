"""What users give ``@autotune``, ``@heuristics`` and ``do_bench``, looked at where it comes in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ...errors import ArgumentMismatch

T = TypeVar("T")


def list_of(kind: type[T], given: object, what: str, hint: str) -> list[T]:
    """``given``, which messages call ``what``, as a list of ``kind``.

    Raises:
        ArgumentMismatch: it is something else.
    """
    if not isinstance(given, Iterable):
        raise ArgumentMismatch(f"{what} is {given!r}", hint=hint)
    made = list(given)
    for part in made:
        if not isinstance(part, kind):
            raise ArgumentMismatch(f"{what} has {part!r}", hint=hint)
    return made


def by_name(given: object, what: str, hint: str, functions: bool = False) -> dict[str, Any]:
    """``given``, which messages call ``what``, as a dictionary by name; of ``functions`` if so.

    Raises:
        ArgumentMismatch: it is something else.
    """
    if not isinstance(given, Mapping):
        raise ArgumentMismatch(f"{what} is {given!r}", hint=hint)
    for name, value in given.items():
        if not isinstance(name, str):
            raise ArgumentMismatch(f"{what} has {name!r}", hint=hint)
        if functions and not callable(value):
            raise ArgumentMismatch(f"{what} has {value!r} for {name!r}", hint=hint)
    return dict(given)


def number(given: Any, what: str, hint: str) -> float:
    """``given``, which messages call ``what``, as a float. Raises ArgumentMismatch if it is no number."""
    try:
        if not isinstance(given, str):
            return float(given)
    except (TypeError, ValueError):
        pass
    raise ArgumentMismatch(f"{what} is {given!r}", hint=hint)


def milliseconds(given: object, what: str) -> float:
    """A time, which messages call ``what``. Raises ArgumentMismatch if it is no number, or NaN."""
    hint = "it is a number of milliseconds"
    made = number(given, what, hint)
    if math.isnan(made):
        raise ArgumentMismatch(f"{what} is {given!r}", hint=hint)
    return made
