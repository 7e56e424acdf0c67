"""Operators and methods of tensors: the same functions, attached once all of them exist."""

from __future__ import annotations

from collections.abc import Callable

from ..tile.memory import RMW_KINDS
from . import arithmetic, maths, memory, reductions, shapes, sorting, standard
from .builtin import builtin
from .context import current
from .inline import LibraryFunction
from .tensor import Operand, tensor

_OPERATORS: dict[str, Callable[[Operand, Operand], tensor]] = {
    "add": arithmetic.add,
    "sub": arithmetic.sub,
    "mul": arithmetic.mul,
    "truediv": arithmetic.truediv,
    "floordiv": arithmetic.floordiv,
    "mod": arithmetic.mod,
    "and": arithmetic.bit_and,
    "or": arithmetic.bit_or,
    "xor": arithmetic.bit_xor,
    "lshift": arithmetic.shift_left,
    "rshift": arithmetic.shift_right,
}

_METHODS: dict[str, Callable[..., object]] = {
    "to": arithmetic.cast,
    **{f"atomic_{kind}": getattr(memory, f"atomic_{kind}") for kind in RMW_KINDS},
    "cast": arithmetic.cast,
    "item": shapes.unsplat,
    **{
        f.__name__: f
        for f in (
            *(
                shapes.broadcast_to,
                shapes.expand_dims,
                shapes.gather,
                shapes.permute,
                shapes.ravel,
                shapes.reshape,
            ),
            *(shapes.split, shapes.squeeze, shapes.trans, shapes.unsqueeze, shapes.view),
            *(maths.abs, maths.ceil, maths.cos, maths.erf, maths.exp, maths.exp2, maths.floor),
            *(maths.log, maths.log2, maths.rsqrt, maths.sin, maths.sqrt, maths.sqrt_rn),
            *(reductions.argmax, reductions.argmin, reductions.associative_scan),
            *(reductions.cumprod, reductions.cumsum, reductions.histogram, reductions.max, reductions.min),
            *(reductions.reduce, reductions.sum, reductions.xor_sum),
            *(sorting.flip, sorting.sort, sorting.topk),
            memory.atomic_cas,
            *(arithmetic.logical_and, arithmetic.logical_or),
        )
    },
}

_LIBRARY: dict[str, LibraryFunction] = {
    "sigmoid": standard.sigmoid,
    "softmax": standard.softmax,
}


def attach(cls: type[tensor]) -> None:
    """Give ``cls`` its operators and methods."""
    for name, function in _OPERATORS.items():
        setattr(cls, f"__{name}__", _forward(function))
        setattr(cls, f"__r{name}__", _reflected(function))
    for predicate in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(cls, f"__{predicate}__", _comparison(predicate))
    unary = {
        "abs": maths.abs,
        "pos": arithmetic.as_tensor,
        "neg": arithmetic.negate,
        "invert": arithmetic.invert,
        "getitem": shapes.index,
    }
    for name, special in unary.items():
        setattr(cls, f"__{name}__", special)
    for name, method in _METHODS.items():
        setattr(cls, name, method)
    for name, written in _LIBRARY.items():
        setattr(cls, name, _library_method(written))
    cls.T = property(shapes.trans)  # type: ignore[attr-defined]


def _forward(function: Callable[[Operand, Operand], tensor]) -> Callable[[tensor, Operand], tensor]:
    return lambda self, other: function(self, other)


def _reflected(
    function: Callable[[Operand, Operand], tensor],
) -> Callable[[tensor, Operand], tensor]:
    return lambda self, other: function(other, self)


def _comparison(predicate: str) -> Callable[[tensor, Operand], object]:
    def method(self: tensor, other: Operand) -> object:
        if other is None:
            return predicate == "ne"
        return arithmetic.compare(self, other, predicate)

    return method


def _library_method(function: LibraryFunction) -> Callable[..., object]:
    def method(self: tensor, *args: object, **kwargs: object) -> object:
        return current().call(function, (self, *args), kwargs)

    method.__name__ = function.__name__
    return builtin(method)
