"""What every elementwise operation computes, in Python's numbers.

An operation that is added gets a row in CASES. Its operands should tell it from others: most numbers do, but not 0 and
1, which are their own squares.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from deuteron.compiler.ir import SCALARS, Builder, Op, Pointer, Scalar, Value
from deuteron.compiler.targets.interpreter.numbers import dtype_of
from deuteron.compiler.tile import elementwise as e

Array = np.ndarray
Number = int | float | bool
#: An operand of an operation on some type, which need not be its own.
Draw = Callable[[Scalar, np.random.Generator], Array]

#: Elements of a tile.
SIZE = 64
INTEGERS = tuple(f"{kind}{bits}" for kind in "iu" for bits in (8, 16, 32, 64))
FLOATS = ("f32", "f16", "bf16", "f64")
NUMBERS = (*FLOATS, *INTEGERS)
CASTS = ("i1", "f8e4m3", "f8e5m2", *NUMBERS)


# Operands ----------------------------------------------------------------------------------------------------


def between(least: float, most: float, scalar: Scalar, random: np.random.Generator) -> Array:
    """Numbers of a range, as far as the type has them."""
    if scalar.is_float:
        return random.uniform(least, most, SIZE).astype(dtype_of(scalar))
    low = 0 if scalar.kind == "uint" else math.ceil(least)
    return random.integers(low, math.floor(most), SIZE, np.int64, endpoint=True).astype(dtype_of(scalar))


near = partial(between, -4.5, 4.5)
positive = partial(between, 0.2, 4.5)
offsets = partial(between, -100, 100)


def spread(scalar: Scalar, random: np.random.Generator) -> Array:
    """Floats near 0; booleans; integers of the whole range, every second one of which is near 0."""
    if scalar.is_float:
        return near(scalar, random)
    dtype = dtype_of(scalar)
    if scalar.kind == "bool":
        return random.integers(0, 2, SIZE).astype(dtype)
    limits = np.iinfo(dtype)
    found = random.integers(limits.min, limits.max, SIZE, dtype, endpoint=True)
    found[::2] = between(-9, 9, scalar, random)[::2]
    return found


def divisors(scalar: Scalar, random: np.random.Generator) -> Array:
    """Not 0, nor -1, by which the least integer cannot be divided."""
    if scalar.is_float:
        return positive(scalar, random)
    found = spread(scalar, random)
    found[(found == 0) | (found == np.array(-1).astype(found.dtype))] = 3
    return found


def amounts(scalar: Scalar, random: np.random.Generator) -> Array:
    """Numbers of bits to shift by."""
    return random.integers(0, scalar.bits, SIZE).astype(dtype_of(scalar))


def few(scalar: Scalar, random: np.random.Generator) -> Array:
    """So few numbers that many are equal."""
    return random.integers(-2 if scalar.is_float or scalar.is_signed else 0, 2, SIZE).astype(dtype_of(scalar))


def multiples_of_four(scalar: Scalar, random: np.random.Generator) -> Array:
    """As a promise says."""
    return 4 * between(0, 30, scalar, random)


def known_everywhere(scalar: Scalar, random: np.random.Generator) -> Array:
    """Numbers that all types have, but for fractions and 0."""
    numbers = [0, 1, 2, 3, 5, 7, 10, 12, *([0.25, 0.5, 1.5, 2.5] if scalar.is_float else [])]
    return random.choice(np.array(numbers, np.float64), SIZE).astype(dtype_of(scalar))


def booleans(scalar: Scalar, random: np.random.Generator) -> Array:
    """Conditions, whatever is chosen from."""
    return random.integers(0, 2, SIZE).astype(bool)


def addresses(scalar: Scalar, random: np.random.Generator) -> Array:
    """As integers."""
    return random.integers(1 << 40, 1 << 41, SIZE)


# Cases -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An operation that ``make`` emits. It computes of elements of ``types`` what ``number`` does of numbers."""

    name: str
    make: Callable[..., Value]
    number: Callable[..., Number]
    types: tuple[str, ...]
    draws: tuple[Draw, ...]

    def operands(self, type: str) -> list[Array]:
        """An array for each operand, the same ones each time."""
        random = np.random.default_rng(len(self.name))
        return [draw(SCALARS[type], random) for draw in self.draws]

    def expected(self, operands: Sequence[Array], result: Scalar) -> Array:
        """The results in their type, rounded once."""
        numbers = [a.tolist() if a.dtype.kind in "iub" else a.astype(np.float64).tolist() for a in operands]
        made = [in_type(self.number(*row), result) for row in zip(*numbers, strict=True)]
        dtype = dtype_of(result)
        return np.array(made, np.float64 if result.is_float else dtype).astype(dtype)


