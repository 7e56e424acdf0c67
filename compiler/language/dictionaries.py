"""``{key: value}``: what is looked up by what is known while compiling."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import ClassVar

from ..errors import TypeMismatch, UnknownName
from .builtin import builtin
from .extent import bounded
from .structure import Structure
from .tensor import tensor


class mapping(Structure):  # noqa: N801 -- a value of the language
    """A dictionary; its keys are known while compiling, its values may be tensors. It is its values as a structure is
    its parts: a branch or a loop merges or carries each by itself."""

    __slots__ = ("entries",)
    kind: ClassVar[str] = "a dictionary"
    members: ClassVar[tuple[str, ...]] = ("get", "items", "keys", "values")

    def __init__(self, entries: Mapping[Hashable, object]) -> None:
        self.entries = dict(entries)
        bounded(self)

    def __str__(self) -> str:
        return str(self.entries)

    @property
    def parts(self) -> tuple[object, ...]:
        """The values, in the order of the keys."""
        return tuple(self.entries.values())

    @property
    def contents(self) -> tuple[object, ...]:
        """Keys and values."""
        return *self.entries, *self.entries.values()

    def with_parts(self, parts: tuple[object, ...]) -> mapping:
        """A dictionary of the same keys."""
        return mapping(dict(zip(self.entries, parts, strict=True)))

    @property
    def form(self) -> Hashable:
        """The keys."""
        return tuple(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, key: object) -> bool:
        return known_key(key) in self.entries

    def __getitem__(self, key: object) -> object:
        try:
            return self.entries[known_key(key)]
        except KeyError:
            raise UnknownName(f"the dictionary has no {key!r}; it has: {', '.join(map(repr, self.entries))}") from None

    @builtin
    def get(self, key: object, default: object = None) -> object:
        """The value of a key, or ``default``."""
        return self.entries.get(known_key(key), default)

    @builtin
    def keys(self) -> tuple[object, ...]:
        """The keys, in the order in which they were written."""
        return tuple(self.entries)

    @builtin
    def values(self) -> tuple[object, ...]:
        """The values, in the order of the keys."""
        return self.parts

    @builtin
    def items(self) -> tuple[object, ...]:
        """Pairs of keys and values."""
        return tuple(self.entries.items())


def known_key(key: object) -> Hashable:
    """``key``, unless it is a tensor, which is not known while compiling, or has none: raises TypeMismatch."""
    parts = key if isinstance(key, tuple) else (key,)
    if any(isinstance(part, tensor) for part in parts):
        raise TypeMismatch("a key of a dictionary must be known at compile time, got a tensor")
    try:
        hash(key)
    except TypeError as error:
        raise TypeMismatch(f"a key of a dictionary: {error}") from None
    return key
