"""Elementwise operations: operands and result have one shape (and, at the GPU stage, one layout).

Integers wrap. Division and remainder of integers truncate towards zero as in C; the frontend has already brought both
sides to one type (facts of Triton's promotion live in ``language/promotion.py``).
"""

from __future__ import annotations

from ..ir.core import Op, Value
from ..ir.types import I1, I64, Element, Pointer, Scalar, Tile
from .formats import round_to


class Constant(Op, mnemonic="constant"):
    """A tile filled with one value (a splat constant); rank 0 gives a scalar. Pointers may be 0 only.

    The value is brought to its type: integers wrap, so a u8 constant of -8 holds 248, and floats are rounded, so that
    what the compiler folds is what a kernel would compute.
    """

    value: int | float | bool
    type: Tile

    def infer(self) -> tuple[Tile, ...]:
        """Result: ``type``. Brings ``value`` to it; raises TypeMismatch for a pointer other than null."""
        elem = self.type.elem
        if isinstance(elem, Pointer):
            if self.value != 0:
                raise self.fail("a pointer constant must be null")
        elif elem.kind == "float":
            self.value = round_to(float(self.value), elem)
        elif elem.kind == "bool":
            self.value = bool(self.value)
        else:
            self.value = elem.wrap(int(self.value))
        return (self.type,)


def _refuse_stored(op: Op, *operands: Value) -> None:
    for value in operands:
        elem = value.type.elem
        if isinstance(elem, Scalar) and elem.is_stored_only:
            raise op.fail(f"there is no arithmetic in {elem.spelling}", hint="cast with .to(tl.float16) or tl.float32")


class Unary(Op, elementwise=True):
    """Base: one operand, result of the same type."""

    x: Value

    def infer(self) -> tuple[Tile, ...]:
        """Result: the operand's type; raises TypeMismatch for types that are only stored."""
        _refuse_stored(self, self.x)
        return (self.x.type,)


class FloatUnary(Unary):
    """Base: a mathematical function of floating-point tiles."""

    def infer(self) -> tuple[Tile, ...]:
        """Result: the operand's type, which is a float, else TypeMismatch."""
        if not self.x.type.is_float:
            raise self.fail("needs a floating-point operand", hint="cast with .to(tl.float32)")
        return super().infer()


class Neg(Unary, mnemonic="neg"):
    """-x."""


class Not(Unary, mnemonic="not"):
    """Bitwise complement of integers; logical not of i1."""

    @property
    def written(self) -> str:
        """The operator."""
        return "~"

    def infer(self) -> tuple[Tile, ...]:
        """Result: the operand's type, an integer or i1, else TypeMismatch."""
        if not self.x.type.is_integer:
            raise self.fail("needs integers")
        return (self.x.type,)


class Abs(Unary, mnemonic="abs"):
    """|x|; the most negative integer stays as it is."""


class Exp(FloatUnary, mnemonic="exp"):
    """e**x, by ``accuracy`` of f32 within "1 ulp" or "2 ulp", or "fast": this may be 2**(x log2(e)) with a rounded
    product, wrong by up to |x| units in the last place.
    """

    accuracy: str = "fast"


class Exp2(FloatUnary, mnemonic="exp2"):
    """2**x."""


class Exp10(FloatUnary, mnemonic="exp10"):
    """10**x."""


class Log(FloatUnary, mnemonic="log"):
    """Natural logarithm."""


class Log2(FloatUnary, mnemonic="log2"):
    """Logarithm to base 2."""


class Log10(FloatUnary, mnemonic="log10"):
    """Logarithm to base 10."""


class Sin(FloatUnary, mnemonic="sin"):
    """Sine of radians."""


class Cos(FloatUnary, mnemonic="cos"):
    """Cosine of radians."""


class Tan(FloatUnary, mnemonic="tan"):
    """Tangent of radians."""


class Atan(FloatUnary, mnemonic="atan"):
    """Arc tangent in radians."""


class Tanh(FloatUnary, mnemonic="tanh"):
    """Hyperbolic tangent."""


class Erf(FloatUnary, mnemonic="erf"):
    """Error function."""


class Sqrt(FloatUnary, mnemonic="sqrt"):
    """Square root; ``precise`` asks for IEEE rounding, else a fast approximation may serve f32."""

    precise: bool = False


class Rsqrt(FloatUnary, mnemonic="rsqrt"):
    """1/sqrt(x)."""


