"""Functions of the language that are written in it."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from numbers import Number
from typing import Any, overload

from .arithmetic import cast
from .builtin import builtin
from .conditions import where
from .constexpr import constexpr
from .cuda import globaltimer
from .debugging import static_assert
from .inline import library
from .maths import abs, exp, minimum
from .memory import atomic_cas
from .reductions import max as largest
from .reductions import min as smallest
from .reductions import sum as total
from .tensor import Operand, tensor


@overload
def cdiv(x: int, div: int) -> int:
    """Of numbers."""


@overload
def cdiv(x: tensor, div: Operand) -> tensor:
    """In kernels."""


@overload
def cdiv(x: Any, div: Any) -> Any:
    """Of arrays, and of what is known at run time only."""


@builtin
def cdiv(x: Operand, div: Operand) -> object:
    """x / div rounded up, for non-negative integers; of two Python numbers a Python int, known at compile time. Outside
    of kernels arrays of other libraries are divided element by element."""
    if type(x) is int and type(div) is int:
        return -(x // -div)
    if isinstance(x, Number | constexpr) and isinstance(div, Number | constexpr):
        return -(int(x) // -int(div))  # type: ignore[arg-type, call-overload]
    return (x + (div - 1)) // div  # type: ignore[operator]


@builtin
def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below ``n``; 0 where ``n`` is not above 0, as Triton has it."""
    whole = int(n)
    return 1 << (whole - 1).bit_length() if whole > 0 else 0


@builtin
def exponent(i: int) -> int:
    """The exponent of a power of two that is known at compile time: ``triton.language.standard._log2``."""
    return int(i).bit_length() - 1


@library
def sigmoid(x):
    """1 / (1 + exp(-x)), as exp(x) / (1 + exp(x)) for negative x: the smallest results are denormal, not 0.

    f64 for f64, else f32.
    """
    e = exp(-abs(x))
    return where(x < 0, e, 1) / (1 + e)


@library
def softmax(x, dim: constexpr = 0, keep_dims: constexpr = False, ieee_rounding: constexpr = False):
    """exp(x - max) / sum of them, along dimension ``dim`` (default 0), in the shape of ``x``: f64 for f64, else f32.

    ``keep_dims`` and ``ieee_rounding`` are accepted and change nothing.
    """
    z = x - largest(x, dim, keep_dims=True)
    numerator = exp(z)
    return numerator / total(numerator, dim, keep_dims=True)


@library
def swizzle2d(i, j, size_i, size_j, size_g):
    """Row-major (i, j) of a size_i x size_j grid to the order that walks groups of ``size_g`` rows column by column."""
    ij = i * size_j + j
    size_gj = size_g * size_j
    group = ij // size_gj
    first = group * size_g
    rows = minimum(size_i - first, size_g)
    ij = ij % size_gj
    return first + ij % rows, ij // rows


@library
def atomic_poll(
    pointer, expected_value, sem: constexpr = "acquire", scope: constexpr = "gpu", timeout_ns: constexpr = None
):
    """Wait until memory equals ``expected_value``, in its type, at each of ``pointer``: to 16-, 32- or 64-bit integers.

    int1, of the shape of both: whether it did. ``sem``: acquire (default, also for None) or relaxed; ``scope``: cta,
    gpu (default), sys. With ``timeout_ns``, which needs a GPU's timer, what does not within so many nanoseconds is
    False; all is read once at least, where it is 0, too.
    """
    static_assert(sem in ("acquire", "relaxed", None), "sem of atomic_poll is acquire or relaxed")
    static_assert(pointer.dtype.element_ty.is_int(), "atomic_poll waits for integers of 16, 32 or 64 bits")
    found = _polled(pointer, expected_value, sem, scope)
    if timeout_ns is None:
        while not _all(found):
            found = found | _polled(pointer, expected_value, sem, scope)
    else:
        begin = globaltimer()
        while (not _all(found)) & (globaltimer() - begin < timeout_ns):
            found = found | _polled(pointer, expected_value, sem, scope)
    return found


@library
def _polled(pointer, expected_value, sem: constexpr, scope: constexpr):
    """Whether it is there now: a compare-and-swap that changes nothing, as a load may be moved."""
    expected = cast(expected_value, pointer.dtype.element_ty)
    return atomic_cas(pointer, expected, expected, sem=sem or "acquire", scope=scope or "gpu") == expected


@library
def _all(found):
    return smallest(found, None) != 0 if found.type.is_block() else found
