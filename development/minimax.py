"""Where the polynomials of compiler/llvm/coefficients.py come from: ``python development/minimax.py`` prints that
module, and ``python development/minimax.py libdevice`` compiler/language/libdevice/coefficients.py.

For f32 each is a minimax fit in the relative error of the function that it is used in, found by Lawson's iteration
(least squares on a dense Chebyshev grid, reweighted by the error until it is level), in f64. The coefficients are then
rounded to f32 one after the other, lowest first, refitting the rest. For f64 each is a truncated Chebyshev series,
summed in extended precision where the function's own series is known.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """sum(c[i] * x**i) ~ target(x) on [low, high], with errors weighted by ``weight``."""

    target: Callable[[Array], Array]
    weight: Callable[[Array], Array]
    low: float
    high: float
    degree: int


def _elementwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    return lambda x: np.array([function(float(v)) for v in x])


def _one(x: Array) -> Array:
    return np.ones_like(x)


def _series(x: Array, terms: list[float]) -> Array:
    return np.asarray(np.polynomial.polynomial.polyval(x, terms), dtype=np.float64)


def _log1p_tail(x: Array) -> Array:
    """(log1p(x) - x + x**2/2) / x**3, by its series near 0."""
    near = np.abs(x) < 0.02
    series = _series(x, [(-1) ** k / (k + 3) for k in range(12)])
    safe = np.where(near, 1.0, x)
    return np.where(near, series, (np.log1p(safe) - safe + safe * safe / 2) / safe**3)


def _log2_tail(x: Array) -> Array:
    """(log2(1 + x) - x/ln 2) / x**2, by its series near 0."""
    near = np.abs(x) < 0.02
    series = _series(x, [-((-1) ** k) / (k + 2) for k in range(12)])
    safe = np.where(near, 1.0, x)
    return np.where(near, series, (np.log1p(safe) - safe) / safe**2) / math.log(2)


def _sin_tail(z: Array) -> Array:
    """(sin(r) - r) / r**3 with z = r**2: its own series is exact to f64 on [0, 0.62]."""
    return _series(z, [(-1) ** (k + 1) / math.factorial(2 * k + 3) for k in range(10)])


def _cos_tail(z: Array) -> Array:
    """(cos(r) - 1 + r**2/2) / r**4 with z = r**2."""
    return _series(z, [(-1) ** k / math.factorial(2 * k + 4) for k in range(10)])


def _tan_tail(z: Array) -> Array:
    """(tan(r) - r) / r**3 with z = r**2."""
    r = np.sqrt(np.maximum(z, 1e-3))
    series = _series(z, [1 / 3, 2 / 15, 17 / 315, 62 / 2835, 1382 / 155925])
    return np.where(z < 1e-3, series, (np.tan(r) - r) / r**3)


def _tanh_tail(z: Array) -> Array:
    """(tanh(r) - r) / r**3 with z = r**2."""
    r = np.sqrt(np.maximum(z, 1e-4))
    near = -1 / 3 + z * (2 / 15 - z * (17 / 315 - z * 62 / 2835))
    return np.where(z < 1e-4, near, (np.tanh(r) - r) / r**3)


def _erf_ratio(z: Array) -> Array:
    """erf(r)/r - 1 with z = r**2."""
    r = np.sqrt(z)
    ratio = _elementwise(math.erf)(r) / np.maximum(r, 1e-6)
    return np.where(z < 1e-12, 2 / math.sqrt(math.pi), ratio) - 1


def _erfc_exponent(x: Array) -> Array:
    """-log(erfc(x))."""
    return -np.log(_elementwise(math.erfc)(x))


def _atan_tail(z: Array) -> Array:
    """(atan(r) - r) / r**3 with z = r**2."""
    r = np.sqrt(np.maximum(z, 1e-3))
    series = _series(z, [(-1) ** (k + 1) / (2 * k + 3) for k in range(8)])
    return np.where(z < 1e-3, series, (np.arctan(r) - r) / r**3)


def _twice_atanh_tail(z: Array) -> Array:
    """(2 atanh(s/2) - s) / s**3 with z = s**2: its own series is exact to f64 on [0, 0.12]."""
    return _series(z, [1 / ((2 * k + 3) * 4 ** (k + 1)) for k in range(12)])


_QUARTER = (math.pi / 4) ** 2 * 1.001
_HALF_OCTAVE = (math.sqrt(0.5) - 1.0005, math.sqrt(2) - 0.9995)

FITS: dict[str, Fit] = {
    "EXP": Fit(np.exp, lambda x: np.exp(-x), -0.34665, 0.34665, 6),
    "EXP2": Fit(np.exp2, lambda x: np.exp2(-x), -0.5001, 0.5001, 6),
    "LOG_TAIL": Fit(_log1p_tail, lambda x: x**2, *_HALF_OCTAVE, 7),
    "LOG2_TAIL": Fit(_log2_tail, lambda x: np.abs(x), *_HALF_OCTAVE, 9),
    "SIN_TAIL": Fit(_sin_tail, lambda z: z, 0.0, _QUARTER, 2),
    "COS_TAIL": Fit(_cos_tail, lambda z: z**2, 0.0, _QUARTER, 2),
    "TAN_TAIL": Fit(_tan_tail, lambda z: z, 0.0, _QUARTER, 5),
    "TANH_TAIL": Fit(_tanh_tail, lambda z: z, 0.0, 1.0938**2, 6),
    "ERF_RATIO": Fit(_erf_ratio, _one, 0.0, 0.8204**2, 5),
    "ATAN_TAIL": Fit(_atan_tail, lambda z: z, 0.0, 1.02, 8),
    "TWICE_ATANH_TAIL": Fit(_twice_atanh_tail, lambda z: z, 0.0, 0.1178, 3),
    "ERFC_LOG2": Fit(lambda x: 2 - _erfc_exponent(x) / math.log(2), lambda x: np.exp(-_erfc_exponent(x)), 0.82, 4.0, 6),
}


def fit(problem: Fit) -> tuple[float, ...]:
    """The coefficients of ``problem``, lowest first, each exactly an f32."""
    nodes = np.cos(np.pi * (np.arange(2000) + 0.5) / 2000)
    x = (problem.low + problem.high) / 2 + (problem.high - problem.low) / 2 * nodes
    target, weight = problem.target(x), problem.weight(x)
    found: list[float] = []
    for first in range(problem.degree + 1):
        rest = target - np.polynomial.polynomial.polyval(x, [*found, 0.0])
        coefficients = _lawson(x, rest, weight, first, problem.degree)
        found.append(float(np.float32(coefficients[0])))
    return tuple(found)


def _lawson(x: Array, target: Array, weight: Array, first: int, last: int) -> Array:
    """Coefficients of x**first .. x**last."""
    scale = float(np.max(np.abs(x)))
    basis = np.stack([(x / scale) ** k for k in range(first, last + 1)], axis=1)
    emphasis = np.full(x.shape, 1.0 / len(x))
    best, best_error = np.zeros(last - first + 1), math.inf
    for _ in range(60):
        rows = np.sqrt(emphasis) * weight
        solution = np.linalg.lstsq(basis * rows[:, None], target * rows, rcond=None)[0]
        error = np.abs(basis @ solution - target) * weight
        if error.max() < best_error:
            best, best_error = solution, float(error.max())
        emphasis = emphasis * np.maximum(error, error.max() * 1e-3)
        emphasis /= emphasis.sum()
    return best / scale ** np.arange(first, last + 1)


Extended = NDArray[np.longdouble]


@dataclass(frozen=True, slots=True)
class Series:
    """A function for f64: its power series terms(k), or values where it has none, ``extended`` ones if they can be had;
    kept up to ``degree``.
    """

    low: float
    high: float
    degree: int
    term: Callable[[int], np.longdouble] | None = None
    values: Callable[[Array], Array] | None = None
    extended: Callable[[Extended], Extended] | None = None


def _factorial(n: int) -> np.longdouble:
    result = np.longdouble(1)
    for k in range(2, n + 1):
        result *= k
    return result


def _tanh_terms() -> list[np.longdouble]:
    """Of (tanh(r) - r) / r**3 in z = r**2, from tanh' = 1 - tanh**2."""
    t = [np.longdouble(1)]
    for k in range(1, 60):
        square = sum((t[i] * t[k - 1 - i] for i in range(k)), np.longdouble(0))
        t.append(-square / (2 * k + 1))
    return t[1:]


