"""Tolerances, and comparisons with expected tensors: what is wrong, where, and at which scale."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from deuteron.tuner.workloads import Tolerance, lanes
from deuteron.tuner.workloads.tolerance import EXACT, TOLERANCES, Comparison, Expected, typical
from deuteron.tuner.workloads.widen import count_nan, widened


def compare(name: str, got: np.ndarray, expected: np.ndarray, tolerance: Tolerance) -> Comparison:
    return Expected(name, expected, tolerance).compare(got)


def test_comparison_is_relative_to_the_size_of_the_values() -> None:
    expected = np.full((4, 4), 1e-3)
    good, bad = expected * (1 + 1e-6), expected * 1.1
    tolerance = TOLERANCES["f32"]
    assert compare("y", good, expected, tolerance).ok
    assert not compare("y", bad, expected, tolerance).ok


def test_comparison_says_what_is_wrong_where() -> None:
    expected = np.ones((3, 5))
    got = expected.copy()
    got[2, 1] = 1.5
    message = compare("y", got, expected, Tolerance(0.0, 0.01)).message
    assert message is not None
    assert message.startswith("output 'y': 1 of 15 elements are wrong; the worst at [2, 1]: got 1.5, expected 1")
    got[0, 0] = np.nan
    message = compare("y", got, expected, Tolerance(0.0, 0.01)).message
    assert message is not None and "2 of 15" in message and "never written?" in message


def test_a_few_huge_elements_do_not_hide_errors_of_the_others() -> None:
    rng = np.random.default_rng(0)
    expected = rng.standard_normal(1000)
    expected[7] = 1e9
    wrong = expected.copy()
    wrong[10:20] += 0.5
    assert not compare("y", wrong, expected, TOLERANCES["f32"]).ok
    assert compare("y", expected.astype(np.float32), expected, TOLERANCES["f32"]).ok
    # Mostly zeros, as after a ReLU: what is typical is told by the others.
    sparse = np.where(rng.random(1000) < 0.9, 0.0, expected)
    assert not compare("y", np.where(sparse == 0, 0.5, sparse), sparse, TOLERANCES["f16"]).ok


@pytest.mark.parametrize("draw", ["standard_normal", "standard_exponential", "random"])
def test_the_typical_value_of_usual_tensors_is_their_root_mean_square(draw: str) -> None:
    values = getattr(np.random.default_rng(1), draw)(10_000)
    assert typical(values) == pytest.approx(np.sqrt(np.mean(values**2)))
    assert typical(np.append(values, [np.nan, np.inf])) == typical(values)


def test_comparison_of_special_values() -> None:
    special = np.array([np.inf, -np.inf, np.nan, 1.0])
    tolerance = Tolerance(1e-3, 1e-3)
    assert compare("y", special, special, tolerance).ok
    assert not compare("y", np.array([1.0, -np.inf, np.nan, 1.0]), special, tolerance).ok
    assert not compare("y", np.array([np.inf, -np.inf, 0.0, 1.0]), special, tolerance).ok
    assert not compare("y", np.array([np.inf, np.inf, np.nan, 1.0]), special, tolerance).ok
    zeros = np.zeros(3)
    assert compare("y", zeros, zeros, tolerance).ok
    assert compare("i", np.array([1, 2, 3]), np.array([1, 2, 3]), Tolerance(0, 0)).ok
    assert not compare("i", np.array([1, 2, 4]), np.array([1, 2, 3]), Tolerance(0, 0)).ok


def test_equal_bits_are_equal_values_in_one_dtype_only() -> None:
    expected = np.ones(5, np.float16)
    assert compare("y", expected.copy(), expected, TOLERANCES["f16"]).ok
    assert not compare("y", expected.view(ml_dtypes.bfloat16), expected, TOLERANCES["f16"]).ok
    assert not compare("y", expected.view(np.int16), expected, TOLERANCES["f16"]).ok


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float16, np.float32, np.float64])
def test_nan_is_counted_in_every_float(dtype: type) -> None:
    values = np.zeros((3, 100_001), dtype)
    assert count_nan(values) == count_nan(np.zeros(3, np.int32)) == 0
    values[0, 0] = values[1, 70_000] = values[2, -1] = np.nan
    assert count_nan(values) == 3


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_of_64_bits_are_compared_exactly(dtype: type) -> None:
    expected = np.array([2**62 + 1, 2**53 + 1, 3], dtype)
    assert compare("y", expected.copy(), expected, EXACT).ok
    assert not compare("y", expected - np.array([1, 0, 0], dtype), expected, EXACT).ok
    assert not compare("y", expected - np.array([0, 1, 0], dtype), expected, EXACT).ok


def test_large_values_are_no_excuse() -> None:
    """Their squares are beyond float64."""
    expected = np.array([1e200, 2e200, -3e200])
    assert compare("y", expected * (1 + 1e-15), expected, TOLERANCES["f64"]).ok
    assert not compare("y", expected * 1.1, expected, TOLERANCES["f64"]).ok


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float16, np.int32], ids=str
)
@pytest.mark.parametrize("count", [1, 65536, 3 * 131072 + 7])
def test_widening_keeps_every_value(dtype: type, count: int) -> None:
    """All patterns of up to 16 bits, NaN and infinities too, also where they do not lie one behind the other."""
    bits = np.arange(2 * count, dtype=np.uint32).astype(f"u{np.dtype(dtype).itemsize}")
    values = bits.view(dtype)
    for given in (values[:count], values[::2], values.reshape(2, count).T):
        with np.errstate(invalid="ignore"):
            expected = given.astype(np.float64)
        got = widened(given)
        assert got.dtype == np.float64 and got.flags.c_contiguous
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("place", [0, 131071, 131072, 400_000])
def test_one_wrong_element_of_a_large_tensor_is_found(monkeypatch: pytest.MonkeyPatch, place: int, cores: int) -> None:
    monkeypatch.setattr(lanes.os, "sched_getaffinity", lambda _process: set(range(cores)))
    monkeypatch.setattr(lanes, "LEAST_CHUNKS", 1)
    values = np.linspace(-1, 1, 400_001)
    got = values.astype(np.float32)
    got[place] += 0.01
    found = Expected("c", values, TOLERANCES["f32"]).compare(got)
    assert found.message is not None and f"1 of 400001 elements are wrong; the worst at [{place}]" in found.message


def test_what_is_typical_of_a_large_tensor_is_that_of_a_sample() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((1024, 3072))
    values[0, :4] = 1e6
    assert typical(values) == pytest.approx(typical(values[:256]), rel=0.02)


def test_what_is_allowed_follows_the_values_of_a_large_tensor() -> None:
    values = np.linspace(1, 1000, 400_001)
    allowed = Expected("c", values, Tolerance(atol=0.0, rtol=1e-3))
    assert allowed.compare(values * 1.0009).ok
    assert not allowed.compare(values * 1.0011).ok


def test_messages_of_what_must_be_equal_name_no_tolerance() -> None:
    """And integers in full."""
    message = compare("i64", np.array([2**60 + 1]), np.array([2**60]), EXACT).message
    assert message is not None and message.endswith("got 1152921504606846977, expected 1152921504606846976")
    message = compare("i1", np.array([True]), np.array([False]), EXACT).message
    assert message is not None and message.endswith("got True, expected False")
