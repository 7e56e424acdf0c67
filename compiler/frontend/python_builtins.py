"""The few builtins of Python that kernels may use, with the meaning that they have there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType

from ..errors import TypeMismatch, UnknownName
from ..language import arithmetic, control, debugging, maths
from ..language.builtin import builtin
from ..language.constexpr import constexpr
from ..language.dictionaries import mapping
from ..language.extent import gathered
from ..language.tensor import Operand, tensor
from ..printable import shown
from .attributes import read_attribute


@builtin
def _min(*values: Operand) -> object:
    return _fold(values, lambda a, b: b if b < a else a, maths.minimum)


@builtin
def _max(*values: Operand) -> object:
    return _fold(values, lambda a, b: b if b > a else a, maths.maximum)


def _fold(
    values: tuple[Operand, ...],
    static: Callable[[Operand, Operand], object],
    dynamic: Callable[[Operand, Operand], tensor],
) -> object:
    if len(values) < 2:
        raise TypeMismatch("min and max of a kernel take two or more values")
    result: object = values[0]
    for value in values[1:]:
        if isinstance(result, tensor) or isinstance(value, tensor):
            result = dynamic(result, value)  # type: ignore[arg-type]
        else:
            _check_order(result, value)
            result = static(result, value)  # type: ignore[arg-type]
    return result


def _check_order(*values: object) -> None:
    """Refuse numbers of which Python's min and max and those of tensors give different results."""
    for value in values:
        if isinstance(value, float) and (math.isnan(value) or (value == 0 and math.copysign(1.0, value) < 0)):
            raise TypeMismatch(
                f"min and max of numbers known at compile time do not take {value}",
                hint="tl.minimum and tl.maximum say what they make of NaN",
            )


@builtin
def _abs(value: Operand) -> object:
    return maths.abs(value) if isinstance(value, tensor) else abs(value)


def _converter(python: type[int | float | bool], dtype: str) -> Callable[[Operand | str], object]:
    def convert(value: Operand | str) -> object:
        if isinstance(value, tensor):
            return arithmetic.cast(value, dtype)
        try:
            if isinstance(value, int | float) or (python is float and isinstance(value, str)):
                return python(value)
        except (ValueError, OverflowError) as error:
            raise TypeMismatch(f"{python.__name__}() of a kernel: {error}") from error
        raise TypeMismatch(f"{python.__name__}() of a kernel takes numbers, got {shown(value)}")

    return builtin(convert)


@builtin
def _len(value: object) -> int:
    if isinstance(value, tuple | str | mapping):
        return len(value)
    if isinstance(value, tensor) and value.shape:
        return value.shape[0]
    raise TypeMismatch(f"{shown(value)} has no length")


@builtin
def _bin(value: object) -> str:
    if isinstance(value, int):
        return bin(value)
    raise TypeMismatch(f"bin() of a kernel takes an integer that is known at compile time, got {shown(value)}")


@builtin
def _tuple(values: object = ()) -> object:
    items = known_items(values)
    if items is None:
        raise TypeMismatch(
            f"tuple() and list() of a kernel do not take {shown(values)}",
            hint="they take tuples, lists, tl.static_range, or a range whose bounds are known while compiling",
        )
    return gathered(items)


def known_items(values: object) -> Sequence[object] | None:
    """The elements of a tuple, a static_range or a range between known bounds; None for everything else."""
    if isinstance(values, tuple):
        return values
    if isinstance(values, control.range) and all(type(bound) is int for bound in values.bounds) and values.bounds[2]:
        return range(*values.bounds)  # type: ignore[arg-type]
    if isinstance(values, control.static_range) and values.step != 0:
        bounds = (values.arg1, values.arg2, values.step)
        return values.values() if all(bound is None or type(bound) is int for bound in bounds) else None
    return None


@builtin
def _print(*values: object, **options: object) -> None:
    """print() is tl.device_print with an optional leading text."""
    has_text = bool(values) and isinstance(values[0], str)
    text, rest = (values[0], values[1:]) if has_text else ("", values)
    debugging.device_print(text, *rest)  # type: ignore[arg-type]


@builtin
def _isinstance(value: object, kind: object) -> bool:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if any(k is constexpr for k in kinds) and not isinstance(value, tensor):
        return True
    kinds = tuple(_CLASSES.get(k, k) for k in kinds)
    return any(isinstance(k, type) and isinstance(value, k) for k in kinds)


#: What getattr was given for an attribute that does not exist.
_NOTHING = object()


@builtin
def _getattr(value: object, name: str, default: object = _NOTHING) -> object:
    try:
        return read_attribute(value, _attribute_name(name))
    except UnknownName:
        if default is _NOTHING:
            raise
        return default


@builtin
def _hasattr(value: object, name: str) -> bool:
    try:
        read_attribute(value, _attribute_name(name))
    except UnknownName:
        return False
    return True


def _attribute_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeMismatch(f"the name of an attribute is text known at compile time, got {name!r}")
    return name


_int, _float, _bool = _converter(int, "i32"), _converter(float, "f32"), _converter(bool, "i1")
#: The classes that the names of converters are where ``isinstance`` asks for them.
_CLASSES: Mapping[object, object] = {_int: int, _float: float, _bool: bool, _tuple: tuple}

#: Python's builtins that kernels may use. ``int`` and friends convert tensors as .to() does.
PYTHON_BUILTINS: Mapping[str, object] = {
    "range": control.range,
    "min": _min,
    "max": _max,
    "abs": _abs,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "len": _len,
    "bin": _bin,
    "tuple": _tuple,
    "list": _tuple,
    "print": _print,
    "isinstance": _isinstance,
    "getattr": _getattr,
    "hasattr": _hasattr,
}

for _name, _function in PYTHON_BUILTINS.items():
    if isinstance(_function, FunctionType):
        _function.__name__ = _name  # as messages call it
