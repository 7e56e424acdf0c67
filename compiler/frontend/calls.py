"""Calls inside kernels: functions of the language, jit functions, and Python's few known builtins."""

from __future__ import annotations

import ast
import inspect
import types

from ..errors import UnsupportedSyntax
from ..ir.types import Pointer, Scalar, Tile
from ..language.aggregate import AggregateType, construct
from ..language.builtin import is_builtin
from ..language.constexpr import constexpr
from ..language.context import current
from ..language.declared import BoundMethod
from ..language.descriptors import tensor_descriptor
from ..language.inline import Inlinable
from ..language.named import is_named_tuple, make
from ..language.structure import Structure
from ..language.tensor import tensor
from ..printable import shown
from ..source.modules import LANGUAGE_TYPES
from .frame import Frame
from .python_calls import evaluated, is_programs


def call(
    frame: Frame,
    node: ast.Call,
    function: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """The result of a call; raises UnsupportedSyntax for callees that kernels do not have."""
    if is_named_tuple(function):
        return make(function, args, kwargs)
    if isinstance(function, AggregateType):
        try:
            return construct(function, args, kwargs)
        except TypeError as error:
            raise UnsupportedSyntax(str(error)) from error
    if isinstance(function, BoundMethod):
        return function(*args, **kwargs)
    if isinstance(function, Inlinable):
        return current().call(function, args, kwargs)
    if isinstance(function, types.MethodType) and is_programs(frame.source, function.__self__):
        return evaluated(function, args, kwargs)
    if _may_call(function):
        return _invoke(frame, node, function, args, kwargs)
    raise frame.error(
        node,
        f"{_name(function)} cannot be called from a kernel",
        "kernels call functions of tl and functions decorated with @jit",
    )


def _may_call(function: object) -> bool:
    if is_builtin(function) or function in LANGUAGE_TYPES:
        return function not in (tensor, tensor_descriptor)
    if isinstance(function, types.MethodType):
        owner = function.__self__
        return isinstance(owner, Scalar | Pointer | Tile) or (
            isinstance(owner, tensor | Structure) and is_builtin(function.__func__)
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
    return f"{name}()" if isinstance(name, str) else shown(function)
