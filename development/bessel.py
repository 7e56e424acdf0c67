"""Where compiler/language/libdevice/bessel_coefficients.py comes from: ``python development/bessel.py`` prints it.

It needs mpmath, which nothing else does. Each polynomial is a Chebyshev series, interpolated with fifty digits and
written in powers of t, which goes from -1 to 1: near, x**2 = 32 (t + 1); far, (8 / x)**2 or 8 / x is (t + 1) / 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp  # type: ignore[import-not-found, import-untyped, unused-ignore]

mp.mp.dps = 50

#: mpmath's numbers have no types.
Real = Callable[[Any], Any]


def powers(function: Real, points: int = 34, smallest: float = 2e-18) -> list[float]:
    """The polynomial in powers of t; terms of the series below ``smallest`` are left out."""
    return [float(term) for term in exact_powers(function, points, smallest)]


def exact_powers(function: Real, points: int, smallest: float) -> list[Any]:
    """As :func:`powers`, with fifty digits."""
    angles = [mp.pi * (k + mp.mpf(1) / 2) / points for k in range(points)]
    values = [function(mp.cos(angle)) for angle in angles]
    series = [
        mp.mpf(2) / points * sum(v * mp.cos(j * a) for v, a in zip(values, angles, strict=True)) for j in range(points)
    ]
    series[0] /= 2
    while abs(series[-1]) < smallest:
        series.pop()
    made, before, current = [mp.mpf(0)] * len(series), [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]
    for factor in series:
        for i, term in enumerate(before):
            made[i] += factor * term
        following = [mp.mpf(0), *(2 * term for term in current)]
        for i, term in enumerate(before):
            following[i] -= term
        before, current = current, following
    return made


def near(function: Real) -> Real:
    """A function of x up to 8 as one of t."""
    return lambda t: function(mp.sqrt(32 * (t + 1)))


def far(function: Real) -> Real:
    """A function of x from 8 on as one of t."""
    return lambda t: function(8 / mp.sqrt((t + 1) / 2))


def modulus(order: int, of_sine: bool) -> Real:
    """What the cosine (or the sine) of x - (2 order + 1) pi / 4 is multiplied by in sqrt(pi x / 2) J(x)."""

    def compute(x: Any) -> Any:
        angle = x - (2 * order + 1) * mp.pi / 4
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        turned = y * mp.cos(angle) - j * mp.sin(angle) if of_sine else j * mp.cos(angle) + y * mp.sin(angle)
        return mp.sqrt(mp.pi * x / 2) * turned * (x if of_sine else 1)

    return compute


def damped(order: int) -> Real:
    """I(x) exp(-x) sqrt(x) of x = 16 / (t + 1)."""

    def compute(t: Any) -> Any:
        x = 16 / (t + 1)
        return mp.besseli(order, x) * mp.exp(-x) * mp.sqrt(x)

    return compute


def _regular(order: int) -> Real:
    """Y(x) without its logarithm and its pole, which is even in x once that of order 1 is divided by x."""

    def compute(x: Any) -> Any:
        pole = 1 / x if order else 0
        singular = 2 / mp.pi * (mp.log(x) * mp.besselj(order, x) - pole)
        return (mp.bessely(order, x) - singular) / x**order

    return compute


TABLES: dict[str, Real] = {
    "J0_NEAR": near(lambda x: mp.besselj(0, x)),
    "J1_NEAR": near(lambda x: mp.besselj(1, x) / x),
    "Y0_NEAR": near(_regular(0)),
    "Y1_NEAR": near(_regular(1)),
    "P0_FAR": far(modulus(0, False)),
    "Q0_FAR": far(modulus(0, True)),
    "P1_FAR": far(modulus(1, False)),
    "Q1_FAR": far(modulus(1, True)),
}


def main() -> None:
    """Print the module of coefficients."""
    print('"""Polynomials of Bessel functions, lowest power first. Made by development/bessel.py; do not edit."""\n')
    print("from __future__ import annotations\n")
    made = {name: powers(function) for name, function in TABLES.items()}
    made |= {f"I{order}_FAR": powers(damped(order), 44, 1e-17) for order in (0, 1)}
    for name, values in made.items():
        print(f"{name} = (")
        for value in values:
            print(f"    {value!r},")
        print(")")


if __name__ == "__main__":
    main()