_TANH = _tanh_terms()
_PI = np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16)
_TWO_OVER_ROOT_PI = np.longdouble(2) / np.sqrt(_PI)
_LN2 = np.longdouble(0.6931471805599453) + np.longdouble(2.3190468138462996e-17)

SERIES: dict[str, Series] = {
    "EXP_64": Series(-0.3467, 0.3467, 11, lambda k: 1 / _factorial(k)),
    "EXP2_64": Series(-0.5001, 0.5001, 12, lambda k: _LN2**k / _factorial(k)),
    "ATANH_TAIL_64": Series(0.0, 0.02945, 7, lambda k: 2 / np.longdouble(2 * k + 3)),
    "ATANH_REST_64": Series(0.0, 0.02945, 8, lambda k: 2 / np.longdouble(2 * k + 5)),
    "ATAN_TAIL_64": Series(0.0, 0.4143**2, 13, lambda k: (-1) ** (k + 1) / np.longdouble(2 * k + 3)),
    "SIN_TAIL_64": Series(0.0, _QUARTER, 6, lambda k: (-1) ** (k + 1) / _factorial(2 * k + 3)),
    "COS_TAIL_64": Series(0.0, _QUARTER, 6, lambda k: (-1) ** k / _factorial(2 * k + 4)),
    "TANH_TAIL_64": Series(0.0, 0.626**2, 11, lambda k: _TANH[k]),
    "ERF_RATIO_64": Series(
        0.0,
        1.0,
        13,
        lambda k: _TWO_OVER_ROOT_PI * (-1) ** k / (_factorial(k) * (2 * k + 1)) - (k == 0),
    ),
    # In t = (x - 3.5) / 2.5; 1 - exp(-p) needs it only where erfc is not small.
    "ERFC_EXPONENT_64": Series(-1.0, 1.0, 24, values=lambda t: _erfc_exponent(3.5 + 2.5 * t)),
}


