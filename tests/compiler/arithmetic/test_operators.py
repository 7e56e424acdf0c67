"""Every operator on every pair of element types, on every target, against C and Triton's documented types."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from deuteron.compiler.errors import TypeMismatch

NUMBERS = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64")
SIZE = 256
NUMERALS = (True, 2, -3, 200, 100_000, 0.5, -1.5, 1e-40, float("inf"), float("nan"))


@pytest.fixture(params=NUMBERS)
def left(request):
    return request.param


@pytest.fixture
def partners(left, request):
    """The types on the right: all, or the type itself and two that the seed chooses."""
    if request.config.getoption("--full-matrix"):
        return NUMBERS
    rng = np.random.default_rng(NUMBERS.index(left))
    return tuple({left, *rng.choice(NUMBERS, 2, replace=False).tolist()})


def crossed(reference, a, b, rng):
    """Every edge of ``a`` with every edge of ``b`` as far as there is room, then random pairs."""
    x, y = reference.values(a, SIZE, rng), reference.values(b, SIZE, rng)
    first, second = reference.edges(a), reference.edges(b)
    pairs = [(i, j) for i in range(len(first)) for j in range(len(second))]
    chosen = rng.permutation(len(pairs))[: SIZE // 2]
    x[: len(chosen)] = x[[pairs[n][0] for n in chosen]]
    y[: len(chosen)] = reference.values(b, SIZE, rng)[[pairs[n][1] for n in chosen]]
    return x, y


def add_operators(reference, case, x, a, y, b, quotient_steps, text="x {} y", numbers=(False, False), joins=True):
    """All operators, or the comparisons alone of a number that does not join at the type of the other operand."""
    for operator in (*(reference.OPERATORS if joins else ()), *reference.COMPARISONS):
        met = reference.meeting(a, b, operator, *numbers)
        if met is None:
            continue
        where, amount = None, y
        if operator in ("<<", ">>"):
            wide = reference.exact_integers(reference.converted(y, b, met))
            where = np.array([0 <= v < reference.width(met) for v in wide])
            amount = np.where(where, y, 0).astype(y.dtype)
        elif operator in ("//", "%") and not reference.is_float(met):
            low = reference.exact_integers(reference.converted(x, a, met))
            by = reference.exact_integers(reference.converted(y, b, met))
            least = -(1 << reference.width(met) - 1) if reference.is_signed(met) else 1
            where = np.array([v != 0 and not (u == least and v == -1) for u, v in zip(low, by, strict=True)])
        wanted, type = reference.operate(operator, x, a, amount, b, met)
        steps = quotient_steps if operator == "/" and type == "f32" else 0
        case.expect(text.format(operator), wanted, type, where, steps=steps)


def test_operators(reference, run_on_target, quotient_steps, left, partners):
    wrong = []
    for right in partners:
        rng = np.random.default_rng(len(wrong))
        x, y = crossed(reference, left, right, rng)
        case = reference.Case(x=(left, x), y=(right, y))
        add_operators(reference, case, x, left, y, right, quotient_steps)
        add_choices(reference, case, x, left, y, right)
        wrong += [f"{left}, {right}: {line}" for line in case.run(run_on_target)]
    assert not wrong, "\n".join(wrong)


def add_choices(reference, case, x, a, y, b):
    """Functions of two values that give one of them."""
    add_extrema(reference, case, x, a, y, b, "y")
    met = reference.meeting(a, b, "+")
    u, v = reference.converted(x, a, met), reference.converted(y, b, met)
    chosen = reference.operate("<", x, a, y, b, met)[0]
    case.expect("tl.where(x < y, x, y)", np.where(chosen, u, v), met)


def add_extrema(reference, case, x, a, y, b, shown):
    """minimum and maximum of ``x`` and what is written ``shown``; numbers count as tensors, and bf16 as f32. As in PTX
    -0.0 is below 0.0."""
    met = reference.meeting(*("f32" if type == "bf16" else type for type in (a, b)), "<")
    u, v = reference.converted(x, a, met), reference.converted(y, b, met)
    wide = (lambda z: z.astype(np.float64)) if reference.is_float(met) else (lambda z: z)
    zeros = (wide(u) == 0) & (wide(v) == 0)
    below = np.where(np.signbit(wide(u)), u, v), np.where(np.signbit(wide(u)), v, u)
    for name, plain, strict, zero in (
        ("minimum", np.fmin, np.minimum, below[0]),
        ("maximum", np.fmax, np.maximum, below[1]),
    ):
        found = np.where(zeros, zero, plain(wide(u), wide(v)).astype(u.dtype))
        case.expect(f"tl.{name}(x, {shown})", found, met)
        if reference.is_float(met):
            found = np.where(zeros, zero, strict(wide(u), wide(v)).astype(u.dtype))
            case.expect(f"tl.{name}(x, {shown}, propagate_nan=tl.PropagateNan.ALL)", found, met)


def test_numerals(reference, run_on_target, quotient_steps, left, request):
    """Python's numbers on either side: all of them, or three that the seed chooses."""
    wrong = []
    chosen = np.random.default_rng(NUMBERS.index(left)).permutation(len(NUMERALS))
    full = request.config.getoption("--full-matrix")
    for number in [NUMERALS[i] for i in (chosen if full else chosen[:3])]:
        rng = np.random.default_rng(1)
        x = reference.values(left, SIZE, rng)
        own = reference.type_of_number(number)
        joins = in_range(reference, left, own, number)
        y = np.full(SIZE, number, reference.NUMPY[own])
        case = reference.Case(x=(left, x))
        shown = f"float('{number}')" if number in (float("inf"),) or number != number else f"({number})"
        add_operators(reference, case, x, left, y, own, quotient_steps, f"x {{}} {shown}", (False, True), joins)
        add_operators(reference, case, y, own, x, left, quotient_steps, f"{shown} {{}} x", (True, False), joins)
        add_extrema(reference, case, x, left, y, own, shown)
        wrong += [f"{left}, {number}: {line}" for line in case.run(run_on_target)]
    assert not wrong, "\n".join(wrong)


