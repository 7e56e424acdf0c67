"""Calls inside kernels: functions of the language, jit functions, and Python's few known builtins."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..errors import TypeMismatch, UnsupportedSyntax
from ..ir.types import Pointer, Scalar, Tile
from ..language import arithmetic, control, debugging, maths
from ..language.builtin import builtin, is_builtin
from ..language.constexpr import constexpr
from ..language.context import current
from ..language.inline import Inlinable
from ..language.tensor import Operand, tensor
from .modules import LANGUAGE_TYPES

if TYPE_CHECKING:
    from .frame import Frame


@builtin
def _min(*values: Operand) -> object:
    return _fold(values, lambda a, b: b if b < a else a, maths.minimum)  # type: ignore[operator]


@builtin
def _max(*values: Operand) -> object:
    return _fold(values, lambda a, b: b if b > a else a, maths.maximum)  # type: ignore[operator]


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
            result = static(result, value)  # type: ignore[arg-type]
    return result


@builtin
def _abs(value: Operand) -> object:
    return maths.abs(value) if isinstance(value, tensor) else abs(value)


_FLOAT_WORDS = ("inf", "+inf", "-inf", "nan")


def _converter(python: type[int | float | bool], dtype: str) -> Callable[[Operand], object]:
    def convert(value: Operand) -> object:
        if isinstance(value, tensor):
            return arithmetic.cast(value, dtype)
        if not isinstance(value, int | float) and (python is not float or value not in _FLOAT_WORDS):
            raise TypeMismatch(f"{python.__name__}() of a kernel takes numbers, got {value!r}")
        return python(value)

    return builtin(convert)


@builtin
def _len(value: object) -> int:
    if isinstance(value, tuple | str):
        return len(value)
    if isinstance(value, tensor) and value.shape:
        return value.shape[0]
    raise TypeMismatch(f"{value!r} has no length")


@builtin
def _print(*values: object, **options: object) -> None:
    """print() is tl.device_print with an optional leading text."""
    text = values[0] if values and isinstance(values[0], str) else ""
    rest = values[1:] if text else values
    debugging.device_print(text, *rest)  # type: ignore[arg-type]


@builtin
def _isinstance(value: object, kind: object) -> bool:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if any(k is constexpr for k in kinds) and not isinstance(value, tensor):
        return True
    return any(isinstance(k, type) and isinstance(value, k) for k in kinds)


#: Python's builtins that kernels may use. ``int`` and friends convert tensors as .to() does.
PYTHON_BUILTINS: Mapping[str, object] = {
    "range": control.range,
    "min": _min,
    "max": _max,
    "abs": _abs,
    "int": _converter(int, "i32"),
    "float": _converter(float, "f32"),
    "bool": _converter(bool, "i1"),
    "len": _len,
    "print": _print,
    "isinstance": _isinstance,
}


def call(
    frame: Frame,
    node: ast.Call,
    function: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """The result of a call; raises UnsupportedSyntax for callees that kernels do not have."""
    if isinstance(function, Inlinable):
        return current().call(function, args, kwargs)
    if _may_call(function):
        return _invoke(frame, node, function, args, kwargs)
    raise frame.error(
        node,
        f"{_name(function)} cannot be called from a kernel",
        "kernels call functions of tl and functions decorated with @jit",
    )


def _may_call(function: object) -> bool:
    if is_builtin(function) or function in LANGUAGE_TYPES:
        return function is not tensor
    if isinstance(function, types.MethodType):
        owner = function.__self__
        return isinstance(owner, Scalar | Pointer | Tile) or (
            isinstance(owner, tensor) and is_builtin(function.__func__)
        )
    return False


def _invoke(
    frame: Frame,
    node: ast.Call,
    function: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    try:
        result = function(*args, **kwargs)  # type: ignore[operator]
    except (TypeError, ValueError, ArithmeticError) as error:
        # A wrong call of a builtin shows as Python's own message, which names the function and the argument.
        said = str(error).removeprefix(f"{_name(function)}").removeprefix(": ").strip()
        raise UnsupportedSyntax(f"{_name(function)}: {said}", hint=_usage(function)) from error
    return result.value if isinstance(result, constexpr) else result


def _usage(function: object) -> str | None:
    """The call as it is declared."""
    try:
        names = inspect.signature(function).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return f"its parameters: {', '.join(names)}"


def _name(function: object) -> str:
    name = getattr(function, "__name__", None)
    return f"{name}()" if isinstance(name, str) else repr(function)