def _asin_term(k: int) -> np.longdouble:
    """Of (asin(r) - r) / r**3 in z = r**2."""
    n = k + 1
    return _factorial(2 * n) / (np.longdouble(4) ** n * _factorial(n) ** 2 * (2 * n + 1))


def _erfcx(x: Extended) -> Extended:
    """exp(x**2) erfc(x) of x >= 0: Kummer's series below 2, the continued fraction of Laplace above."""
    low, high = np.minimum(x, 2), np.maximum(x, 2)
    term, total = low, low.copy()
    for n in range(1, 200):
        term = term * (2 * low * low / (2 * n + 1))
        total = total + term
    near = np.exp(low * low) - _TWO_OVER_ROOT_PI * total
    below = high
    for n in range(400, 0, -1):
        below = high + np.longdouble(n) / 2 / below
    scaled: Extended = np.where(x < 2, near, _TWO_OVER_ROOT_PI / 2 / below)
    return scaled


def _scaled_erfcx(t: Extended) -> Extended:
    """(1/2 + x) erfcx(x) with x = 4 (1 + t) / (1 - t) (Shepherd and Laframboise, Mathematics of Computation 36)."""
    x = 4 * (1 + t) / (1 - t)
    return (x + np.longdouble(0.5)) * _erfcx(x)


#: Of compiler/language/libdevice.
LIBDEVICE: dict[str, Series] = {
    "ASIN_TAIL": Series(0.0, 0.25, 14, _asin_term),
    "SCALED_ERFCX": Series(-1.0, 1.0, 25, extended=_scaled_erfcx),
}


