"""Numbers as arguments: floats beyond their type and integers beyond theirs, compiled and under the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import LaunchError


@deuteron.jit
def single(y, s):
    tl.store(y, s)


@deuteron.jit
def half(y, s: tl.float16):
    tl.store(y, s.to(tl.float32))


@deuteron.jit
def brain(y, s: tl.bfloat16):
    tl.store(y, s.to(tl.float32))


@deuteron.jit
def double(y, s: tl.float64):
    tl.store(y, s)


@deuteron.jit
def e4m3(y, s: tl.float8e4nv):
    tl.store(y, s.to(tl.float32))


@deuteron.jit
def e5m2(y, s: tl.float8e5):
    tl.store(y, s.to(tl.float32))


@deuteron.jit
def e4b8(y, s: tl.float8e4b8):
    tl.store(y, s.to(tl.float32))


@deuteron.jit
def byte(y, n: tl.int8):
    tl.store(y, n.to(tl.float32))


@deuteron.jit
def unsigned(y, n: tl.uint32):
    tl.store(y, n.to(tl.float32))


@pytest.fixture(params=[False, True], ids=["compiled", "interpreted"], autouse=True)
def ways(request: Any) -> Iterator[None]:
    with knobs.interpret.scope(request.param):
        yield


def result(kernel: Any, number: Any, dtype: Any = np.float32) -> float:
    y = np.zeros(1, dtype)
    kernel[(1,)](y, number)
    return float(y[0])


@pytest.mark.parametrize("kernel", [single, half, brain])
def test_floats_beyond_their_type_are_infinite(kernel: Any) -> None:
    """As after the cast in C that Triton's launches have: the least float64 is what masks are made of."""
    for number in (1e40, np.finfo(np.float64).max, np.float64(1e300), 2.0**128 - 2.0**103):
        assert result(kernel, number) == np.inf
        assert result(kernel, -number) == -np.inf


def test_the_largest_stay_finite() -> None:
    largest = float(np.finfo(np.float32).max)
    assert result(single, largest) == result(single, np.nextafter(2.0**128 - 2.0**103, 0)) == largest
    assert result(half, 65519.9) == 65504
    assert [result(half, n) for n in (65520, 65520.0, 1e5)] == [np.inf] * 3
    assert result(double, 1e300, np.float64) == 1e300


def test_bfloat16_is_rounded_once() -> None:
    assert result(brain, 1 + 2**-8 + 2**-40) == 1 + 2**-7


@pytest.mark.parametrize(("kernel", "largest"), [(e4m3, 448), (e5m2, 57344), (e4b8, 240)])
def test_8_bit_floats_saturate(kernel: Any, largest: float) -> None:
    assert [result(kernel, n) for n in (1.5, -2, 1e6, -1e300)] == [1.5, -2, largest, -largest]
    assert np.isnan(result(kernel, np.nan))


@pytest.mark.parametrize(
    ("kernel", "number", "message"),
    [
        (byte, 300, "argument 'n': int 300 does not fit i8\nhint: i8 has -128 to 127"),
        (byte, -129, "argument 'n': int -129 does not fit i8"),
        (unsigned, -1, "argument 'n': int -1 does not fit u32\nhint: u32 has 0 to 4294967295"),
    ],
)
def test_integers_beyond_their_type_are_named(kernel: Any, number: int, message: str) -> None:
    with pytest.raises(LaunchError, match=message) as error:
        result(kernel, number)
    assert "[" not in str(error.value)  # no list of addresses


def test_integers_at_the_ends_of_their_type() -> None:
    assert [result(byte, n) for n in (-128, 127)] == [-128, 127]
    assert result(unsigned, 2**31 - 1) == 2**31
