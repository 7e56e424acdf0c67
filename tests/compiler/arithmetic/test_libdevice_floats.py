"""Functions of libdevice that take floats apart, on every target, against C's own through NumPy and Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

SIZE = 256
DTYPES = {"f32": np.float32, "f64": np.float64}


def numbers(reference, type, seed):
    """Edges in many pairings, then numbers of every exponent, some of them small integers."""
    rng = np.random.default_rng(seed)
    edges = np.array(reference.edges(type), DTYPES[type])
    x, y = (rng.choice(edges, SIZE) for _ in range(2))
    low, high = {"f32": (-149, 128), "f64": (-1074, 1024)}[type]
    for v in (x, y):
        exponents = rng.integers(low, high, SIZE)
        v[160:] = np.ldexp(rng.uniform(-2, 2, SIZE), exponents - 1)[160:].astype(v.dtype)
        v[200:230] = rng.integers(-12, 12, 30) / 2
    x[200:215] /= 2
    return x, y


@pytest.mark.parametrize("type", DTYPES)
def test_of_two(reference, run_on_target, type):
    x, y = numbers(reference, type, 1)
    x[150:160] = y[150:160]
    case = reference.Case(x=(type, x), y=(type, y))
    case.expect("libdevice.nextafter(x, y)", np.nextafter(x, y), type)
    case.expect("libdevice.nextafter(x, 0)", np.nextafter(x, x.dtype.type(0)), type)
    difference = np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0)).astype(x.dtype)
    case.expect("libdevice.fdim(x, y)", difference, type)
    assert not case.run(run_on_target)


def remainder(a, b):
    try:
        return math.remainder(a, b)
    except ValueError:
        return math.nan


@pytest.mark.parametrize("type", DTYPES)
def test_remainders(reference, run_on_target, type):
    x, y = numbers(reference, type, 2)
    y[230:] = x[230:] * np.float32(1.37)
    case = reference.Case(x=(type, x), y=(type, y))
    wanted = [remainder(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    case.expect("libdevice.remainder(x, y)", np.array(wanted, x.dtype), type)
    assert not case.run(run_on_target)


@pytest.mark.parametrize("type", DTYPES)
def test_exponents(reference, run_on_target, type):
    x, _ = numbers(reference, type, 3)
    finite = np.isfinite(x) & (x != 0)
    exponents = np.frexp(np.where(finite, x, 1))[1] - 1
    special = np.where(np.isinf(x), 2**31 - 1, -(2**31))
    case = reference.Case(x=(type, x))
    case.expect("libdevice.ilogb(x)", np.where(finite, exponents, special).astype(np.int32), "i32")
    ends = np.where(x == 0, -np.inf, np.abs(x))
    case.expect("libdevice.logb(x)", np.where(finite, exponents, ends).astype(x.dtype), type)
    case.expect("libdevice.signbit(x)", np.signbit(x).astype(np.int32), "i32")
    assert not case.run(run_on_target)


@pytest.mark.parametrize("type", DTYPES)
def test_scaling(reference, run_on_target, type):
    x, _ = numbers(reference, type, 4)
    rng = np.random.default_rng(5)
    span = {"f32": 290, "f64": 2150}[type]
    n = rng.integers(-span, span, SIZE).astype(np.int32)
    n[:4] = [2**31 - 1, -(2**31), 0, 1]
    x[:2] = 1.5
    near = {"f32": -149, "f64": -1074}[type] - np.frexp(x[160:])[1] + rng.integers(-3, 30, SIZE - 160)
    n[160:] = np.where(rng.random(SIZE - 160) < 0.5, near, n[160:])
    case = reference.Case(x=(type, x), n=("i32", n))
    # In f64 a scaled f32 is exact, so it is rounded once.
    wide = np.clip(n, -5000, 5000) if type == "f64" else np.clip(n, -600, 600)
    wanted = np.ldexp(x.astype(np.float64), wide).astype(x.dtype)
    case.expect("libdevice.ldexp(x, n)", wanted, type)
    case.expect("libdevice.scalbn(x, n)", wanted, type)
    assert not case.run(run_on_target)
