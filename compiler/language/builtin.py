"""How a Python function becomes a function of the kernel language."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from ..errors import TypeMismatch
from ..ir.types import Tile
from ..printable import shown
from ..tile.elementwise import Constant
from .constexpr import constexpr, unwrap
from .context import state, wrapping
from .tensor import emit, tensor
from .typed import TypedBool, TypedFloat, TypedInt, plain_number

P = ParamSpec("P")
R = TypeVar("R")

_builtins: set[object] = set()


def builtin(function: Callable[P, R], *, operator: bool = False) -> Callable[P, R]:
    """Register ``function`` as callable from kernels. Its arguments arrive as tensors or plain Python values; where a
    parameter is annotated as a tensor, scalars that are known do as tensors, and anything else raises TypeMismatch.
    Integers wrap in it, unless it is an ``operator`` of the kernel.
    """
    tensors = _tensor_parameters(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if tensors:
            args, kwargs = _as_tensors(function.__name__, tensors, args, kwargs)  # type: ignore[assignment]
        for argument in args:  # as grids call cdiv at every launch, this is no generator, which takes 0.4 us
            if type(argument) is constexpr or isinstance(argument, TypedBool):
                args = tuple(_given(a, operator) for a in args)  # type: ignore[assignment]
                break
        if kwargs and any(type(a) is constexpr or isinstance(a, TypedBool) for a in kwargs.values()):
            kwargs = {k: _given(v, operator) for k, v in kwargs.items()}  # type: ignore[assignment]
        context = state.context  # not by active(): see above
        if context is None or not context.sanitize_overflow or operator:
            return function(*args, **kwargs)
        with wrapping(context):
            return function(*args, **kwargs)

    _builtins.add(call)
    return call


def _given(argument: object, operator: bool) -> object:
    """An argument as functions take it: only the kernel's operators tell int1 that is known from a truth value."""
    return bool(argument) if isinstance(argument, TypedBool) and not operator else unwrap(argument)


def operator(function: Callable[P, R]) -> Callable[P, R]:
    """A builtin whose integer overflow is that of the kernel that calls it, not of the language."""
    return builtin(function, operator=True)


def _tensor_parameters(function: Callable[..., object]) -> list[tuple[int, str, bool]]:
    """Place and name of each parameter that takes tensors and no numbers, and whether it may be None."""
    code, annotations = function.__code__, function.__annotations__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    kinds = {"tensor": False, "tensor | None": True}
    return [(i, n, kinds[annotations[n]]) for i, n in enumerate(names) if annotations.get(n) in kinds]


def _as_tensors(
    function: str, tensors: list[tuple[int, str, bool]], args: Sequence[object], kwargs: dict[str, object]
) -> tuple[Sequence[object], dict[str, object]]:
    """The arguments with tensors for the ``tensors`` among the parameters; raises TypeMismatch."""
    for place, name, optional in tensors:
        if place < len(args):
            value = args[place]
        elif name in kwargs:
            value = kwargs[name]
        else:
            continue
        value = unwrap(value)
        if isinstance(value, tensor) or (optional and value is None):
            continue
        if not isinstance(value, TypedInt | TypedFloat):
            hint = (
                "a number is no tensor; tl.full(shape, value, dtype) makes a tile of one"
                if isinstance(value, int | float)
                else None
            )
            raise TypeMismatch(f"{function} takes a tensor as {name!r}, got {shown(value)}", hint=hint)
        scalar = emit(Constant(plain_number(value), Tile(value.type)))
        if place < len(args):
            args = (*args[:place], scalar, *args[place + 1 :])
        else:
            kwargs = {**kwargs, name: scalar}
    return args, kwargs


def is_builtin(candidate: object) -> bool:
    """Whether kernels may call ``candidate``."""
    try:
        return candidate in _builtins
    except TypeError:  # not hashable
        return False
