"""How large a value may grow while a kernel is compiled: its text may come from anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar, cast

from ..errors import UnsupportedSyntax
from .structure import Structure

T = TypeVar("T")

#: Longest string, and most elements of a tuple or structure and of all inside it, that a compilation may make.
MAX_LENGTH = 10_000
#: Most tuples and structures inside each other. What walks through values calls itself a few times a level.
MAX_LEVELS = 50


def bounded(value: T) -> T:
    """``value``, unless it is past MAX_LENGTH or MAX_LEVELS. What is in it at several places counts at each, since what
    walks through it comes there as often: a tuple of itself twice, and that twice, grows exponentially.

    Raises:
        UnsupportedSyntax: it is longer, or deeper.
    """
    extent(value)
    return value


def gathered(items: Iterable[T]) -> tuple[T, ...]:
    """The items as a tuple within the bounds; of more than it may have no more are made.

    Raises:
        UnsupportedSyntax: they are longer together, or deeper.
    """
    taken: list[T] = []
    length = 0
    for item in items:
        length += 1 + extent(item)
        _check(length)
        taken.append(item)
    return bounded(tuple(taken))


def extent(value: object) -> int:
    """The number of all elements in ``value``, of which no more are looked at than there may be; 0 for a number.

    Raises:
        UnsupportedSyntax: as :func:`bounded`.
    """
    level, length = [value], 0
    for _ in range(MAX_LEVELS):
        # Kinds first: most long tuples hold numbers alone, and a kernel may add to one thousands of times.
        kinds = {kind for kind in set(map(type, level)) if issubclass(kind, str | tuple | Structure)}
        if not kinds:
            return length
        inner = [_contents(item) for item in level if type(item) in kinds]
        length += sum(map(len, inner))
        _check(length)
        level = [item for contents in inner if not isinstance(contents, str) for item in contents]
    raise UnsupportedSyntax(f"values inside each other, more than {MAX_LEVELS} levels deep")


def _check(length: int) -> None:
    if length > MAX_LENGTH:
        raise UnsupportedSyntax(f"longer than {MAX_LENGTH} elements")


def _contents(value: object) -> str | tuple[object, ...]:
    return value.contents if isinstance(value, Structure) else cast(str | tuple[object, ...], value)