def _expm1_tail(x: Array) -> Array:
    """(exp(x) - 1 - x) / x**2, by its series."""
    return _series(x, [1 / math.factorial(k + 2) for k in range(14)])


def _inverse_erf_ratio(x: Array) -> Array:
    """erfinv(x) / x, by its series near 0; the quantile of the normal distribution is sqrt(2) erfinv(2 p - 1)."""
    quantile = statistics.NormalDist().inv_cdf
    far = np.maximum(x, 0.02)
    found = _elementwise(lambda v: -quantile((1 - v) / 2) / math.sqrt(2))(far) / far
    z = x * x
    series = _series(z, [1, math.pi / 12, 7 * math.pi**2 / 480, 127 * math.pi**3 / 40320])
    return np.where(x < 0.02, math.sqrt(math.pi) / 2 * series, found)


def _inverse_erf_center(t: Array) -> Array:
    """erfinv(x) / x - 1/2 with t + 1 = -log(1 - x**2)."""
    return -0.5 + _inverse_erf_ratio(np.sqrt(-np.expm1(-np.maximum(t + 1, 0))))


def _inverse_erf_tail(t: Array) -> Array:
    """erfinv(x) / x - 1/2 with t + 10.5 = -log(1 - x**2), from what x lacks of 1."""
    square = np.exp(-(t + 10.5))
    x = np.sqrt(1 - square)
    quantile = statistics.NormalDist().inv_cdf
    return np.asarray(_elementwise(lambda y: -quantile(y / 2) / math.sqrt(2))(square / (1 + x)) / x - 0.5)


def _log_gamma_slope(y: Array) -> Array:
    """log(gamma(x)) / ((x - 1) (x - 2)) with x = y + 2."""
    return np.asarray(_elementwise(math.lgamma)(y + 2) / ((y + 1) * y))


def _log_gamma_rest(z: Array) -> Array:
    """What Stirling's formula lacks of the logarithm of the gamma function, times x, with z = x**-2; by its series for
    large x."""
    x = 1 / np.sqrt(np.maximum(z, 1e-4))
    lacking = _elementwise(math.lgamma)(x) - (x - 0.5) * np.log(x) + x - math.log(2 * math.pi) / 2
    return np.where(z < 1e-4, _series(z, [1 / 12, -1 / 360, 1 / 1260]), lacking * x)


def _sine_of_turns(z: Array) -> Array:
    """sin(pi r) / (pi r) with z = r**2, times 2**64."""
    return np.asarray(np.sinc(np.sqrt(z)) * 2.0**64)


def _asin_tail(z: Array) -> Array:
    return _series(z, [float(_asin_term(k)) for k in range(40)])


def _erfcx_by_inverse(r: Array) -> Array:
    """(1 + x/2) erfcx(x) with r + 1/2 = 1 / (1 + x/2)."""
    x = np.maximum(1 - 2 * r, 0) / (r + 0.5)
    return np.asarray(_erfcx(x.astype(np.longdouble)) * (1 + x / 2), dtype=np.float64)


#: Of compiler/language/libdevice, for f32.
LIBDEVICE_F32: dict[str, Fit] = {
    "EXPM1_TAIL_F32": Fit(_expm1_tail, np.abs, -0.4205, 0.4205, 5),
    "LOG1P_TAIL_F32": Fit(_log1p_tail, lambda x: x**2, -0.2505, 0.5005, 7),
    "ASIN_TAIL_F32": Fit(_asin_tail, lambda z: z, 0.0, 0.2505, 4),
    "ERFINV_CENTER_F32": Fit(_inverse_erf_center, lambda t: 1 / _inverse_erf_center(t), -1.0, 3.5, 9),
    "ERFINV_TAIL_F32": Fit(_inverse_erf_tail, lambda t: 1 / _inverse_erf_tail(t), -6.0, 6.2, 10),
    "LOG_GAMMA_SLOPE_F32": Fit(_log_gamma_slope, lambda y: 1 / _log_gamma_slope(y), -1.0, 1.0, 11),
    "LOG_GAMMA_REST_F32": Fit(_log_gamma_rest, _one, 0.0, 1 / 9, 2),
    "SCALED_SINE_OF_TURNS_F32": Fit(_sine_of_turns, lambda z: 1 / _sine_of_turns(z), 0.0, 0.25, 4),
    "ERFCX_F32": Fit(_erfcx_by_inverse, lambda r: 1 / _erfcx_by_inverse(r), 2 / 12.2 - 0.5, 0.5, 9),
}


