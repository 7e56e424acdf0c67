"""How large a value may grow while a kernel is compiled: its text may come from anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ..errors import UnsupportedSyntax
from .structure import Structure

T = TypeVar("T")

#: Longest string, and most elements of a tuple or structure and of all inside it, that a compilation may make.
MAX_LENGTH = 10_000
#: Most tuples and structures inside each other. What walks through values calls itself a few times a level.
MAX_LEVELS = 50

#: Most of what long tuples hold.
_PLAIN = frozenset({bool, float, int, type(None)})


def bounded(value: T) -> T:
    """``value``, unless it is past MAX_LENGTH or MAX_LEVELS. What is in it at several places counts at each, since what
    walks through it comes there as often: a tuple of itself twice, and that twice, grows exponentially.

    Raises:
        UnsupportedSyntax: it is longer, or deeper.
    """
    _extent(value)
    return value


def gathered(items: Iterable[T]) -> tuple[T, ...]:
    """The items as a tuple within the bounds; of more than it may have no more are made.

    Raises:
        UnsupportedSyntax: they are longer together, or deeper.
    """
    taken: list[T] = []
    length = 0
    for item in items:
        length += 1 + _extent(item)
        _check(length)
        taken.append(item)
    return bounded(tuple(taken))


def _extent(value: object) -> int:
    """The number of all elements, of which no more are looked at than there may be."""
    level, length = [value], 0
    for _ in range(MAX_LEVELS):
        inner = [contents for item in level if (contents := _contents(item)) is not None]
        length += sum(map(len, inner))
        _check(length)
        inner = [contents for contents in inner if not isinstance(contents, str)]
        level = [item for contents in inner for item in contents if type(item) not in _PLAIN]
        if not level:
            return length
    raise UnsupportedSyntax(f"values inside each other, more than {MAX_LEVELS} levels deep")


def _check(length: int) -> None:
    if length > MAX_LENGTH:
        raise UnsupportedSyntax(f"longer than {MAX_LENGTH} elements")


def _contents(value: object) -> str | tuple[object, ...] | None:
    if isinstance(value, str | tuple):
        return value
    return value.contents if isinstance(value, Structure) else None