class Reciprocal(FloatUnary, mnemonic="reciprocal"):
    """1/x, of f32 within a unit in the last place; where ``x`` or the result is below the normal numbers, a GPU may
    take it for 0."""


class Floor(FloatUnary, mnemonic="floor"):
    """Largest integer not above x."""


class Ceil(FloatUnary, mnemonic="ceil"):
    """Smallest integer not below x."""


class RoundEven(FloatUnary, mnemonic="round_even"):
    """Nearest integer, ties to even (C's rint)."""


class Trunc(FloatUnary, mnemonic="trunc"):
    """Rounds towards zero."""


class Binary(Op, elementwise=True):
    """Base: two operands of one type, result of that type."""

    lhs: Value
    rhs: Value

    def infer(self) -> tuple[Tile, ...]:
        """Result: the one type, shape included, of both operands.

        Raises TypeMismatch where they differ, are pointers or of a type that is only stored.
        """
        _refuse_stored(self, self.lhs, self.rhs)
        if self.lhs.type != self.rhs.type:
            raise self.fail("operands must have one type")
        if self.lhs.type.is_pointer:
            raise self.fail("does not take pointers")
        return (self.lhs.type,)


class IntegerBinary(Binary):
    """Base: binary operations of integers (i1 included)."""

    def infer(self) -> tuple[Tile, ...]:
        """As Binary; raises TypeMismatch for floats, too."""
        if not self.lhs.type.is_integer:
            raise self.fail("needs integers")
        return super().infer()


class FloatBinary(Binary):
    """Base: binary operations of floats."""

    def infer(self) -> tuple[Tile, ...]:
        """As Binary; raises TypeMismatch for integers, too."""
        if not self.lhs.type.is_float:
            raise self.fail("needs floating-point operands")
        return super().infer()


class Add(Binary, mnemonic="add"):
    """lhs + rhs."""


class Sub(Binary, mnemonic="sub"):
    """lhs - rhs."""


class Mul(Binary, mnemonic="mul"):
    """lhs * rhs."""


class Div(FloatBinary, mnemonic="div"):
    """lhs / rhs; ``precise`` asks for IEEE rounding, else f32 may be off by 2 ulp (PTX div.full)."""

    precise: bool = False


class Pow(FloatBinary, mnemonic="pow"):
    """lhs ** rhs with the special values of C's pow."""


class Atan2(FloatBinary, mnemonic="atan2"):
    """The angle in radians of the point (rhs, lhs), in [-pi, pi], with the special values of C's atan2."""


class IntDiv(IntegerBinary, mnemonic="int_div"):
    """lhs / rhs truncated towards zero; division by zero is undefined."""


class Rem(Binary, mnemonic="rem"):
    """Remainder with the sign of the dividend, for integers and floats (C's % and fmod)."""


class MulHigh(IntegerBinary, mnemonic="mul_high"):
    """The upper half of the double-width product of 32- or 64-bit integers."""


class And(IntegerBinary, mnemonic="and"):
    """Bitwise and."""


class Or(IntegerBinary, mnemonic="or"):
    """Bitwise or."""


class Xor(IntegerBinary, mnemonic="xor"):
    """Bitwise exclusive or."""


class Shl(IntegerBinary, mnemonic="shl"):
    """lhs << rhs; amounts at or above the width are undefined."""


class Shr(IntegerBinary, mnemonic="shr"):
    """lhs >> rhs: arithmetic for signed, logical for unsigned types."""


class Min(Binary, mnemonic="min"):
    """Smaller operand, of two zeros -0.0. NaN: ``propagate_nan`` gives NaN, else the other operand (IEEE 754-2019's
    minimum and minimumNumber, as on GPUs). Reductions take either zero."""

    propagate_nan: bool = False


class Max(Binary, mnemonic="max"):
    """Larger operand, of two zeros +0.0. NaN: ``propagate_nan`` gives NaN, else the other operand (IEEE 754-2019's
    maximum and maximumNumber, as on GPUs). Reductions take either zero."""

    propagate_nan: bool = False


class Compare(Op, mnemonic="compare", elementwise=True):
    """i1 result. Signedness is the operands'; floats compare ordered, except that ``ne`` is true for NaN."""

    lhs: Value
    rhs: Value
    predicate: str

    def infer(self) -> tuple[Tile, ...]:
        """Result: i1 in the shape of the operands, which have one type that is not only stored, else TypeMismatch."""
        _refuse_stored(self, self.lhs, self.rhs)
        if self.lhs.type != self.rhs.type:
            raise self.fail("operands must have one type")
        if self.predicate not in ("eq", "ne", "lt", "le", "gt", "ge"):
            raise self.fail(f"unknown predicate {self.predicate!r}")
        return (self.lhs.type.with_elem(I1),)


