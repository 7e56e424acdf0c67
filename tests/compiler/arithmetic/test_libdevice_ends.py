"""Functions of libdevice where their numbers end: arguments beyond every fraction, results below every number."""

from __future__ import annotations

import numpy as np
import pytest

SIZE = 64


@pytest.fixture
def evaluate(reference, run_on_target):
    """``evaluate(expression, result, x=(type, values), ...)``: its values in the type ``result``."""

    def call(expression, result, **arguments):
        types = {name: type for name, (type, _) in arguments.items()}
        function = reference.kernel([f"r0 = {expression}"], types, [result], SIZE)
        made = np.ones(SIZE, reference.NUMPY[result])
        run_on_target(function, (1,), [*(values.copy() for _, values in arguments.values()), made])
        return made

    return call


def test_the_largest_numbers_are_even(evaluate):
    """Twice the largest number is none."""
    largest = np.finfo(np.float64).max
    x = np.resize([largest, -largest, 2.0**53 + 2, -(2.0**1023)], SIZE)
    sine = evaluate("libdevice.sinpi(x)", "f64", x=("f64", x))
    np.testing.assert_array_equal(sine, 0)
    np.testing.assert_array_equal(np.signbit(sine), np.signbit(x))
    np.testing.assert_array_equal(evaluate("libdevice.cospi(x)", "f64", x=("f64", x)), 1)


def test_a_gamma_function_below_every_number_keeps_its_sign(evaluate):
    """From one integer to the next the gamma function of negative numbers changes its sign."""
    x = -np.linspace(184.3, 1200.7, SIZE)
    made = evaluate("libdevice.tgamma(x)", "f64", x=("f64", x))
    assert not made.any()
    np.testing.assert_array_equal(np.signbit(made), np.floor(x) % 2 == 1)


def test_a_product_beyond_every_number_is_finite_before_it_is_rounded(evaluate):
    """So a sum of it and an infinity is that infinity, and no difference of two."""
    x, y, z = np.resize([(1e200, 1e200, -np.inf), (-1e200, 1e300, np.inf), (np.inf, 2.0, -np.inf)], (SIZE, 3)).T
    made = evaluate("tl.fma(x, y, z)", "f64", x=("f64", x), y=("f64", y), z=("f64", z))
    np.testing.assert_array_equal(made, np.where(np.isinf(x), np.nan, z))


@pytest.mark.parametrize(("type", "integer"), [("f32", "i32"), ("f32", "i64"), ("f64", "i64"), ("f32", "i16")])
def test_powers_by_integers_have_the_sign_of_the_integers(reference, evaluate, type, integer):
    """Odd integers beyond the digits of the float type are odd still."""
    x = np.array([-2.0, -0.5, -0.0, -1.0, -np.inf, 1.0, -3.0, 0.0], reference.NUMPY[type])
    ends = np.iinfo(reference.NUMPY[integer])
    n = np.array([ends.max, ends.min, ends.max - 1, ends.min + 1, 3, -2, 0, 1], reference.NUMPY[integer])
    x, n = (v.ravel() for v in np.meshgrid(x, n))
    made = evaluate("libdevice.pow(x, n)", type, x=(type, x), n=(integer, n))
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        # The last digit of the large exponents changes the sign of these powers alone.
        size = np.float_power(np.abs(x), n.astype(np.float64)).astype(x.dtype)
    np.testing.assert_array_equal(made, np.where(n % 2 != 0, np.copysign(size, x), size))
    np.testing.assert_array_equal(np.signbit(made), np.signbit(x) & (n % 2 != 0))
