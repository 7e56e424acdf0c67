"""Loop iterators."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import TypeMismatch
from ..ir.types import I32, I64, U32, Scalar
from .arithmetic import constant
from .builtin import builtin
from .promotion import scalar_of
from .tensor import Operand, tensor

#: Keywords of :class:`range` that change no code on any target.
HINTS_WITHOUT_EFFECT = ("disallow_acc_multi_buffer", "flatten", "warp_specialize", "disable_licm")


@dataclass(frozen=True, slots=True, repr=False)
class range:  # noqa: A001 -- the language's own name
    """A run-time loop, ``for i in tl.range(lo, hi, step)``, with schedule hints.

    ``loop_unroll_factor`` unrolls the loop. ``num_stages``: slots of the rings that feed matrix products in this loop,
    on GPUs; 1: copies and products do not overlap. The other hints, :data:`HINTS_WITHOUT_EFFECT`, are accepted and
    change no code.
    """

    arg1: Operand
    arg2: Operand | None = None
    step: Operand | None = None
    num_stages: int | None = None
    loop_unroll_factor: int | None = None
    disallow_acc_multi_buffer: bool = False
    flatten: bool = False
    warp_specialize: bool = False
    disable_licm: bool = False

    def __repr__(self) -> str:
        given = (self.arg1, self.arg2, self.step)
        return f"range({', '.join(repr(bound) for bound in given if bound is not None)})"

    @property
    def bounds(self) -> tuple[Operand, Operand, Operand]:
        """lower, upper, step."""
        lower, upper = (0, self.arg1) if self.arg2 is None else (self.arg1, self.arg2)
        return lower, upper, 1 if self.step is None else self.step

    def __iter__(self) -> Iterator[tensor]:
        """Eager kernels count in tensors, as compiled ones do."""
        for part in self.bounds:
            if isinstance(part, float) or (isinstance(part, tensor) and not _is_integer(part)):
                shown = part.value.type if isinstance(part, tensor) else part
                raise TypeMismatch(f"loop bounds must be scalar integers, got {shown}")
        _, type = counting(self.bounds)
        for number in builtins.range(*(int(b) for b in self.bounds)):
            yield constant(number if type.is_signed else number % (1 << type.bits), type)


@builtin
def condition(arg1: Operand, disable_licm: bool = False) -> Operand:
    """The condition of a while loop, ``while tl.condition(x > 0)``, as it is; the hint changes no code."""
    return arg1


def counting(bounds: Sequence[Operand]) -> tuple[Scalar, Scalar]:
    """The type that a loop counts in, and the type of its index: the widest of bounds and step, of equally wide ones an
    unsigned one; numbers that are written or known are int32, truth values count as that.

    Where that is u32 the loop counts in i64, which holds every bound, negative ones and steps too, and where it is
    narrower in i32.
    """
    index, *others = (I32 if (type := scalar_of(b)).bits == 1 else type for b in bounds)
    for type in others:
        if type.bits > index.bits or (type.bits == index.bits and not type.is_signed):
            index = type
    return (I64 if index == U32 else I32 if index.bits < I32.bits else index), index


def _is_integer(bound: tensor) -> bool:
    return not bound.shape and bound.value.type.is_integer


@dataclass(frozen=True, slots=True)
class static_range:  # noqa: N801
    """A loop that is unrolled at compile time; its bounds are known then."""

    arg1: int
    arg2: int | None = None
    step: int | None = None

    def values(self) -> builtins.range:
        """What the loop counts: Python's range; a missing ``arg2`` means that ``arg1`` is the end, a missing step 1."""
        lower, upper = (0, self.arg1) if self.arg2 is None else (self.arg1, self.arg2)
        return builtins.range(lower, upper, 1 if self.step is None else self.step)

    def __iter__(self) -> Iterator[int]:
        return iter(self.values())
