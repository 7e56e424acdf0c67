"""NamedTuples: tuples whose elements have names, too.

A class of the program is taken for its fields and their defaults; nothing else of it is used or called.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeGuard

from ..errors import UnsupportedSyntax
from .constexpr import unwrap


def is_named_tuple(kind: object) -> TypeGuard[type[tuple[Any, ...]]]:
    """Whether ``kind`` is a class made by NamedTuple or namedtuple."""
    return isinstance(kind, type) and issubclass(kind, tuple) and isinstance(kind.__dict__.get("_fields"), tuple)


def field_names(value: object) -> tuple[str, ...]:
    """The names of a tuple's elements, or of those of a class of tuples; empty for what has none."""
    kind = value if isinstance(value, type) else type(value)
    return kind.__dict__["_fields"] if is_named_tuple(kind) else ()


def with_items(like: tuple[object, ...], items: Sequence[object]) -> tuple[object, ...]:
    """A tuple of other ``items`` with the names that ``like`` has."""
    return tuple.__new__(type(like), items) if field_names(like) else tuple(items)


@lru_cache
def named(fields: tuple[str, ...]) -> type[tuple[Any, ...]]:
    """A class of tuples with these names, for tuples that come from elsewhere."""
    made: type[tuple[Any, ...]] = namedtuple("NamedTuple", fields)  # type: ignore[misc] # noqa: PYI024
    return made


def make(kind: type[tuple[Any, ...]], args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[object, ...]:
    """``kind(*args, **kwargs)``; raises UnsupportedSyntax as Python would raise TypeError."""
    fields = field_names(kind)
    given = dict(zip(fields, args, strict=False))
    doubled, unknown = kwargs.keys() & given.keys(), kwargs.keys() - set(fields)
    values = {**{name: unwrap(v) for name, v in kind.__dict__.get("_field_defaults", {}).items()}, **given, **kwargs}
    missing = [name for name in fields if name not in values]
    if len(args) > len(fields) or doubled or unknown or missing:
        raise UnsupportedSyntax(
            f"{kind.__name__} does not take these {len(args) + len(kwargs)} values",
            hint=f"its fields: {', '.join(fields) or 'none'}",
        )
    made: tuple[object, ...] = tuple.__new__(kind, [values[name] for name in fields])
    return made


def as_tuples(value: object) -> object:
    """A value in which lists, which kernels have as tuples, are tuples."""
    if isinstance(value, list):
        return tuple(map(as_tuples, value))
    return with_items(value, list(map(as_tuples, value))) if isinstance(value, tuple) else value
