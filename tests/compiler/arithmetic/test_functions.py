"""Mathematical functions on every target, measured in units in the last place against 80-bit arithmetic.

The bounds are what the documentation of the language may promise. The simulator of GPU code takes the hardware's own
approximations as exact, so f32 there says what the compiler adds to them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

SIZE = 512
DTYPES = {"f32": np.float32, "f64": np.float64}
Wide = np.longdouble
_PI = Wide("3.14159265358979323846264338327950288")


def erf(x):
    """Kummer's series, of positive terms: 2/sqrt(pi) exp(-x**2) sum 2**n x**(2n+1) / (2n+1)!!."""
    a = np.minimum(np.abs(x), Wide(8))
    term, total = a, a.copy()
    for n in range(1, 400):
        term = term * (2 * a * a / (2 * n + 1))
        total = total + term
    return np.copysign(np.where(np.isnan(x), x, np.minimum(2 / np.sqrt(_PI) * np.exp(-a * a) * total, 1)), x)


def erfcx(x):
    """exp(x**2) erfc(x): by the series of erf below 2, above by the continued fraction of Laplace (DLMF 7.9.2)."""
    a = np.abs(x)
    low, high = np.minimum(a, 2), np.maximum(a, 2)
    below = high
    for n in range(400, 0, -1):
        below = high + Wide(n) / 2 / below
    right = np.where(a < 2, np.exp(low * low) * (1 - erf(low)), 1 / np.sqrt(_PI) / below)
    return np.where(x < 0, 2 / exp_of_square(a) - right, right)


def exp_of_square(a):
    """exp(-a**2), with a square that is exact in two parts."""
    high = a.astype(np.float32).astype(Wide)
    return np.exp(-high * high) * np.exp(-(a - high) * (a + high))


def erfc(x):
    right = exp_of_square(np.abs(x)) * erfcx(np.abs(x))
    return np.where(x < 0, 2 - right, right)


def normcdf(x):
    return erfc(-x / np.sqrt(Wide(2))) / 2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def sinpi(x):
    """Of what is left of the nearest integer, which long double has exactly."""
    n = np.rint(x)
    return np.where(n % 2 == 0, 1, -1) * np.sin(_PI * (x - n))


def cospi(x):
    n = np.rint(x)
    return np.where(n % 2 == 0, 1, -1) * np.sin(_PI * (0.5 - np.abs(x - n)))


def rcbrt(x):
    return 1 / np.cbrt(x)


def spread(low, high):
    """Magnitudes from 10**low to 10**high, both signs."""
    return lambda rng: rng.uniform(1, 10, SIZE) * 10.0 ** rng.uniform(low, high, SIZE) * rng.choice([-1.0, 1.0], SIZE)


