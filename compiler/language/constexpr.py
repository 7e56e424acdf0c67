"""Compile-time values."""

from __future__ import annotations

import operator


class constexpr:  # noqa: N801 -- the language's own name
    """Marks a value (or, as an annotation, a parameter) as known at compile time.

    Inside kernels compile-time values are plain Python values; this wrapper exists for globals,
    ``BLOCK = tl.constexpr(128)``, and for annotations, ``BLOCK: tl.constexpr``.
    """

    __slots__ = ("value",)

    value: object

    def __init__(self, value: object) -> None:
        self.value = unwrap(value)

    def __repr__(self) -> str:
        return f"constexpr({self.value!r})"

    def __eq__(self, other: object) -> bool:
        return self.value == unwrap(other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self.value)


def unwrap(value: object) -> object:
    """The plain value of a constexpr; anything else as it is."""
    if type(value) is constexpr:
        return value.value
    if type(value) is tuple:
        return tuple(unwrap(v) for v in value)
    return value