def in_range(reference, type, own, number):
    met = reference.meeting(type, own, "+", False, True)
    return reference.is_float(met) or (not isinstance(number, float) and reference.holds(met, int(number)))


@pytest.mark.parametrize("operator", ["+", "&", "//", "%", "<<", "/"])
def test_refused(reference, left, operator):
    """What the table refuses is refused, with an error of its own."""
    for right in NUMBERS:
        if reference.meeting(left, right, operator) is None:
            with pytest.raises(TypeMismatch):
                reference.kernel([f"r0 = x {operator} y"], {"x": left, "y": right}, ["f64"], 16)


def test_unary(reference, run_on_target, left):
    x = reference.values(left, SIZE, np.random.default_rng(2))
    case = reference.Case(x=(left, x))
    if reference.is_float(left):
        case.expect("-x", -x, left)
        case.expect("tl.abs(x)", np.abs(x), left)
        case.expect("not x", x == 0, "i1")
    else:
        whole = reference.exact_integers(x)
        case.expect("-x", reference.wrapped(-whole, left), left)
        case.expect("~x", reference.wrapped(~whole, left), left)
        case.expect("tl.abs(x)", reference.wrapped(np.abs(whole), left), left)
        case.expect("not x", whole == 0, "i1")
    case.expect("+x", x, left)
    assert not case.run(run_on_target)


@pytest.mark.parametrize("type", ["i32", "u32", "i64", "u64"])
def test_umulhi_multiplies_bits(reference, run_on_target, target, type):
    """Signed integers, too, count as the unsigned ones of their bits, as Triton's mulhiui has it."""
    if target == "simulated" and reference.width(type) == 64:
        pytest.skip("the simulator has no i128")
    x, y = crossed(reference, type, type, np.random.default_rng(8))
    bits = reference.width(type)
    exact = [(int(a) % 2**bits * (int(b) % 2**bits)) >> bits for a, b in zip(x, y, strict=True)]
    case = reference.Case(x=(type, x), y=(type, y))
    case.expect("tl.umulhi(x, y)", reference.wrapped(np.array(exact, object), type), type)
    assert not case.run(run_on_target)


@pytest.mark.parametrize("type", ["f16", "bf16", "f32", "f64"])
def test_fma_rounds_once(reference, run_on_target, type):
    """Against rational arithmetic."""
    rng = np.random.default_rng(3)
    x, y = crossed(reference, type, type, rng)
    z = rng.permutation(reference.values(type, SIZE, rng))
    # Sums that lie next to the middle between two numbers: x * y + z with a tiny z.
    z[::4] = (x[::4].astype(np.float64) * y[::4].astype(np.float64) * 2.0**-30).astype(z.dtype)
    wide = [v.astype(np.float64) for v in (x, y, z)]
    plain = wide[0] * wide[1] + wide[2]
    exact = []
    for u, v, w, p in zip(*wide, plain, strict=True):
        if not np.isfinite([u, v, w]).all():
            exact.append(p)
            continue
        total = Fraction(float(u)) * Fraction(float(v)) + Fraction(float(w))
        exact.append(nearest(reference, total, type) if total else p)
    case = reference.Case(x=(type, x), y=(type, y), z=(type, z))
    case.expect("tl.fma(x, y, z)", np.array(exact, np.float64).astype(x.dtype), type)
    assert not case.run(run_on_target)


def nearest(reference, number, type):
    """A fraction other than 0 as the nearest number of ``type``, ties to even."""
    bits = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}[type]
    least, largest = (
        {"f16": -24, "bf16": -133, "f32": -149, "f64": -1074}[type],
        {"f16": 16, "f64": 1024}.get(type, 128),
    )
    sign = -1.0 if number < 0 else 1.0
    exponent = abs(number.numerator).bit_length() - number.denominator.bit_length()
    unit = max(exponent - bits, least)
    whole = round(abs(number) / Fraction(2) ** unit)
    if whole.bit_length() > bits:  # the exponent was one too small
        unit += 1
        whole = round(abs(number) / Fraction(2) ** unit)
    return sign * (math.inf if whole.bit_length() + unit > largest else math.ldexp(whole, unit))
