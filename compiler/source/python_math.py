"""Python's module ``math`` as kernels see it: numbers, and functions of what is known at compile time."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

from ..errors import NotComputable, TypeMismatch
from ..language.builtin import builtin
from ..language.tensor import tensor
from .constants import MAX_BITS

#: Functions of whole numbers whose results grow fast; text of a kernel may come from anywhere.
_GROWING = ("comb", "factorial", "perm")
#: Functions of one, two or any number of numbers.
_PLAIN = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh",
    "degrees", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "floor", "fmod", "gamma", "gcd", "hypot",
    "isclose", "isfinite", "isinf", "isnan", "isqrt", "lcm", "ldexp", "lgamma", "log", "log10", "log1p", "log2",
    "nextafter", "pow", "radians", "remainder", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "ulp",
)  # fmt: skip
_CONSTANTS = ("e", "inf", "nan", "pi", "tau")


def _at_compile_time(name: str, limit: int | None) -> Callable[..., object]:
    function = getattr(math, name)

    @functools.wraps(function)
    def call(*values: object, **named: object) -> object:
        for value in (*values, *named.values()):
            if isinstance(value, tensor):
                hint = f"write tl.{name} for a tensor" if name in _OF_TENSORS else None
                raise TypeMismatch(f"math.{name} takes numbers known at compile time, got {value!r}", hint=hint)
            if not isinstance(value, int | float) or (isinstance(value, int) and value.bit_length() > MAX_BITS):
                raise TypeMismatch(f"math.{name} takes numbers, got {value!r}")
            if limit is not None and value > limit:
                raise TypeMismatch(f"math.{name} of a kernel takes whole numbers up to {limit}, got {value!r}")
        try:
            result = function(*values, **named)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise NotComputable(f"math.{name} at compile time: {error}") from None
        if isinstance(result, int) and result.bit_length() > MAX_BITS:
            raise NotComputable(f"math.{name} at compile time: the integer has more than {MAX_BITS} bits")
        return result

    return builtin(call)


#: Those that the language has under the same name, for tensors.
_OF_TENSORS = frozenset({"ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log2", "sin", "sqrt"})

FUNCTIONS: Mapping[str, Callable[..., object]] = {
    name: _at_compile_time(name, MAX_BITS if name in _GROWING else None)
    for name in (*_PLAIN, *_GROWING)
    if hasattr(math, name)
}
MEMBERS: Mapping[str, object] = {**{name: getattr(math, name) for name in _CONSTANTS}, **FUNCTIONS}
