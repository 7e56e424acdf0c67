"""The few builtins of Python that kernels may use, with the meaning that they have there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType

from ..errors import TypeMismatch, UnknownName
from ..language import arithmetic, control, debugging, maths
from ..language.builtin import builtin, operator
from ..language.constexpr import constexpr
from ..language.dictionaries import mapping
from ..language.extent import gathered
from ..language.promotion import common_type
from ..language.tensor import Operand, tensor
from ..language.typed import Typed, typed_number
from ..printable import shown
from ..source import python_numbers
from .attributes import read_attribute


@builtin
def _min(*values: Operand) -> object:
    return _fold(values, python_numbers.least, maths.minimum)


@builtin
def _max(*values: Operand) -> object:
    return _fold(values, python_numbers.greatest, maths.maximum)


def _fold(
    values: tuple[Operand, ...],
    static: Callable[..., object],
    dynamic: Callable[[Operand, Operand], tensor],
) -> object:
    if len(values) < 2:
        return static(*values)
    result = values[0]
    for value in values[1:]:
        if isinstance(result, tensor) or isinstance(value, tensor):
            result = dynamic(result, value)
        elif isinstance(result, Typed) or isinstance(value, Typed):
            type = common_type(result, value)
            found = static(result, value)
            result = typed_number(float(found) if type.is_float else found, type)  # type: ignore[arg-type]
        else:
            result = static(result, value)  # type: ignore[assignment]
    return result


@builtin
def _abs(value: Operand) -> object:
    return maths.abs(value) if isinstance(value, tensor) else python_numbers.magnitude(value)


def _converter(python: type[int | float | bool], dtype: str) -> Callable[[Operand | str], object]:
    static = python_numbers.converter(python)

    def convert(value: Operand | str) -> object:
        return arithmetic.cast(value, dtype) if isinstance(value, tensor) else static(value)

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


@operator
def _isinstance(value: object, kind: object) -> bool:
    """A truth value with a name is a scalar, as in Triton, and no bool."""
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
