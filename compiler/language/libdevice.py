"""The functions of CUDA's libdevice that kernels use, written in the language: no bitcode library is needed."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from .arithmetic import mod as fmod
from .arithmetic import mul as mul_rn
from .arithmetic import where
from .constexpr import constexpr
from .inline import library
from .maths import (
    abs,
    ceil,
    copysign,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    floor,
    fma,
    isinf,
    isnan,
    log,
    log2,
    maximum,
    minimum,
    rint,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    tanh,
    trunc,
)

_LN2 = constexpr(0.6931471805599453)
_LOG10_2 = constexpr(0.3010299956639812)
_LOG2_10 = constexpr(3.321928094887362)
_PI = constexpr(3.141592653589793)
_HALF_PI = constexpr(1.5707963267948966)
_QUARTER_PI = constexpr(0.7853981633974483)
_TAN_PI_8 = constexpr(0.41421356237309503)

# atan(x)/x on |x| <= tan(pi/8) as a polynomial in x*x: Chebyshev interpolation, relative error 6.3e-10.
_A = constexpr((0.99999999937, -0.33333306893, 0.19998183041, -0.14239532667, 0.10569828797, -0.06026305227))


@library
def finitef(x):
    """i1: x is neither infinite nor NaN."""
    return abs(x) < float("inf")


@library
def isfinited(x):
    """i1: x is neither infinite nor NaN."""
    return abs(x) < float("inf")


@library
def round(x):
    """Nearest integer, halves away from zero."""
    nearest = trunc(x)
    return where(abs(x - nearest) >= 0.5, nearest + copysign(x * 0 + 1.0, x), nearest)


@library
def log10(x):
    """Logarithm to base 10."""
    return log2(x) * _LOG10_2


@library
def exp10(x):
    """10**x."""
    return exp2(x * _LOG2_10)


@library
def log1p(x):
    """log(1 + x), accurate near 0: the rounding of 1 + x is divided out (Kahan)."""
    u = 1.0 + x
    return where(u == 1.0, x, where(isinf(u), u, log(u) * (x / (u - 1.0))))


@library
def expm1(x):
    """exp(x) - 1, accurate near 0 (Kahan)."""
    u = exp(x)
    near = (u - 1.0) * (x / log(u))
    return where(u == 1.0, x, where((u - 1.0 == -1.0) | isinf(u), u - 1.0, near))


@library
def pow(x, y):
    """x**y as exp2(y * log2(|x|)); negative x needs an integer y, else NaN.

    The relative error grows with |y * log2(x)|: about 1e-7 times that in f32.
    """
    magnitude = exp2(y * log2(abs(x)))
    odd = abs(fmod(y, 2.0)) == 1.0
    signed = where((x < 0) & odd, -magnitude, magnitude)
    signed = where((x < 0) & (trunc(y) != y), float("nan"), signed)
    return where((y == 0) | (x == 1.0), 1.0, signed)


@library
def atan(x):
    """Arc tangent: reduced to |x| <= tan(pi/8), then a polynomial; absolute error about 1e-7 in f32."""
    a = abs(x)
    big = a > 1.0
    t = where(big, 1.0 / a, a)
    middle = t > _TAN_PI_8
    r = where(middle, (t - 1.0) / (t + 1.0), t)
    z = r * r
    p = _A[0] + z * (_A[1] + z * (_A[2] + z * (_A[3] + z * (_A[4] + z * _A[5]))))
    angle = r * p + where(middle, _QUARTER_PI, 0.0)
    return copysign(where(big, _HALF_PI - angle, angle), x)


@library
def atan2(y, x):
    """The angle of the point (x, y), in (-pi, pi]."""
    angle = atan(where(x == 0, 0.0, y / x))
    angle = where(x < 0, angle + copysign(y * 0 + _PI, y), angle)
    on_axis = where(y == 0, 0.0, copysign(y * 0 + _HALF_PI, y))
    return where(x == 0, on_axis, angle)


@library
def sinh(x):
    """Hyperbolic sine."""
    e = expm1(abs(x))
    return copysign(0.5 * (e + e / (e + 1.0)), x)


@library
def cosh(x):
    """Hyperbolic cosine."""
    e = exp(abs(x))
    return 0.5 * (e + 1.0 / e)


@library
def fast_dividef(x, y):
    """x / y."""
    return x / y


fast_expf = exp
fast_exp2f = exp2
fast_logf = log
fast_log2f = log2
fast_sinf = sin
fast_cosf = cos
fast_tanhf = tanh

fmax = maximum
fmin = minimum
isinfd = isinf
isnand = isnan
fabs = abs

__all__ = [
    "abs",
    "atan",
    "atan2",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "div_rn",
    "erf",
    "exp",
    "exp10",
    "exp2",
    "expm1",
    "fabs",
    "fast_cosf",
    "fast_dividef",
    "fast_exp2f",
    "fast_expf",
    "fast_log2f",
    "fast_logf",
    "fast_sinf",
    "fast_tanhf",
    "finitef",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "isfinited",
    "isinf",
    "isinfd",
    "isnan",
    "isnand",
    "log",
    "log10",
    "log1p",
    "log2",
    "mul_rn",
    "pow",
    "rint",
    "round",
    "rsqrt",
    "sin",
    "sinh",
    "sqrt",
    "sqrt_rn",
    "tanh",
    "trunc",
]