def expand(problem: Series) -> tuple[float, ...]:
    """The coefficients of ``problem``, lowest power first."""
    count = 96
    angles = _PI * (np.arange(count) + np.longdouble(0.5)) / count
    nodes: Extended = np.cos(angles)
    middle, half = ((np.longdouble(problem.high) + sign * np.longdouble(problem.low)) / 2 for sign in (1, -1))
    x = middle + half * nodes
    if problem.term is not None:
        values = sum((problem.term(k) * x**k for k in range(40)), np.zeros_like(x))
    elif problem.extended is not None:
        values = problem.extended(x)
    elif problem.values is not None:
        values = problem.values(x.astype(np.float64)).astype(np.longdouble)
    chebyshev = [2 * np.sum(values * np.cos(k * angles)) / count for k in range(problem.degree + 1)]
    chebyshev[0] /= 2
    return tuple(float(c) for c in _monomials(chebyshev, middle, half))


def _monomials(chebyshev: list[np.longdouble], middle: np.longdouble, half: np.longdouble) -> list[np.longdouble]:
    """sum c[k] T_k((x - middle) / half) as powers of x."""
    line = np.array([-middle / half, 1 / half], dtype=np.longdouble)
    before = np.array([1], dtype=np.longdouble)
    current = line
    total = np.zeros(len(chebyshev), dtype=np.longdouble)
    total[0] += chebyshev[0]
    for c in chebyshev[1:]:
        total[: len(current)] += c * current
        following = 2 * np.convolve(line, current)
        following[: len(before)] -= before
        before, current = current, following
    return list(total)


def _print_coefficients(made: dict[str, tuple[float, ...]]) -> None:
    for name, values in made.items():
        print(f"{name} = (")
        for value in values:
            print(f"    {value!r},")
        print(")")


def print_libdevice() -> None:
    """Print the coefficients of libdevice."""
    print('"""Polynomials of libdevice, lowest power first. Made by development/minimax.py; do not edit."""\n')
    print("from __future__ import annotations\n")
    _print_coefficients({name: expand(problem) for name, problem in LIBDEVICE.items()})
    _print_coefficients({name: fit(problem) for name, problem in LIBDEVICE_F32.items()})


def main() -> None:
    """Print the module of coefficients."""
    if sys.argv[1:] == ["libdevice"]:
        print_libdevice()
        return
    print('"""Polynomials of :mod:`.maths`, lowest power first. Made by development/minimax.py; do not edit."""\n')
    print("from __future__ import annotations\n")
    made = {name: fit(problem) for name, problem in FITS.items()}
    made |= {name: expand(problem) for name, problem in SERIES.items()}
    _print_coefficients(made)
    digits = two_over_pi()
    print("# 2/pi in 64-bit digits, most significant first.")
    print("TWO_OVER_PI = (")
    for digit in digits:
        print(f"    0x{digit:016X},")
    print(")")


def two_over_pi(digits: int = 21) -> list[int]:
    """2/pi in base 2**64, by Machin's formula in integers."""
    bits = 64 * digits + 128

    def arctan_inverse(n: int) -> int:
        total, power, k = 0, (1 << bits) // n, 0
        while power:
            total += (-1) ** k * (power // (2 * k + 1))
            power //= n * n
            k += 1
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    fraction = (2 << 2 * bits) // pi
    return [fraction >> (bits - 64 * (i + 1)) & ((1 << 64) - 1) for i in range(digits)]


if __name__ == "__main__":
    main()
