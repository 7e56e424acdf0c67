"""Messages, assertions and promises."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import CompileTimeAssertionFailure, TypeMismatch
from ..ir.types import F32, Scalar
from ..tile import debug
from ..tile import elementwise as ew
from .arithmetic import as_tensor, cast_to
from .builtin import builtin
from .conditions import as_condition, compare
from .context import current
from .shapes import shape_tuple
from .tensor import Operand, emit, tensor


@builtin
def static_print(*values: object, sep: str = " ", end: str = "\n", **ignored: object) -> None:
    """Print while the kernel is compiled; ``sep`` and ``end`` as in Python's print."""
    current().report(sep.join(str(v) for v in values) + end)


@builtin
def static_assert(cond: object, msg: object = "") -> None:
    """Raise CompileTimeAssertionFailure with ``msg`` unless ``cond`` is true.

    Raises TypeMismatch for a tensor: the condition must be known at compile time.
    """
    if isinstance(cond, tensor):
        raise TypeMismatch("static_assert needs a condition known at compile time", hint="use tl.device_assert")
    if not cond:
        raise CompileTimeAssertionFailure(str(msg) or "static assertion failed")


@builtin
def device_print(prefix: str, *args: Operand, hex: bool = False) -> None:
    """Print from the running kernel: program id, element index, ``prefix`` and each of ``args``.

    A tile has a line for each element. A number, and a ``prefix`` without values, has one for the program, and on a GPU
    one for each of its threads, as in Triton.
    ``hex`` shows integers in hexadecimal. Raises TypeMismatch unless ``prefix`` is a string known at compile time.
    """
    if not isinstance(prefix, str):
        raise TypeMismatch("the first argument of device_print must be a string")
    held = tuple(_shown(as_tensor(v)).value for v in args)
    if held:  # every target puts ": " before a value
        prefix = prefix.rstrip().removesuffix(":")
    current().builder.emit(debug.Print(held, prefix, hex))


def _shown(x: tensor) -> tensor:
    return cast_to(x, F32) if isinstance(x.dtype, Scalar) and x.dtype.is_stored_only else x


@builtin
def device_assert(cond: Operand, msg: str = "", mask: Operand | None = None) -> None:
    """Stop the kernel unless every element (where ``mask``) is true. Active only when debug is set.

    ``cond`` and ``mask`` are int1, or numbers that mean x != 0.
    """
    if not current().debug:
        return
    holds = as_condition(cond)
    if mask is not None:
        holds = holds | ~as_condition(mask)
    current().builder.emit(debug.Assert(holds.value, str(msg)))


@builtin
def expect_zero(x: tensor, mask: Operand) -> tensor:
    """``x``, of which debug kernels assert that it is zero where ``mask``, which means mask != 0, is true."""
    device_assert(compare(x, 0, "eq"), "expect_zero expected x == 0 where mask is true", mask)
    return x


@builtin
def assume(cond: Operand) -> None:
    """Promise the compiler that a scalar condition holds; where it does not, results are undefined.

    A Python number is ignored. Raises TypeMismatch for a tile.
    """
    if isinstance(cond, tensor):
        current().builder.emit(debug.Assume(as_condition(cond).value))


def _promise(x: Operand, **facts: object) -> tensor:
    made = {name: shape_tuple(values, name) for name, values in facts.items()}
    return emit(ew.Hint(as_tensor(x).value, **made))


@builtin
def multiple_of(input: Operand, values: int | Sequence[int]) -> tensor:
    """``input``, whose first element of every contiguous run is a multiple of ``values`` per dimension.

    One value per dimension (one for a scalar), else TypeMismatch. A promise that is not kept makes accesses wrong.
    """
    return _promise(input, divisibility=values)


@builtin
def max_contiguous(input: Operand, values: int | Sequence[int]) -> tensor:
    """``input``, which holds runs of ``values`` consecutive integers per dimension.

    One value per dimension (one for a scalar), else TypeMismatch. A promise that is not kept makes accesses wrong.
    """
    return _promise(input, contiguity=values)


@builtin
def max_constancy(input: Operand, values: int | Sequence[int]) -> tensor:
    """``input``, which holds runs of ``values`` equal elements per dimension.

    One value per dimension (one for a scalar), else TypeMismatch. A promise that is not kept makes accesses wrong.
    """
    return _promise(input, constancy=values)
