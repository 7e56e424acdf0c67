"""Global memory: loads, stores, atomics. A masked-off element is never touched."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.core import Effect, Op, Value
from ..ir.types import I1, Pointer, Scalar, Tile

LOAD_CACHE = ("", ".ca", ".cg", ".cs", ".cv")
STORE_CACHE = ("", ".wb", ".cg", ".cs", ".wt")
EVICTION = ("", "evict_first", "evict_last")
SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("cta", "gpu", "sys")
RMW_KINDS = ("add", "max", "min", "and", "or", "xor", "xchg")


def _check_pointer(op: Op, pointer: Value, mask: Value | None) -> Tile:
    """Check a pointer tile and its mask; return the type of what it points to."""
    if not isinstance(pointer.type.elem, Pointer):
        raise op.fail("the first operand must be pointers")
    if mask is not None and mask.type != pointer.type.with_elem(I1):
        raise op.fail("the mask must be i1 of the pointers' shape")
    return pointer.type.with_elem(pointer.type.elem.pointee)


class Load(Op, mnemonic="load", effect=Effect.READ):
    """Read elements. Masked-off ones are ``other``, or undefined without it."""

    pointer: Value
    mask: Value | None = None
    other: Value | None = None
    cache: str = ""
    eviction: str = ""
    volatile: bool = False

    @property
    def is_awaited(self) -> bool:
        """Whether what others write meanwhile is waited for: by volatile loads, and such as pass all caches by."""
        return self.volatile or self.cache == ".cv"

    def infer(self) -> tuple[Tile, ...]:
        """Result: the pointee in the pointers' shape.

        The mask is i1 of that shape, ``other`` has the result's type and needs a mask; else TypeMismatch, as for an
        unknown cache modifier or eviction policy.
        """
        made = _check_pointer(self, self.pointer, self.mask)
        if self.other is not None and (self.mask is None or self.other.type != made):
            raise self.fail("'other' needs a mask and the loaded type")
        check_caching(self, self.cache, LOAD_CACHE, self.eviction)
        return (made,)


class Store(Op, mnemonic="store", effect=Effect.WRITE):
    """Write elements where the mask is true."""

    pointer: Value
    value: Value
    mask: Value | None = None
    cache: str = ""
    eviction: str = ""

    def infer(self) -> tuple[Tile, ...]:
        """No results. The value is the pointee in the pointers' shape, which are not const, else TypeMismatch."""
        _check_value(self, self.value, _check_pointer(self, self.pointer, self.mask))
        if isinstance(self.pointer.type.elem, Pointer) and self.pointer.type.elem.const:
            raise self.fail("Cannot store to a constant pointer")
        check_caching(self, self.cache, STORE_CACHE, self.eviction)
        return ()


def _check_value(op: Op, value: Value, wanted: Tile) -> None:
    """Before tiles have layouts a value that is written may lie in shared memory, as tiles of rings do."""
    given = value.type
    if given != wanted and (given.shared is None or given.with_layout(wanted.layout) != wanted):
        raise op.fail(f"the value must be {wanted}")


def _check_atomic(op: AtomicRMW | AtomicCAS, mask: Value | None) -> tuple[Tile, ...]:
    made = _check_pointer(op, op.pointer, mask)
    _check_value(op, op.value, made)
    if isinstance(made.elem, Scalar) and made.elem.bits < 16:
        raise op.fail(f"atomics of {made.elem.code} do not exist", hint="use 16, 32 or 64 bits")
    _check_choice(op, "memory semantics", op.semantics, SEMANTICS)
    _check_choice(op, "scope", op.scope, SCOPES)
    return (made,)


def check_caching(op: Op, modifier: str, modifiers: Sequence[str], eviction: str) -> None:
    """Raise TypeMismatch for a cache modifier that is none of ``modifiers``, or an unknown eviction policy."""
    _check_choice(op, "cache modifier", modifier, modifiers)
    _check_choice(op, "eviction policy", eviction, EVICTION)


def _check_choice(op: Op, what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise op.fail(f"unknown {what} {given!r}", hint=f"use {', '.join(filter(None, known))}")


#: The float types of each kind of atomic, beside the integers.
_FLOATS = {
    **dict.fromkeys(("add", "max", "min"), ", float16, bfloat16, float32 or float64"),
    "xchg": ", float32 or float64",
}


class AtomicRMW(Op, mnemonic="atomic_rmw", effect=Effect.WRITE):
    """Read, combine, write as one step; the result is what was there. Masked-off results are undefined.

    ``max`` and ``min`` of f32 and f64 go by the order of their bits, as IEEE 754's totalOrder: -0.0 is below 0.0, a NaN
    without its sign above everything and one with it below, and so it stays in memory. Floats of 16 bits follow PTX's
    max and min: of a NaN and a number the result is the number.
    """

    pointer: Value
    value: Value
    mask: Value | None = None
    kind: str = "add"
    semantics: str = "acq_rel"
    scope: str = "gpu"

    @property
    def written(self) -> str:
        """The function of this kind."""
        return f"atomic_{self.kind}"

    def infer(self) -> tuple[Tile, ...]:
        """Result: the pointee in the pointers' shape, and the value's type.

        Raises TypeMismatch for types below 16 bits, for 16 bits except ``add`` and extrema of floats, and for floats in
        and, or, xor.
        """
        made = _check_atomic(self, self.mask)
        if self.kind not in RMW_KINDS:
            raise self.fail(f"unknown atomic {self.kind!r}", hint=", ".join(RMW_KINDS))
        elem = made[0].elem
        if isinstance(elem, Scalar) and elem.bits == 16 and not (elem.is_float and self.kind in ("add", "max", "min")):
            raise self.fail(
                f"atomic_{self.kind} of {elem.code} does not exist",
                hint=f"use memory of int32, uint32, int64, uint64{_FLOATS.get(self.kind, '')}",
            )
        if made[0].is_float and self.kind not in ("add", "max", "min", "xchg"):
            raise self.fail(f"atomic_{self.kind} does not take floats")
        return made


class AtomicCAS(Op, mnemonic="atomic_cas", effect=Effect.WRITE):
    """Write ``value`` where memory equals ``expected``; the result is what was there."""

    pointer: Value
    expected: Value
    value: Value
    semantics: str = "acq_rel"
    scope: str = "gpu"

    def infer(self) -> tuple[Tile, ...]:
        """Result: the pointee in the pointers' shape, and the type of both operands, else TypeMismatch.

        Raises TypeMismatch for a pointee below 16 bits, too.
        """
        if self.expected.type != self.value.type:
            raise self.fail("expected and new value must have one type")
        return _check_atomic(self, None)


class Barrier(Op, mnemonic="barrier", effect=Effect.WRITE):
    """All threads of the program wait for each other (tl.debug_barrier)."""


class GridWait(Op, mnemonic="grid_wait", effect=Effect.WRITE):
    """Wait for the kernels before this one on its stream, and see what they wrote (tl.extra.cuda.gdc_wait). Nothing
    that reads or writes memory may be moved across it."""


class LaunchDependents(Op, mnemonic="launch_dependents", effect=Effect.WRITE):
    """Kernels after this one that wait for it themselves may begin (tl.extra.cuda.gdc_launch_dependents)."""