class Select(Op, mnemonic="select", elementwise=True):
    """condition ? on_true : on_false, elementwise; both sides are evaluated."""

    condition: Value
    on_true: Value
    on_false: Value

    def infer(self) -> tuple[Tile, ...]:
        """Result: the one type of both sides; the condition is i1 of their shape, else TypeMismatch."""
        if self.on_true.type != self.on_false.type:
            raise self.fail("both sides must have one type")
        if self.condition.type != self.on_true.type.with_elem(I1):
            raise self.fail("the condition must be i1 of the same shape")
        return (self.on_true.type,)


class Fma(Op, mnemonic="fma", elementwise=True):
    """x * y + z with one rounding."""

    x: Value
    y: Value
    z: Value

    def infer(self) -> tuple[Tile, ...]:
        """Result: the one float type of the three operands, else TypeMismatch."""
        if not (self.x.type == self.y.type == self.z.type and self.x.type.is_float):
            raise self.fail("needs three floating-point operands of one type")
        return (self.x.type,)


class Cast(Op, mnemonic="cast", elementwise=True):
    """Numeric conversion. To i1: x != 0. Float to integer truncates; out of range is undefined.

    ``rounding`` is "rtne" or "rtz" and matters for float to narrower float only.
    """

    x: Value
    to: Element
    rounding: str = "rtne"

    def infer(self) -> tuple[Tile, ...]:
        """Result: ``to`` in the operand's shape; raises TypeMismatch for pointers and unknown roundings."""
        if self.x.type.is_pointer or isinstance(self.to, Pointer):
            raise self.fail("pointers are converted by bitcast")
        _refuse_stored(self, self.x)
        if self.to.is_stored_only:
            raise self.fail(f"there is no such conversion to {self.to.spelling}: the language makes it of others")
        if self.rounding not in ("rtne", "rtz"):
            raise self.fail(f"unknown rounding {self.rounding!r}", hint='"rtne" or "rtz"')
        return (self.x.type.with_elem(self.to),)


class Bitcast(Op, mnemonic="bitcast", elementwise=True):
    """Same bits, another type of the same width; also 64-bit integer <-> pointer."""

    x: Value
    to: Element

    def infer(self) -> tuple[Tile, ...]:
        """Result: ``to`` in the operand's shape; raises TypeMismatch where the widths differ. A pointer has 64 bits."""
        if _bits(self.x.type.elem) != _bits(self.to):
            raise self.fail(f"cannot reinterpret as {self.to}: the widths differ")
        return (self.x.type.with_elem(self.to),)


class AddPtr(Op, mnemonic="addptr", elementwise=True):
    """Pointer plus offset counted in elements of the pointee."""

    pointer: Value
    offset: Value

    def infer(self) -> tuple[Tile, ...]:
        """Result: the pointer's type; the offset is an integer of its shape and not i1, else TypeMismatch."""
        offset = self.offset.type
        if not self.pointer.type.is_pointer or not offset.is_integer or offset.elem == I1:
            raise self.fail("needs a pointer and an integer offset")
        if self.pointer.type != offset.with_elem(self.pointer.type.elem):
            raise self.fail("pointer and offset must have one shape")
        return (self.pointer.type,)


class Hint(Op, mnemonic="hint", elementwise=True):
    """``x`` itself, with what its author promises per dimension (tl.multiple_of, max_contiguous, max_constancy).

    Each tuple is empty or has one entry per dimension (one entry for a scalar).
    """

    x: Value
    divisibility: tuple[int, ...] = ()
    contiguity: tuple[int, ...] = ()
    constancy: tuple[int, ...] = ()

    @property
    def written(self) -> str:
        """The function that makes such a promise."""
        return "multiple_of" if self.divisibility else "max_contiguous" if self.contiguity else "max_constancy"

    def infer(self) -> tuple[Tile, ...]:
        """Result: the operand's type; raises TypeMismatch unless each promise is empty or has max(1, rank) entries."""
        rank = max(1, self.x.type.rank)
        for promise in (self.divisibility, self.contiguity, self.constancy):
            if promise and len(promise) != rank:
                raise self.fail(f"needs one value per dimension ({rank}), got {list(promise)}")
        return (self.x.type,)


def _bits(element: Element) -> int:
    return I64.bits if isinstance(element, Pointer) else element.bits
