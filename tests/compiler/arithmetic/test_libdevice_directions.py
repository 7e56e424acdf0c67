"""Arithmetic and conversions in each direction of rounding on every target, against fractions without error."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

SIZE = 256
DTYPES = {"f32": np.float32, "f64": np.float64}
DIRECTIONS = ("rn", "rz", "rd", "ru")


def nearest(exact, dtype):
    """The float of ``dtype`` that is nearest to a fraction, ties to even."""
    try:
        guess = dtype(float(exact))
    except OverflowError:
        guess = dtype(math.inf if exact > 0 else -math.inf)
    if np.isinf(guess):
        guess = np.copysign(np.finfo(dtype).max, guess)
    around = [np.nextafter(guess, dtype(-np.inf)), guess, np.nextafter(guess, dtype(np.inf))]
    beyond = Fraction(2) ** int(np.finfo(dtype).maxexp)

    def distance(v):
        code = int(np.abs(v).view(f"u{v.itemsize}"))
        return abs((beyond * int(np.sign(v)) if np.isinf(v) else Fraction(float(v))) - exact), code & 1

    return min(around, key=distance)


def rounded(exact, dtype, direction):
    """A fraction that is not 0 as a float."""
    near = nearest(exact, dtype)
    if direction == "rn":
        return near
    low, high = dtype(-np.inf), dtype(np.inf)
    position = 0 if np.isinf(near) else (Fraction(float(near)) > exact) - (Fraction(float(near)) < exact)
    position = int(np.sign(near)) if np.isinf(near) else position
    below = np.nextafter(near, low) if position > 0 else near
    above = np.nextafter(near, high) if position < 0 else near
    towards_zero = below if exact > 0 else above
    return {"rd": below, "ru": above, "rz": towards_zero}[direction]


def computed(operate, ieee, zero, operands, dtype, direction):
    """``operate`` on fractions where it has a result that is not 0; else what IEEE 754 says."""
    if not all(math.isfinite(v) for v in operands):
        return ieee(*operands)
    try:
        exact = operate(*(Fraction(float(v)) for v in operands))
    except (ZeroDivisionError, ValueError):
        return ieee(*operands)
    if exact:
        made = rounded(exact, dtype, direction)
        return np.copysign(made, dtype(1 if exact > 0 else -1))
    return zero(direction, *operands)


def zero_of_sum(direction, x, y):
    """An exact 0: -0 downwards unless both are +0."""
    if np.signbit(x) == np.signbit(y):
        return x + y
    return x.dtype.type(-0.0 if direction == "rd" else 0.0)


def zero_of_fma(direction, x, y, z):
    sign = x.dtype.type(-0.0 if np.signbit(x) != np.signbit(y) else 0.0)
    return zero_of_sum(direction, sign, z)


def same_zero(operate):
    return lambda direction, *operands: operate(*operands)


# name: on fractions, on floats, and an exact zero.
ARITHMETIC = {
    "add": (lambda x, y: x + y, np.add, zero_of_sum),
    "sub": (lambda x, y: x - y, np.subtract, lambda direction, x, y: zero_of_sum(direction, x, -y)),
    "mul": (lambda x, y: x * y, np.multiply, same_zero(np.multiply)),
    "div": (lambda x, y: x / y, np.divide, same_zero(np.divide)),
    "rcp": (lambda x: 1 / x, lambda x: x.dtype.type(1) / x, None),
    "fma": (lambda x, y, z: x * y + z, lambda x, y, z: x * y + z, zero_of_fma),
}


def near_sums(type, rng, reference):
    """Three arrays: edges in many pairings, equal magnitudes, magnitudes far apart, tiny and huge numbers."""
    dtype = DTYPES[type]
    info = np.finfo(dtype)
    edges = np.array(reference.edges(type), dtype)
    columns = [rng.choice(edges, SIZE) for _ in range(3)]
    span = {"f32": 149, "f64": 1074}[type]
    for k, column in enumerate(columns):
        spread = rng.uniform(1, 2, SIZE) * rng.choice([-1, 1], SIZE)
        exponents = rng.integers(-30, 30, SIZE) if k < 2 else rng.integers(-80, 60, SIZE)
        wide = rng.integers(-span, int(info.maxexp), SIZE)
        half = rng.integers(-span // 2 - 12, -span // 2 + 12, SIZE) if k < 2 else -span
        chosen = rng.integers(0, 8, SIZE)
        exponents = np.select([chosen < 4, chosen < 6, chosen == 6], [exponents, wide, half], 0)
        column[32:] = np.ldexp(spread, exponents).astype(dtype)[32:]
    x, y, z = columns
    z[32::9] = -(x * y)[32::9]  # the sum is the error of the product
    y[33::11] = -np.nextafter(x, dtype(0))[33::11]
    return [c.copy() for c in columns]


@pytest.mark.parametrize("type", DTYPES)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(reference, run_on_target, type, name):
    x, y, z = near_sums(type, np.random.default_rng(len(name) + ord(name[1])), reference)
    operate, ieee, zero = ARITHMETIC[name]
    operands = {"rcp": (x,), "fma": (x, y, z)}.get(name, (x, y))
    names = "xyz"[: len(operands)]
    case = reference.Case(**{n: (type, v) for n, v in zip(names, operands, strict=True)})
    for direction in DIRECTIONS:
        wanted = [computed(operate, ieee, zero, v, DTYPES[type], direction) for v in zip(*operands, strict=True)]
        call = f"libdevice.{name}_{direction}({', '.join(names)})"
        case.expect(call, np.array(wanted, DTYPES[type]), type)
    assert not case.run(run_on_target)


def root(x, dtype, direction):
    """The square root of a float: the neighbour of the rounded root whose square says so."""
    near = np.sqrt(x)
    if direction == "rn" or not near > 0 or np.isinf(near):
        return near
    square = Fraction(float(near)) ** 2 - Fraction(float(x))
    if direction == "ru":
        return np.nextafter(near, dtype(np.inf)) if square < 0 else near
    return np.nextafter(near, dtype(0)) if square > 0 else near


@pytest.mark.parametrize("type", DTYPES)
def test_roots(reference, run_on_target, type):
    x, y, _ = near_sums(type, np.random.default_rng(3), reference)
    x[40:] = np.abs(x[40:])
    x[50:60] = x[50:60].astype(np.float16) ** 2
    case = reference.Case(x=(type, x))
    for direction in DIRECTIONS:
        wanted = np.array([root(v, DTYPES[type], direction) for v in x], DTYPES[type])
        case.expect(f"libdevice.sqrt_{direction}(x)", wanted, type)
    if type == "f32":
        wide = 1 / np.sqrt(x.astype(np.longdouble))
        case.expect("libdevice.rsqrt_rn(x)", wide.astype(np.float32), "f32")
    assert not case.run(run_on_target)


def test_reciprocal_roots_near_midpoints(reference, run_on_target):
    """Arguments whose result lies as close to the middle of two floats as any of 200,000."""
    rng = np.random.default_rng(9)
    x = rng.uniform(1, 4, 200_000).astype(np.float32)
    exact = 1 / np.sqrt(x.astype(np.longdouble))
    unit = np.spacing(exact.astype(np.float32)).astype(np.longdouble)
    middle = np.abs(np.abs(exact - exact.astype(np.float32)) / unit - 0.5)
    x = x[np.argsort(middle)[:SIZE]]
    case = reference.Case(x=("f32", x))
    case.expect("libdevice.rsqrt_rn(x)", (1 / np.sqrt(x.astype(np.longdouble))).astype(np.float32), "f32")
    assert not case.run(run_on_target)


def exactly(v):
    return int(v) if np.isfinite(v) else int(np.copysign(2**70, v))


TO_INTEGERS = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
SPELLED = {"int": "i32", "uint": "u32", "ll": "i64", "ull": "u64"}


@pytest.mark.parametrize("source", ["float", "double"])
def test_floats_to_integers(reference, run_on_target, source):
    type = {"float": "f32", "double": "f64"}[source]
    rng = np.random.default_rng(4)
    x = reference.values(type, SIZE, rng)
    limits = [2.0**k for k in (31, 32, 63, 64)]
    near = [v for k in limits for v in (k, np.nextafter(DTYPES[type](k), DTYPES[type](0)), -k, 1.5 * k)]
    x[60 : 60 + len(near)] = near
    x[90:120] = rng.integers(-50, 50, 30) + 0.5
    x[120:] *= DTYPES[type](2.0) ** rng.integers(0, 60, SIZE - 120)
    case = reference.Case(x=(type, x))
    for short, to in SPELLED.items():
        signed = to.replace("u", "i")
        half = 2 ** (reference.width(to) - 1)
        low, high = (0, 2 * half - 1) if to[0] == "u" else (-half, half - 1)
        nan = 0 if type == "f32" and to in ("i32", "u32") else -half
        for direction, whole in TO_INTEGERS.items():
            made = [nan if np.isnan(v) else min(max(exactly(v), low), high) for v in whole(x)]
            wanted = reference.wrapped(np.array(made, object), signed)
            case.expect(f"libdevice.{source}2{short}_{direction}(x)", wanted, signed)
    assert not case.run(run_on_target)


@pytest.mark.parametrize(("short", "type"), SPELLED.items())
def test_integers_to_floats(reference, run_on_target, short, type):
    x = reference.values(type, SIZE, np.random.default_rng(11))
    case = reference.Case(x=(type, x))
    for to, made in (("float", "f32"), ("double", "f64")):
        for direction in DIRECTIONS if to == "float" or type in ("i64", "u64") else ("rn",):
            wanted = [rounded(Fraction(int(v)), DTYPES[made], direction) if v else 0.0 for v in x]
            case.expect(f"libdevice.{short}2{to}_{direction}(x)", np.array(wanted, DTYPES[made]), made)
    assert not case.run(run_on_target)


def test_doubles_to_floats(reference, run_on_target):
    x, y, z = near_sums("f64", np.random.default_rng(12), reference)
    x[64:] = np.ldexp(np.copysign(1 + np.abs(y[64:] % 1), x[64:]), np.arange(-160, 160)[: SIZE - 64])
    x[200:] = z.astype(np.float32)[200:]
    case = reference.Case(x=("f64", x))
    for direction in DIRECTIONS:
        wanted = [computed(lambda v: v, lambda v: v, lambda direction, v: v, (v,), np.float32, direction) for v in x]
        case.expect(f"libdevice.double2float_{direction}(x)", np.array(wanted, np.float32), "f32")
    assert not case.run(run_on_target)


def test_numbers_and_halves_are_computed_in_f32(reference, run_on_target):
    h = np.array([0.1, 1.5, -2, 1e-3] * 4, np.float16)
    case = reference.Case(h=("f16", h))
    case.expect("libdevice.add_ru(h, 1e-12)", np.nextafter(h.astype(np.float32), np.float32(np.inf)), "f32")
    case.expect("libdevice.mul_rn(h, 3)", h.astype(np.float32) * 3, "f32")
    assert not case.run(run_on_target)


def test_products_are_not_fused(reference, run_on_target):
    rng = np.random.default_rng(13)
    x, y = (rng.uniform(1, 2, SIZE).astype(np.float32) for _ in range(2))
    case = reference.Case(x=("f32", x), y=("f32", y))
    case.expect("libdevice.mul_rn(x, y) - libdevice.mul_rn(y, x)", np.zeros(SIZE, np.float32), "f32")
    case.expect("libdevice.mul_rn(x, y) - 1", x * y - np.float32(1), "f32")
    assert not case.run(run_on_target)