def in_type(value: Number, scalar: Scalar) -> Number:
    """``value`` as a number of a type: integers wrap."""
    if scalar.is_float:
        return float(value)
    return bool(int(value) & 1) if scalar.kind == "bool" else scalar.wrap(int(value))


def case(
    kind: type[Op], number: Callable[..., Number], types: Sequence[str], *draws: Draw, **attributes: object
) -> Case:
    """An operation on tiles, with its attributes."""

    def make(build: Builder, *tiles: Value) -> Value:
        return build.emit(kind(*tiles, **attributes)).results[0]

    name = " ".join([kind.mnemonic, *(f"{key}={value}" for key, value in attributes.items())])
    return Case(name, make, number, tuple(types), draws)


def _quotient(x: int, y: int) -> int:
    return math.trunc(Fraction(x, y))


def _remainder(x: float, y: float) -> float:
    return math.fmod(x, y) if isinstance(x, float) else x - y * _quotient(x, y)


def _shifted(shift: Callable[[int, int], int]) -> Callable[[int, int], int]:
    """``shift`` by fewer bits than a number has: else it is undefined, and Python's take a lot of memory."""
    return lambda x, y: shift(x, y) if y < 64 else 0


def _upper_half(bits: int) -> Callable[[int, int], int]:
    return lambda x, y: (x * y) >> bits


def _same_bits(source: str, to: str) -> Case:
    def number(x: Number) -> Number:
        return np.array([x]).astype(dtype_of(SCALARS[source])).view(dtype_of(SCALARS[to]))[0].item()

    return case(e.Bitcast, number, [source], spread, to=SCALARS[to])


def _towards_zero(x: float) -> float:
    half = np.float16(x)
    return float(np.nextafter(half, np.float16(0)) if abs(half) > abs(x) else half)


def _moved(build: Builder, address: Value, offset: Value) -> Value:
    """A pointer to halves and its offset, by way of integers."""
    pointer = build.emit(e.Bitcast(address, Pointer(SCALARS["f16"]))).result
    return build.emit(e.Bitcast(build.emit(e.AddPtr(pointer, offset)).result, SCALARS["i64"])).result


_PREDICATES = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_BITS = {e.And: operator.and_, e.Or: operator.or_, e.Xor: operator.xor}
_FUNCTIONS = {
    e.Exp: math.exp, e.Exp2: lambda x: 2.0**x, e.Exp10: lambda x: 10.0**x, e.Sin: math.sin, e.Cos: math.cos,
    e.Tan: math.tan, e.Atan: math.atan, e.Tanh: math.tanh, e.Erf: math.erf, e.Floor: math.floor, e.Ceil: math.ceil,
    e.Trunc: math.trunc, e.RoundEven: round,
}  # fmt: skip
_FUNCTIONS_OF_POSITIVE = {
    e.Log: math.log, e.Log2: math.log2, e.Log10: math.log10, e.Sqrt: math.sqrt, e.Rsqrt: lambda x: x**-0.5,
    e.Reciprocal: lambda x: 1 / x,
}  # fmt: skip

