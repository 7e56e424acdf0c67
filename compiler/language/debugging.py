"""Messages, assertions and promises."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CompileTimeAssertionFailure, TypeMismatch
from ..ir.types import F32, Scalar
from ..tile import debug
from ..tile import elementwise as ew
from .arithmetic import as_condition, as_tensor, cast_to, compare
from .builtin import builtin
from .context import current
from .shapes import shape_tuple
from .tensor import Operand, emit, tensor


@builtin
def static_print(*values: object, sep: str = " ", end: str = "\n", **ignored: object) -> None:
    """Print while the kernel is compiled; ``sep`` and ``end`` as in Python's print."""
    current().report(sep.join(str(v) for v in values) + end)


@builtin
def static_assert(condition: object, message: object = "") -> None:
    """Raise CompileTimeAssertionFailure with ``message`` unless ``condition`` is true.

    Raises TypeMismatch for a tensor: the condition must be known at compile time.
    """
    if isinstance(condition, tensor):
        raise TypeMismatch("static_assert needs a condition known at compile time", hint="use tl.device_assert")
    if not condition:
        raise CompileTimeAssertionFailure(str(message) or "static assertion failed")


@builtin
def device_print(prefix: str, *values: Operand, hex: bool = False) -> None:
    """Print from the running kernel: program id, element index, ``prefix`` and each value.

    A tile has a line for each element. A number, and a ``prefix`` without values, has one for the program, and on a GPU
    one for each of its threads, as in Triton.
    ``hex`` shows integers in hexadecimal. Raises TypeMismatch unless ``prefix`` is a string known at compile time.
    """
    if not isinstance(prefix, str):
        raise TypeMismatch("the first argument of device_print must be a string")
    held = tuple(_shown(as_tensor(v)).value for v in values)
    if held:  # every target puts ": " before a value
        prefix = prefix.rstrip().removesuffix(":")
    current().builder.emit(debug.Print(held, prefix, hex))


def _shown(x: tensor) -> tensor:
    return cast_to(x, F32) if isinstance(x.dtype, Scalar) and x.dtype.is_stored_only else x


@builtin
def device_assert(condition: Operand, message: str = "", mask: Operand | None = None) -> None:
    """Stop the kernel unless every element (where ``mask``) is true. Active only when debug is set.

    ``condition`` and ``mask`` are int1, or numbers that mean x != 0.
    """
    if not current().debug:
        return
    holds = as_condition(condition)
    if mask is not None:
        holds = holds | ~as_condition(mask)
    current().builder.emit(debug.Assert(holds.value, str(message)))


@builtin
def expect_zero(x: tensor, mask: Operand) -> tensor:
    """``x``, of which debug kernels assert that it is zero where ``mask``, which means mask != 0, is true."""
    device_assert(compare(x, 0, "eq"), "expect_zero expected x == 0 where mask is true", mask)
    return x


@builtin
def assume(condition: Operand) -> None:
    """Promise the compiler that a scalar condition holds; where it does not, results are undefined.

    A Python number is ignored. Raises TypeMismatch for a tile.
    """
    if isinstance(condition, tensor):
        current().builder.emit(debug.Assume(as_condition(condition).value))


def _promise(x: Operand, **facts: object) -> tensor:
    made = {name: shape_tuple(values, name) for name, values in facts.items()}
    return emit(ew.Hint(as_tensor(x).value, **made))


@builtin
def multiple_of(x: Operand, values: int | Sequence[int]) -> tensor:
    """``x``, whose first element of every contiguous run is a multiple of ``values`` per dimension.

    One value per dimension (one for a scalar), else TypeMismatch. A promise that is not kept makes accesses wrong.
    """
    return _promise(x, divisibility=values)


@builtin
def max_contiguous(x: Operand, values: int | Sequence[int]) -> tensor:
    """``x``, which holds runs of ``values`` consecutive integers per dimension.

    One value per dimension (one for a scalar), else TypeMismatch. A promise that is not kept makes accesses wrong.
    """
    return _promise(x, contiguity=values)


@builtin
def max_constancy(x: Operand, values: int | Sequence[int]) -> tensor:
    """``x``, which holds runs of ``values`` equal elements per dimension.

    One value per dimension (one for a scalar), else TypeMismatch. A promise that is not kept makes accesses wrong.
    """
    return _promise(x, constancy=values)
