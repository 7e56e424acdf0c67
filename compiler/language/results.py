"""What functions of the language give, found out by calling them: a list of names would be one more to keep."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from ..errors import DeuteronError
from ..ir.builder import Builder
from ..ir.core import Block, Value
from ..ir.types import F32, I32, Scalar, Tile
from ..target import Target
from .builtin import is_builtin
from .context import activate
from .inline import LibraryFunction
from .tensor import tensor

#: What functions are given, in order, until they take it: some take tiles alone, or floats.
_OPERANDS = (Tile(I32), Tile(I32, (16,)), Tile(F32), Tile(F32, (16,)))
#: What they raise otherwise. Not all check what else they need, such as shapes or types.
_REFUSALS = (DeuteronError, TypeError, ValueError, AttributeError)


def gives_floats(function: object) -> bool:
    """Whether ``function`` is one of the language that gives floats of integers, or that takes floats alone and gives
    such."""
    known = isinstance(function, LibraryFunction) or is_builtin(function)
    return known and callable(function) and _tried(function)


@cache
def _tried(function: Callable[..., object]) -> bool:
    for type in _OPERANDS:
        try:
            result = _call(function, type)
        except _REFUSALS:
            continue
        return isinstance(result, tensor) and isinstance(result.dtype, Scalar) and result.dtype.is_float
    return False


def _call(function: Callable[..., object], type: Tile) -> object:
    """The result, of several the first one, for operands of one type in place of all that have no default."""
    plain = function.function if isinstance(function, LibraryFunction) else function
    wanted = [
        p for p in inspect.signature(plain).parameters.values() if p.default is p.empty and p.kind < p.VAR_POSITIONAL
    ]
    draft = _Draft()
    operands = [tensor(draft.block.add_argument(type)) for _ in wanted]
    with activate(draft):
        result = function(*operands)
    return result[0] if isinstance(result, tuple) and result else result


class _Draft:
    """A context whose operations nobody reads."""

    debug = False
    sanitize_overflow = False
    target: Target | None = None
    num_warps: int | None = None
    quiet = True
    told_warps: int | None = None

    def __init__(self) -> None:
        self.block = Block()
        self.builder = Builder(self.block)

    def call(self, function: object, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """A function of the language, as Python; TypeError for another."""
        if isinstance(function, LibraryFunction):
            return function(*args, **kwargs)
        raise TypeError(f"{function!r} is not of the language")

    def region(self, function: object, args: Sequence[Value], block: Block) -> None:
        """Refused: functions that take functions are no operations on numbers."""
        raise TypeError(f"{function!r} is not of the language")

    def read(self, value: Value) -> int | float | bool:
        """Refused: nothing is known."""
        raise TypeError("nothing is known of operands")

    def show(self, value: Value) -> None:
        """Nothing."""

    def report(self, text: str) -> None:
        """To nobody."""