def evenly(low, high):
    """Half evenly, half close to 0, if 0 is inside."""

    def sample(rng):
        x = rng.uniform(low, high, SIZE)
        if low < 0 < high:
            x[::2] *= 10.0 ** rng.uniform(-6, 0, SIZE // 2)
        return x

    return sample


def around_one(low, high):
    """Every magnitude, and half of the arguments between -3 and 3."""

    def sample(rng):
        x = spread(low, high)(rng)
        x[::2] = rng.uniform(-3, 3, SIZE // 2)
        return x

    return sample


def positive(low, high):
    return lambda rng: np.abs(spread(low, high)(rng))


def within(limit):
    """Between -limit and limit: evenly, close to 0, and close to the limits."""

    def sample(rng):
        x = evenly(-1, 1)(rng)
        x[1::4] = np.copysign(1 - np.abs(x[1::4]) * 10.0 ** rng.uniform(-6, 0, SIZE // 4), x[1::4])
        return limit * x

    return sample


def from_one(low, high):
    return lambda rng: 1 + positive(low, high)(rng)


def near_one(rng):
    x = positive(-30, 30)(rng)
    x[::3] = 1 + rng.normal(0, 0.2, len(x[::3])) * 10.0 ** rng.uniform(-4, 0, len(x[::3]))
    return np.abs(x)


# name: (expression, exact, argument in f32, argument in f64, bounds: f32 and f64 in code for CPUs, f32 in code for
# GPUs; a fourth: f32 on the hardware, where its own approximation is worse). exp and sigmoid of f32 on a GPU are
# ex2.approx(x * log2(e)), as in Triton: the product's rounding grows with |x|. sqrt of f32 is sqrt.approx.f32, with a
# relative error of at most 2**-23 (PTX ISA, "sqrt"): 2 units in the last place of a number just below a power of two.
# The exact exp ends with ex2.approx of a number between 0 and 1.
UNARY = {
    "exp": ("tl.exp(x)", np.exp, evenly(-87, 88), evenly(-708, 709), (1.0, 1.0, 64)),
    "precise exp": ("libdevice.exp(x)", np.exp, evenly(-87, 88), evenly(-708, 709), (1.0, 1.0, 1.0, 2.0)),
    "exp2": ("tl.exp2(x)", np.exp2, evenly(-126, 127), evenly(-1022, 1023), (1.0, 1.0, 2.5)),
    "exp10": ("libdevice.exp10(x)", lambda x: 10**x, evenly(-37, 38), evenly(-307, 308), (1.5, 1.5, 1.5)),
    "expm1": ("libdevice.expm1(x)", np.expm1, evenly(-30, 88), evenly(-60, 700), (1.0, 3.0, 1.0)),
    "log": ("tl.log(x)", np.log, near_one, near_one, (1.0, 1.0, 1.0)),
    "log2": ("tl.log2(x)", np.log2, near_one, near_one, (1.5, 1.5, 1.5)),
    "log10": ("libdevice.log10(x)", np.log10, near_one, near_one, (1.5, 1.5, 1.5)),
    "log1p": ("libdevice.log1p(x)", np.log1p, positive(-9, 9), positive(-18, 18), (1.0, 2.0, 1.0)),
    "sin": ("tl.sin(x)", np.sin, spread(-5, 6), spread(-9, 12), (1.5, 2.0, 1.5)),
    "cos": ("tl.cos(x)", np.cos, spread(-5, 6), spread(-9, 12), (1.5, 2.0, 1.5)),
    "tanh": ("libdevice.tanh(x)", np.tanh, evenly(-12, 12), evenly(-25, 25), (2.0, 2.0, 2.0)),
    "sinh": ("libdevice.sinh(x)", np.sinh, evenly(-89, 89), evenly(-710, 710), (3.0, 3.0, 3.0)),
    "cosh": ("libdevice.cosh(x)", np.cosh, evenly(-89, 89), evenly(-710, 710), (2.0, 3.0, 2.0)),
    "erf": ("tl.erf(x)", erf, evenly(-5, 5), evenly(-6, 6), (2.0, 4.0, 2.0)),
    "atan": ("libdevice.atan(x)", np.arctan, around_one(-9, 9), around_one(-18, 18), (1.5, 1.5, 1.5)),
    "sqrt": ("tl.sqrt(x)", np.sqrt, positive(-35, 35), positive(-300, 300), (0.5, 0.5, 0.5, 2.0)),
    "sqrt_rn": ("libdevice.sqrt_rn(x)", np.sqrt, positive(-35, 35), positive(-300, 300), (0.5, 0.5, 0.5)),
    "rsqrt": ("tl.rsqrt(x)", lambda x: 1 / np.sqrt(x), positive(-35, 35), positive(-300, 300), (1.5, 1.5, 1.5)),
    "sigmoid": ("tl.sigmoid(x)", sigmoid, evenly(-87, 88), evenly(-708, 709), (3.0, 3.0, 64)),
    "log1p of negatives": (
        "libdevice.log1p(x)",
        np.log1p,
        lambda rng: -np.abs(within(1)(rng)),
        lambda rng: -np.abs(within(1)(rng)),
        (1.0, 2.0, 1.0),
    ),
    "tan": ("libdevice.tan(x)", np.tan, spread(-5, 6), spread(-9, 9), (4.0, 3.0, 4.0)),
    "sinpi": ("libdevice.sinpi(x)", sinpi, spread(-9, 5), spread(-18, 12), (1.0, 1.5, 1.0)),
    "cospi": ("libdevice.cospi(x)", cospi, spread(-9, 5), spread(-18, 12), (1.0, 1.5, 1.0)),
    "asin": ("libdevice.asin(x)", np.arcsin, within(1), within(1), (2.0, 1.0, 2.0)),
    "acos": ("libdevice.acos(x)", np.arccos, within(1), within(1), (2.0, 1.0, 2.0)),
    "asinh": ("libdevice.asinh(x)", np.arcsinh, spread(-9, 9), spread(-18, 18), (3.0, 2.0, 3.0)),
    "asinh around 1": ("libdevice.asinh(x)", np.arcsinh, around_one(-2, 2), around_one(-2, 2), (3.0, 2.0, 3.0)),
    "acosh": ("libdevice.acosh(x)", np.arccosh, from_one(-9, 9), from_one(-18, 18), (4.0, 2.0, 4.0)),
    "atanh": ("libdevice.atanh(x)", np.arctanh, within(0.99999), within(0.99999), (3.0, 2.0, 3.0)),
    "cbrt": ("libdevice.cbrt(x)", np.cbrt, spread(-44, 38), spread(-320, 308), (1.0, 0.6, 1.0)),
    "rcbrt": ("libdevice.rcbrt(x)", rcbrt, spread(-44, 38), spread(-320, 308), (0.6, 1.5, 0.6)),
    "erfc": ("libdevice.erfc(x)", erfc, evenly(-6, 10), evenly(-7, 27), (4.0, 4.0, 4.0)),
    "erfcx": ("libdevice.erfcx(x)", erfcx, evenly(-9, 60), evenly(-26, 60), (1.0, 3.0, 1.0)),
    "erfcx of large": ("libdevice.erfcx(x)", erfcx, positive(0, 38), positive(0, 306), (1.0, 3.0, 1.0)),
    "normcdf": ("libdevice.normcdf(x)", normcdf, evenly(-14, 6), evenly(-38, 9), (5.0, 4.0, 5.0)),
}
BINARY = {
    "pow": (
        "libdevice.pow(x, y)", np.power,
        lambda rng: (near_one(rng), rng.uniform(-1, 1, SIZE)), lambda rng: (near_one(rng), rng.uniform(-9, 9, SIZE)),
        (1.0, 1.0, 1.0),
    ),
    "pow of large powers": (
        "libdevice.pow(x, y)", np.power,
        lambda rng: (rng.uniform(0.5, 2, SIZE), rng.uniform(-126, 127, SIZE)),
        lambda rng: (rng.uniform(0.5, 2, SIZE), rng.uniform(-1022, 1023, SIZE)),
        (1.0, 1.0, 1.0),
    ),
    "atan2": (
        "libdevice.atan2(x, y)", np.arctan2,
        lambda rng: (spread(-9, 9)(rng), spread(-9, 9)(rng)), lambda rng: (spread(-18, 18)(rng), spread(-18, 18)(rng)),
        (2.0, 2.0, 2.0),
    ),
    "fmod": (
        "libdevice.fmod(x, y)", np.fmod,
        lambda rng: (spread(-3, 3)(rng), spread(-3, 3)(rng)), lambda rng: (spread(-3, 3)(rng), spread(-3, 3)(rng)),
        (0.0, 0.0, 0.0),
    ),
    "div_rn": (
        "libdevice.div_rn(x, y)", np.divide,
        lambda rng: (spread(-9, 9)(rng), spread(-9, 9)(rng)), lambda rng: (spread(-9, 9)(rng), spread(-9, 9)(rng)),
        (0.5, 0.5, 0.5),
    ),
    **{
        name: (
            f"libdevice.{call}", exact,
            lambda rng: (spread(-3, 3)(rng), spread(-3, 3)(rng)),
            lambda rng: tuple(around_one(-154, 154)(rng) for _ in range(2)),
            (0.6, 2.0, 0.6) if name.startswith("r") else (3.0, 2.0, 3.0),
        )
        for name, call, exact in (
            ("hypot", "hypot(x, y)", np.hypot),
            ("rhypot", "rhypot(x, y)", lambda x, y: 1 / np.hypot(x, y)),
            ("norm3d", "norm3d(x, y, 3)", lambda x, y: np.sqrt(x * x + y * y + 9)),
            ("rnorm3d", "rnorm3d(x, 0.5, y)", lambda x, y: 1 / np.sqrt(x * x + y * y + 0.25)),
            ("norm4d", "norm4d(x, y, x, 2)", lambda x, y: np.sqrt(2 * x * x + y * y + 4)),
            ("rnorm4d", "rnorm4d(x, y, 1, y)", lambda x, y: 1 / np.sqrt(x * x + 2 * y * y + 1)),
        )
    },
}  # fmt: skip
FUNCTIONS = UNARY | BINARY


@pytest.fixture
def evaluate(reference, run_on_target):
    """``evaluate(expressions, type, *arguments)``: their values."""

    def call(expressions, type, *arguments):
        names = ["x", "y"][: len(arguments)]
        lines = [f"r{i} = {expression}" for i, expression in enumerate(expressions)]
        function = reference.kernel(lines, dict.fromkeys(names, type), [type] * len(lines), len(arguments[0]))
        outs = [np.zeros(len(arguments[0]), DTYPES[type]) for _ in lines]
        run_on_target(function, (1,), [*(a.copy() for a in arguments), *outs])
        return outs

    return call


def errors(found, exact, dtype):
    """Distances in units in the last place of the exact result; below the normal numbers the unit stays."""
    unit = np.spacing(np.abs(exact).astype(dtype)).astype(Wide)
    both = np.isinf(found) & np.isinf(exact.astype(dtype)) & (np.sign(found) == np.sign(exact))
    return np.where(both, 0, np.abs(found.astype(Wide) - exact) / unit)


@pytest.mark.parametrize("type", DTYPES)
def test_accuracy(evaluate, target, type):
    bad = []
    for count, table in ((1, UNARY), (2, BINARY)):
        groups = list(table.items())
        rng = np.random.default_rng(17)
        for name, (expression, exact, *samples, bounds) in groups:
            drawn = samples[type == "f64"](rng)
            step = 4 if target == "simulated" else 1  # machine instructions in Python take their time
            arguments = [v[::step].astype(DTYPES[type]) for v in (drawn if count == 2 else (drawn,))]
            (found,) = evaluate([expression], type, *arguments)
            of_f32 = {"simulated": bounds[2], "cuda": bounds[-1]}.get(target, bounds[0])
            bound = bounds[1] if type == "f64" else of_f32
            wanted = exact(*(a.astype(Wide) for a in arguments))
            off = errors(found, wanted, DTYPES[type])
            worst = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
            print(f"{name:20} {type} {float(off[worst]):6.2f} of {bound}")
            if not off[worst] <= bound:
                given = ", ".join(repr(float(a[worst])) for a in arguments)
                bad.append(
                    f"{name}({given}) = {found[worst]!r}, {off[worst]:.2f} units from {wanted[worst]!r} (> {bound})"
                )
    assert not bad, "\n".join(bad)


#: Functions whose f32 has an arithmetic of its own, and what CUDA documents as its largest error.
IN_F32 = {
    "erf": 2, "tanh": 2, "atan": 2, "log": 1, "log1p": 1, "expm1": 1, "sinh": 3, "cosh": 2, "asinh": 3, "acosh": 4,
    "atanh": 3, "asin": 2, "acos": 2, "tan": 4, "cbrt": 1, "erfinv": 2, "erfc": 4, "normcdf": 5,
    "lgamma": 6,
}  # fmt: skip
#: Where lgamma has zeros, for which CUDA promises less: what its error is.
ZEROS_OF_LGAMMA, BESIDE_ZEROS = (-10.001, -2.264), 2e-6


@pytest.mark.parametrize("name", IN_F32)
def test_f32_of_every_exponent_is_as_near_to_f64_as_cuda_promises(evaluate, target, name):
    if target == "simulated":
        pytest.skip("machine instructions in Python take their time")
    size = 1 << 13
    x = np.linspace(1, 0x7F7FFFFF, size // 2).astype(np.int32).view(np.float32)
    x[::2] = np.linspace(0x3B000000, 0x42000000, size // 4).astype(np.int32).view(np.float32)
    x[::8] = 1 - np.arange(size // 16, dtype=np.float32) * np.float32(2**-22)
    x = np.concatenate([x, -x])
    (found,) = evaluate([f"libdevice.{name}(x)"], "f32", x)
    (wanted,) = evaluate([f"libdevice.{name}(x)"], "f64", x.astype(np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.where(np.isnan(found) & np.isnan(wanted), 0, errors(found, wanted.astype(Wide), np.float32))
        if name == "lgamma":
            beside = (ZEROS_OF_LGAMMA[0] < x) & (x < ZEROS_OF_LGAMMA[1])
            off = np.where(beside & (np.abs(found - wanted) < BESIDE_ZEROS), 0, off)
    worst = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
    assert off[worst] <= IN_F32[name], (x[worst], found[worst], wanted[worst], off[worst])


INF, NAN = math.inf, math.nan
SPECIAL = {
    "libdevice.exp10(x)": [
        (0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (NAN, NAN), (3.0, 1000), (400.0, INF),
        (-400.0, 0),
    ],
    "libdevice.log10(x)": [
        (0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (NAN, NAN), (1.0, 0.0), (1000.0, 3), (-1e-40, NAN),
    ],
    "tl.log(x)": [(0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (-INF, NAN), (NAN, NAN), (1.0, 0), (-1e-40, NAN)],
    "tl.log2(x)": [(0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (NAN, NAN), (8.0, 3), (-1e-40, NAN)],
    "libdevice.atan(x)": [
        (0.0, 0.0), (-0.0, -0.0), (INF, math.pi / 2), (-INF, -math.pi / 2), (NAN, NAN),
        (1.0, math.pi / 4),
    ],
    "libdevice.sinh(x)": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "libdevice.cosh(x)": [(0.0, 1), (INF, INF), (-INF, INF), (NAN, NAN)],
    "libdevice.expm1(x)": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1), (NAN, NAN)],
    "libdevice.log1p(x)": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-1.0, -INF), (-2.0, NAN), (NAN, NAN)],
    "libdevice.erfc(x)": [(0.0, 1), (-0.0, 1), (INF, 0.0), (-INF, 2), (30.0, 0.0), (-9.0, 2), (NAN, NAN)],
    "libdevice.erfcx(x)": [(0.0, 1), (-0.0, 1), (INF, 0.0), (-INF, INF), (-30.0, INF), (NAN, NAN)],
    "libdevice.normcdf(x)": [(0.0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0.0), (-50.0, 0.0), (12.0, 1), (NAN, NAN)],
    "libdevice.lgamma(x)": [
        (1.0, 0.0), (2.0, 0.0), (0.0, INF), (-0.0, INF), (-1.0, INF), (-2.0, INF), (-8388609.0, INF), (INF, INF),
        (-INF, INF), (NAN, NAN),
    ],
    "libdevice.tan(x)": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (NAN, NAN)],
    "libdevice.sinpi(x)": [
        (0.0, 0.0), (-0.0, -0.0), (0.5, 1), (-0.5, -1), (1.0, 0.0), (-1.0, -0.0), (1.5, -1), (2.5, 1), (3.0, 0.0),
        (1e30, 0.0), (-1e30, -0.0), (INF, NAN), (NAN, NAN),
    ],
    "libdevice.cospi(x)": [
        (0.0, 1), (-0.0, 1), (0.5, 0.0), (-0.5, 0.0), (1.0, -1), (-1.5, 0.0), (2.0, 1), (3.0, -1), (1e30, 1),
        (-INF, NAN), (NAN, NAN),
    ],
    "libdevice.asin(x)": [
        (0.0, 0.0), (-0.0, -0.0), (1.0, math.pi / 2), (-1.0, -math.pi / 2), (1.5, NAN), (INF, NAN), (NAN, NAN),
    ],
    "libdevice.acos(x)": [(1.0, 0.0), (0.0, math.pi / 2), (-1.0, math.pi), (-1.5, NAN), (-INF, NAN), (NAN, NAN)],
    "libdevice.asinh(x)": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "libdevice.acosh(x)": [(1.0, 0.0), (0.5, NAN), (-INF, NAN), (INF, INF), (NAN, NAN)],
    "libdevice.atanh(x)": [
        (0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (INF, NAN), (NAN, NAN),
    ],
    "libdevice.cbrt(x)": [
        (0.0, 0.0), (-0.0, -0.0), (8.0, 2), (-27.0, -3), (INF, INF), (-INF, -INF), (NAN, NAN),
    ],
    "libdevice.rcbrt(x)": [
        (0.0, INF), (-0.0, -INF), (8.0, 0.5), (-64.0, -0.25), (INF, 0.0), (-INF, -0.0), (NAN, NAN),
    ],
    "libdevice.hypot(x, x * 0)": [(0.0, 0.0), (-3.0, 3), (INF, INF), (-INF, INF), (NAN, NAN)],
    "libdevice.rhypot(x, x * 0)": [(0.0, INF), (-4.0, 0.25), (-INF, 0.0), (NAN, NAN)],
    "libdevice.norm4d(x, 0, x * 0, 0)": [(0.0, 0.0), (-3.0, 3), (INF, INF), (NAN, NAN)],
    "libdevice.rnorm3d(x, 0, x * 0)": [(0.0, INF), (-4.0, 0.25), (INF, 0.0), (NAN, NAN)],
    "libdevice.logb(x)": [
        (0.0, -INF), (-0.0, -INF), (1e-40, -133), (-9.0, 3), (0.75, -1), (1.0, 0.0), (INF, INF), (-INF, INF),
        (NAN, NAN),
    ],
    "libdevice.saturatef(x.to(tl.float32)).to(x.dtype)": [
        (-0.0, 0.0), (-2.0, 0.0), (0.25, 0.25), (1.5, 1), (INF, 1), (-INF, 0.0), (NAN, 0.0),
    ],
    "libdevice.nearbyint(x)": [(0.5, 0.0), (-0.5, -0.0), (1.5, 2), (2.5, 2), (-INF, -INF), (NAN, NAN)],
    "tl.sigmoid(x)": [(0.0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0), (NAN, NAN)],
    "libdevice.round(x)": [
        (0.5, 1), (-0.5, -1), (2.5, 3), (-2.5, -3), (0.25, 0.0), (-0.25, -0.0), (INF, INF),
        (NAN, NAN),
    ],
    "libdevice.rint(x)": [(0.5, 0.0), (-0.5, -0.0), (1.5, 2), (2.5, 2), (-INF, -INF), (NAN, NAN)],
    "libdevice.trunc(x)": [(1.9, 1), (-1.9, -1), (-0.5, -0.0), (INF, INF), (NAN, NAN)],
    "tl.floor(x)": [(1.9, 1), (-1.1, -2), (-0.0, -0.0), (INF, INF), (NAN, NAN)],
    "tl.ceil(x)": [(1.1, 2), (-1.9, -1), (-0.5, -0.0), (INF, INF), (NAN, NAN)],
}  # fmt: skip


@pytest.mark.parametrize("type", DTYPES)
def test_special_values(evaluate, type):
    for expression, pairs in SPECIAL.items():
        x, wanted = (np.array([*v, *([v[0]] * (16 - len(v)))], DTYPES[type]) for v in zip(*pairs, strict=True))
        (found,) = evaluate([expression], type, x)
        np.testing.assert_array_equal(found, wanted, err_msg=expression)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers], err_msg=expression)


@pytest.mark.parametrize("type", DTYPES)
@pytest.mark.parametrize(("expression", "exact"), [("libdevice.pow(x, y)", "pow"), ("libdevice.atan2(x, y)", "atan2")])
def test_special_values_of_two(evaluate, type, expression, exact):
    """Every pair of zeros, ones, odd and even numbers, infinities and NaN, against C's own function."""
    sides = [0.0, 1.0, 2.0, 3.0, 0.5, 1e30, INF]
    sides = [*sides, *(-v for v in sides), NAN]
    x, y = (v.ravel() for v in np.meshgrid(sides, sides))
    x, y = (np.resize(v, 256).astype(DTYPES[type]) for v in (x, y))
    (found,) = evaluate([expression], type, x, y)
    # float_power and arctan2 of f64 are C's.
    wanted = {"pow": np.float_power, "atan2": np.arctan2}[exact](x.astype(np.float64), y.astype(np.float64))
    wanted = wanted.astype(DTYPES[type])
    np.testing.assert_allclose(found, wanted, rtol=4 * np.finfo(DTYPES[type]).eps)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers])


def test_the_smallest_results_are_denormal(evaluate):
    x = np.full(16, -89.4, np.float32)
    (found,) = evaluate(["tl.sigmoid(x)"], "f32", x)
    np.testing.assert_allclose(found, math.exp(-89.4), rtol=2e-4)
    (found,) = evaluate(["tl.sigmoid(x)"], "f64", np.full(16, -720.0))
    np.testing.assert_allclose(found, math.exp(-720.0), rtol=1e-9)


def test_halves_are_computed_in_f32(reference, run_on_target):
    x = np.linspace(-4, 4, 64).astype(np.float16)
    case = reference.Case(x=("f16", x))
    case.expect("libdevice.atan(x)", np.arctan(x.astype(np.float64)).astype(np.float16), "f16")
    case.expect("libdevice.exp10(x)", (10 ** x.astype(np.float64)).astype(np.float16), "f16")
    assert not case.run(run_on_target)