CASES: dict[type[Op], list[Case]] = {
    **{kind: [case(kind, number, FLOATS, near)] for kind, number in _FUNCTIONS.items()},
    **{kind: [case(kind, number, FLOATS, positive)] for kind, number in _FUNCTIONS_OF_POSITIVE.items()},
    **{kind: [case(kind, number, [*INTEGERS, "i1"], spread, spread)] for kind, number in _BITS.items()},
    e.Neg: [case(e.Neg, operator.neg, NUMBERS, spread)],
    e.Not: [case(e.Not, operator.invert, [*INTEGERS, "i1"], spread)],
    e.Abs: [case(e.Abs, abs, NUMBERS, spread)],
    e.Add: [case(e.Add, operator.add, NUMBERS, spread, spread)],
    e.Sub: [case(e.Sub, operator.sub, NUMBERS, spread, spread)],
    e.Mul: [case(e.Mul, operator.mul, NUMBERS, spread, spread)],
    e.Div: [case(e.Div, operator.truediv, FLOATS, near, divisors)],
    e.Pow: [case(e.Pow, operator.pow, FLOATS, positive, near)],
    e.Atan2: [case(e.Atan2, math.atan2, FLOATS, near, near)],
    e.IntDiv: [case(e.IntDiv, _quotient, INTEGERS, spread, divisors)],
    e.Rem: [case(e.Rem, _remainder, NUMBERS, spread, divisors)],
    e.MulHigh: [case(e.MulHigh, _upper_half(bits), [f"i{bits}", f"u{bits}"], spread, spread) for bits in (32, 64)],
    e.Shl: [case(e.Shl, _shifted(operator.lshift), INTEGERS, spread, amounts)],
    e.Shr: [case(e.Shr, _shifted(operator.rshift), INTEGERS, spread, amounts)],
    e.Min: [case(e.Min, min, NUMBERS, spread, spread)],
    e.Max: [case(e.Max, max, NUMBERS, spread, spread)],
    e.Compare: [
        case(e.Compare, number, [*NUMBERS, "i1"], few, few, predicate=name) for name, number in _PREDICATES.items()
    ],
    e.Select: [case(e.Select, lambda c, x, y: x if c else y, [*NUMBERS, "i1"], booleans, spread, spread)],
    e.Fma: [
        case(e.Fma, lambda x, y, z: float(Fraction(x) * Fraction(y) + Fraction(z)), FLOATS, spread, spread, spread)
    ],
    e.Cast: [
        *(case(e.Cast, lambda x: x, CASTS, known_everywhere, to=SCALARS[to]) for to in CASTS if to != "i1"),
        case(e.Cast, bool, CASTS, known_everywhere, to=SCALARS["i1"]),
        case(e.Cast, _towards_zero, ["f32"], near, to=SCALARS["f16"], rounding="rtz"),
    ],
    e.Bitcast: [_same_bits(*pair) for pair in (("f32", "i32"), ("i64", "f64"), ("bf16", "i16"), ("u16", "f16"))],
    e.AddPtr: [Case("addptr", _moved, lambda address, offset: address + 2 * offset, INTEGERS, (addresses, offsets))],
    e.Hint: [case(e.Hint, lambda x: x, INTEGERS, multiples_of_four, divisibility=(4,))],
}
CASES[e.Exp] += [case(e.Exp, math.exp, FLOATS, near, accuracy=accuracy) for accuracy in ("1 ulp", "2 ulp")]
CASES[e.Sqrt].append(case(e.Sqrt, math.sqrt, FLOATS, positive, precise=True))
CASES[e.Div].append(case(e.Div, operator.truediv, FLOATS, near, divisors, precise=True))
for _extreme, _number in ((e.Min, min), (e.Max, max)):
    CASES[_extreme].append(case(_extreme, _number, NUMBERS, spread, spread, propagate_nan=True))
