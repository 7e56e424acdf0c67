"""Operators and methods of tensors: the same functions, attached once all of them exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import arithmetic, conditions, maths, memory, reductions, shapes, sorting, standard
from .builtin import builtin, is_builtin, operator
from .context import current
from .inline import LibraryFunction
from .tensor import Operand, tensor


def _reflected(function: Callable[..., tensor]) -> Callable[[tensor, Operand], tensor]:
    return operator(lambda self, other: function(arithmetic.operand(other), self))


def _operator(function: Callable[..., tensor]) -> Callable[[tensor, Operand], tensor]:
    return operator(lambda self, other: function(self, arithmetic.operand(other)))


def _comparison(predicate: str) -> Callable[[tensor, Any], tensor]:
    return operator(lambda self, other: conditions.compare(self, arithmetic.operand(other), predicate))


def _library_method(function: LibraryFunction) -> Callable[..., tensor]:
    def method(self: tensor, *args: object, **kwargs: object) -> Any:
        return current().call(function, (self, *args), kwargs)

    method.__name__ = function.__name__
    return builtin(method)


class Members:
    """What tensors have besides the attributes that :mod:`.tensor` gives them. For type checkers it is a base class of
    theirs; when kernels are run or compiled :func:`attach` copies from it."""

    __add__, __radd__ = _operator(arithmetic.add), _reflected(arithmetic.add)
    __sub__, __rsub__ = _operator(arithmetic.sub), _reflected(arithmetic.sub)
    __mul__, __rmul__ = _operator(arithmetic.mul), _reflected(arithmetic.mul)
    __truediv__, __rtruediv__ = _operator(arithmetic.truediv), _reflected(arithmetic.truediv)
    __floordiv__, __rfloordiv__ = _operator(arithmetic.floordiv), _reflected(arithmetic.floordiv)
    __mod__, __rmod__ = _operator(arithmetic.mod), _reflected(arithmetic.mod)
    __and__, __rand__ = _operator(arithmetic.bit_and), _reflected(arithmetic.bit_and)
    __or__, __ror__ = _operator(arithmetic.bit_or), _reflected(arithmetic.bit_or)
    __xor__, __rxor__ = _operator(arithmetic.bit_xor), _reflected(arithmetic.bit_xor)
    __lshift__, __rlshift__ = _operator(arithmetic.shift_left), _reflected(arithmetic.shift_left)
    __rshift__, __rrshift__ = _operator(arithmetic.shift_right), _reflected(arithmetic.shift_right)
    __eq__ = _comparison("eq")  # type: ignore[assignment]  # a tile of answers
    __ne__ = _comparison("ne")  # type: ignore[assignment]
    __lt__, __le__ = _comparison("lt"), _comparison("le")
    __gt__, __ge__ = _comparison("gt"), _comparison("ge")
    __abs__ = maths.abs
    __pos__ = arithmetic.as_tensor
    __neg__ = arithmetic.negate
    __invert__ = arithmetic.invert
    __getitem__ = operator(shapes.index)

    to = cast = arithmetic.cast
    logical_and = conditions.logical_and
    logical_or = conditions.logical_or
    item = shapes.unsplat
    broadcast_to = shapes.broadcast_to
    expand_dims = shapes.expand_dims
    gather = shapes.gather
    permute = shapes.permute
    ravel = shapes.ravel
    reshape = shapes.reshape
    split = shapes.split
    squeeze = shapes.squeeze
    trans = shapes.trans
    T = property(shapes.trans)
    unsqueeze = shapes.unsqueeze
    view = shapes.view
    abs = maths.abs
    ceil = maths.ceil
    cos = maths.cos
    erf = maths.erf
    exp = maths.exp
    exp2 = maths.exp2
    floor = maths.floor
    log = maths.log
    log2 = maths.log2
    rsqrt = maths.rsqrt
    sin = maths.sin
    sqrt = maths.sqrt
    sqrt_rn = maths.sqrt_rn
    argmax = reductions.argmax
    argmin = reductions.argmin
    associative_scan = reductions.associative_scan
    cumprod = reductions.cumprod
    cumsum = reductions.cumsum
    histogram = reductions.histogram
    max = reductions.max
    min = reductions.min
    reduce = reductions.reduce
    reduce_or = reductions.reduce_or
    sum = reductions.sum
    xor_sum = reductions.xor_sum
    flip = sorting.flip
    sort = sorting.sort
    topk = sorting.topk
    atomic_add = memory.atomic_add
    atomic_and = memory.atomic_and
    atomic_cas = memory.atomic_cas
    atomic_max = memory.atomic_max
    atomic_min = memory.atomic_min
    atomic_or = memory.atomic_or
    atomic_xchg = memory.atomic_xchg
    atomic_xor = memory.atomic_xor
    store = memory.store
    cdiv = standard.cdiv
    atomic_poll = _library_method(standard.atomic_poll)
    sigmoid = _library_method(standard.sigmoid)
    softmax = _library_method(standard.softmax)


#: Methods behind operators, which kernels may call by name, too.
OPERATORS = frozenset(name for name, member in vars(Members).items() if name.startswith("__") and is_builtin(member))


def attach(cls: type[tensor]) -> None:
    """Give ``cls`` its operators and methods."""
    for name, member in vars(Members).items():
        if callable(member) or isinstance(member, property):
            setattr(cls, name, member)
