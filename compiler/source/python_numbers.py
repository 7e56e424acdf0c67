"""Python's functions of numbers, of what is known at compile time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ..errors import NotComputable, TypeMismatch
from ..printable import shown


def least(*values: object) -> object:
    """Python's ``min`` of two or more numbers; raises TypeMismatch for others."""
    return _extreme(values, lambda a, b: b if b < a else a)


def greatest(*values: object) -> object:
    """Python's ``max`` of two or more numbers; raises TypeMismatch for others."""
    return _extreme(values, lambda a, b: b if b > a else a)


def magnitude(value: object) -> object:
    """Python's ``abs``; raises NotComputable."""
    try:
        return abs(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise NotComputable(f"{shown(value)} at compile time: {error}") from None


def converter(python: type[int | float | bool]) -> Callable[[object], object]:
    """Python's ``int``, ``float`` or ``bool`` of a number; ``float`` takes text, too. It raises TypeMismatch."""

    def convert(value: object) -> object:
        try:
            if isinstance(value, int | float) or (python is float and isinstance(value, str)):
                return python(value)
        except (ValueError, OverflowError) as error:
            raise TypeMismatch(f"{python.__name__}() of a kernel: {error}") from error
        raise TypeMismatch(f"{python.__name__}() of a kernel takes numbers, got {shown(value)}")

    return convert


def _extreme(values: tuple[object, ...], choose: Callable[..., object]) -> object:
    if len(values) < 2:
        raise TypeMismatch("min and max of a kernel take two or more values")
    result = values[0]
    for value in values[1:]:
        _check_order(result, value)
        try:
            result = choose(result, value)
        except TypeError as error:
            raise NotComputable(f"{shown(result)} and {shown(value)} at compile time: {error}") from None
    return result


def _check_order(*values: object) -> None:
    """Refuse numbers of which Python's min and max and those of tensors give different results."""
    for value in values:
        if isinstance(value, float) and (math.isnan(value) or (value == 0 and math.copysign(1.0, value) < 0)):
            raise TypeMismatch(
                f"min and max of numbers known at compile time do not take {value}",
                hint="tl.minimum and tl.maximum say what they make of NaN",
            )


#: By the names that they have in Python.
FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "min": least,
    "max": greatest,
    "abs": magnitude,
    "int": converter(int),
    "float": converter(float),
    "bool": converter(bool),
}
