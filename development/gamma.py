"""Where compiler/language/libdevice/gamma_coefficients.py comes from: ``python development/gamma.py`` prints it.

It needs mpmath, as bessel.py does, and makes its polynomials as that does: t goes from -1 to 1. Those around 2 are in
powers of 3/4 t, which is exact. What the first coefficient lacks of its fifty digits is NAME_REST.
"""

from __future__ import annotations

from typing import Any

import mpmath as mp  # type: ignore[import-not-found, import-untyped, unused-ignore]
from bessel import Real, exact_powers


def _slope(zero: int) -> Real:
    """The logarithm of the gamma function divided by d = x - zero, as a function of d."""
    return lambda d: mp.loggamma(zero + d) / d if d else mp.psi(0, zero)


def _missing(x: Any) -> Any:
    """What Stirling's formula lacks of the logarithm."""
    return mp.loggamma(x) - (x - mp.mpf(1) / 2) * mp.log(x) + x - mp.log(2 * mp.pi) / 2


#: Name -> function of t, points, least term.
TABLES: dict[str, tuple[Real, int, float]] = {
    "GAMMA": (lambda t: mp.gamma((3 + t) / 2), 40, 1e-18),
    "LOG_AT_1": (lambda t: _slope(1)(t / 2), 50, 1e-18),
    "LOG_AT_2": (lambda t: _slope(2)((3 * t + 1) / 4), 50, 1e-18),
    "LOG_STIRLING": (lambda t: _missing(mp.sqrt(32 / (t + 1))) * mp.sqrt(32 / (t + 1)), 40, 1e-19),
}


#: Tables in powers of another multiple of t: what a power is divided by.
SCALES = {"LOG_AT_2": mp.mpf(4) / 3}


def main() -> None:
    """Print the module of coefficients."""
    print('"""Polynomials of the gamma function, lowest power first. Made by development/gamma.py; do not edit."""\n')
    print("from __future__ import annotations\n")
    for name, (function, points, smallest) in TABLES.items():
        exact = exact_powers(function, points, smallest)
        print(f"{name} = (")
        for power, value in enumerate(exact):
            print(f"    {float(value * SCALES.get(name, mp.mpf(1)) ** power)!r},")
        print(f")\n{name}_REST = {float(exact[0] - float(exact[0]))!r}")


if __name__ == "__main__":
    main()
