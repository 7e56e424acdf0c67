"""Numbers that are known while kernels run as Python: what Python's own lack to be those of compiled kernels.

Literals and arguments that are known can be asked for what a tensor has. What is assigned to a name is a scalar of a
type besides (:mod:`...language.typed`), and is computed with as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...frontend.assignment import typed
from ...frontend.merging import TERNARY, as_leaf, common_tile, same_constant
from ...language.arithmetic import as_tensor
from ...language.compile_time import constexpr_type
from ...language.constexpr import constexpr, unwrap
from ...language.context import current
from ...language.tensor import tensor
from ...language.typed import Typed, TypedBool, TypedFloat, TypedInt, typed_number

_ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "truediv")
_BITS = ("lshift", "rshift", "and", "or", "xor")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


class _Asked:
    """A number that can be asked for what a tensor has."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("_") or not hasattr(tensor, name):
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        return getattr(as_tensor(self), name)


class _Indexed(_Asked):
    """A scalar of a type, of which ``x[None, :]`` is a tile."""

    def __getitem__(self, key: object) -> object:
        return as_tensor(self)[key]


class _Known(_Asked):
    """A number that is known before the kernel runs, a literal or an argument such as one that is 1; what is computed
    of such numbers is one, too."""

    @property
    def type(self) -> constexpr_type:
        """That of a compile-time value, which is equal to that of a tensor."""
        return constexpr_type(self)


class _KnownInt(_Known, int):
    pass


class _KnownFloat(_Known, float):
    pass


class _NamedInt(_Indexed, TypedInt):
    __hash__ = int.__hash__


class _NamedBool(_Indexed, TypedBool):
    __hash__ = int.__hash__


class _NamedFloat(_Indexed, TypedFloat):
    __hash__ = float.__hash__


_CLASSES = ((_KnownInt, int), (_KnownFloat, float), (_NamedInt, int), (_NamedBool, bool), (_NamedFloat, float))
for _kind, _plain in _CLASSES:
    _kind.__name__ = _kind.__qualname__ = _plain.__name__  # as Python's messages call them


def known(value: object) -> object:
    """A number, and the numbers of a tuple, as they are known; anything else as it is."""
    if type(value) is tuple:
        return tuple(known(item) for item in value)
    if type(value) is int:
        return _KnownInt(value)
    return _KnownFloat(value) if type(value) is float else value


def assigned(value: object, plain: tuple[int, ...] = ()) -> object:
    """What a name holds to which a kernel assigns ``value``: numbers get types, but for the items ``plain``."""
    value = unwrap(value)
    if not isinstance(value, tuple | list):
        return _named(typed(value))
    items = (item if at in plain else assigned(item) for at, item in enumerate(value))
    return tuple.__new__(type(value), items) if isinstance(value, tuple) else list(items)


def annotated(value: object, annotation: object) -> object:
    """The same of ``name: annotation = value``: all annotations but constexpr say nothing, as in Triton."""
    return known(unwrap(value)) if annotation is constexpr else assigned(value)


def negated(value: object) -> object:
    """``not value`` of what is no tile."""
    return _named(typed(not value)) if isinstance(value, Typed) else not value


#: Stands for what a kernel does not evaluate.
UNREAD = "joined.unread"


def chosen(condition: object, taken: object, other: object) -> object:
    """A conditional expression, of whose sides ``taken`` is evaluated, and ``other`` where that does no more than
    compute (UNREAD elsewhere). Where the condition has its value at run time the two meet, as they do compiled.

    Raises:
        TypeMismatch: they have types that do not meet.
    """
    if not isinstance(condition, tensor):
        return assigned(taken) if isinstance(condition, Typed) else taken
    value, beside = typed(unwrap(taken)), typed(unwrap(other))
    if isinstance(value, tuple) and isinstance(beside, tuple) and len(value) == len(beside):
        return tuple.__new__(type(value), [chosen(condition, *sides) for sides in zip(value, beside, strict=True)])
    if not all(isinstance(side, tensor | int | float) for side in (value, beside)) or same_constant(value, beside):
        return assigned(value)
    return as_leaf(value, common_tile(TERNARY, value, beside))


def noted(asked: list[object], condition: object) -> object:
    """A condition of a function, which is kept in ``asked`` if it has its value at run time."""
    if isinstance(condition, tensor):
        asked.append(condition)
    return condition


def returned(asked: list[object], value: object, plain: tuple[int, ...]) -> object:
    """What a function returns that may return something else, too: numbers have types where run time decides, but for
    the items ``plain``."""
    return assigned(value, plain) if asked else value


def _named(value: object) -> object:
    if not isinstance(value, Typed):
        return value
    kind = _NamedBool if isinstance(value, TypedBool) else _NamedInt
    made: Typed = _NamedFloat(value) if isinstance(value, TypedFloat) else kind(value)
    made.type = value.type
    return made


def _keeping(name: str) -> Callable[..., object]:
    """Python's own operation, on numbers without types."""

    def compute(self: int | float, *others: object) -> object:
        if any(isinstance(other, Typed) for other in others):
            return NotImplemented
        return known(getattr(int if isinstance(self, int) else float, name)(self, *others))

    return compute


def _of_tensors(name: str) -> Callable[..., object]:
    """The language's operation, on scalars; what it gives is a number again. With a number that is not the kernel's it
    is Python's own: then it is the compiler that computes. Truth values are the kernel's, those of its comparisons."""

    def compute(self: Typed, *others: object) -> object:
        if not all(isinstance(other, int | float) for other in others):
            return NotImplemented
        if not all(isinstance(other, _Asked | bool) for other in others):
            return getattr(int if isinstance(self, int) else float, name)(self, *others)
        made = getattr(as_tensor(self), name)(*others)
        return _named(typed_number(current().read(made.value), made.dtype))

    return compute


def _both_ways(*names: str) -> list[str]:
    return [f"__{way}{name}__" for name in names for way in ("", "r")]


def _give(kinds: Iterable[type], operators: Iterable[str], made: Callable[[str], Callable[..., object]]) -> None:
    for kind in kinds:
        for name in operators:
            setattr(kind, name, made(name))


_give((_KnownInt, _KnownFloat), (*_both_ways(*_ARITHMETIC, "pow"), "__neg__"), _keeping)
_give(
    (_NamedInt, _NamedBool, _NamedFloat),
    (*_both_ways(*_ARITHMETIC), *(f"__{n}__" for n in _COMPARISONS), "__neg__"),
    _of_tensors,
)
_give((_NamedInt, _NamedBool), (*_both_ways(*_BITS), "__invert__"), _of_tensors)
