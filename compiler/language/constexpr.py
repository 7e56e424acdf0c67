"""Compile-time values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any


class constexpr:  # noqa: N801 -- the language's own name
    """Marks a value (or, as an annotation, a parameter) as known at compile time.

    Inside kernels compile-time values are plain Python values; this wrapper exists for globals,
    ``BLOCK = tl.constexpr(128)``, and for annotations, ``BLOCK: tl.constexpr``. Arithmetic on globals gives globals
    that kernels may use, too: ``HALF = BLOCK // 2``.
    """

    __slots__ = ("value",)

    value: object

    def __init__(self, value: object) -> None:
        self.value = unwrap(value)

    def __repr__(self) -> str:
        return f"constexpr({self.value!r})"

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Call the function that it decorates, ``@tl.constexpr``, with plain values."""
        return self.value(*map(unwrap, args), **{k: unwrap(v) for k, v in kwargs.items()})  # type: ignore[operator]

    def __eq__(self, other: object) -> bool:
        return self.value == unwrap(other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self.value)

    def __float__(self) -> float:
        return float(self.value)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.value)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[object]:
        return iter(self.value)  # type: ignore[call-overload, no-any-return]

    def __getitem__(self, key: object) -> object:
        return self.value[unwrap(key)]  # type: ignore[index]


class const:  # noqa: N801 -- the language's own name
    """As the annotation of a parameter, ``x_ptr: tl.const``: a pointer that the kernel does not store through."""


def unwrap(value: object) -> object:
    """The plain value of a constexpr; anything else as it is."""
    if type(value) is constexpr:
        return value.value
    if type(value) is tuple:
        return tuple(unwrap(v) for v in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple.__new__(type(value), [unwrap(v) for v in value])
    return value


def _operation(
    function: Callable[[object, object], object], swapped: bool = False
) -> Callable[[constexpr, object], object]:
    def method(self: constexpr, other: object) -> object:
        a, b = (unwrap(other), self.value) if swapped else (self.value, unwrap(other))
        result = function(a, b)
        return constexpr(result) if isinstance(result, int | float | str | tuple) else result

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor") + (
    "lshift",
    "rshift",
):
    _function = getattr(operator, f"__{_name}__")
    setattr(constexpr, f"__{_name}__", _operation(_function))
    setattr(constexpr, f"__r{_name}__", _operation(_function, swapped=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(constexpr, f"__{_name}__", _operation(getattr(operator, f"__{_name}__")))
for _name in ("neg", "pos", "invert"):
    _unary = getattr(operator, f"__{_name}__")
    setattr(constexpr, f"__{_name}__", lambda self, f=_unary: constexpr(f(self.value)))

# What kernels see as ``tl.constexpr``. A parameter annotated with it is used as the number, text or dtype that it is,
# and has such a default, and it can be called, too. No type is all of this: to type checkers it is a name of a module
# that they do not find, and so of any type.
if TYPE_CHECKING:
    from ._unknown import annotation as annotation  # type: ignore[import-not-found]
else:
    annotation = constexpr
