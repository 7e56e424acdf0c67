"""One function of each element: those of the language, of libdevice in f32 and in f64, and of 64-bit integers."""

from __future__ import annotations

from collections.abc import Callable

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, blocks

libdevice = tl.extra.cuda.libdevice


@triton.jit
def elementwise(x, o, n, OP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    f = v.to(tl.float32)
    if OP == "gelu_tanh":
        y = 0.5 * f * (1.0 + libdevice.tanh(0.7978845608 * (f + 0.044715 * f * f * f)))
    elif OP == "mish":
        y = f * libdevice.tanh(tl.log(1.0 + tl.exp(f)))
    elif OP == "silu":
        y = f * tl.sigmoid(f)
    elif OP == "log":
        y = tl.log(tl.abs(f) + 1.0)
    elif OP == "log2":
        y = tl.log2(tl.abs(f) + 1.0)
    elif OP == "exp":
        y = tl.exp(f)
    elif OP == "sincos":
        y = tl.sin(f) * tl.cos(f)
    elif OP == "pow":
        y = libdevice.pow(tl.abs(f), 1.7)
    elif OP == "log1p":
        y = libdevice.log1p(tl.abs(f))
    elif OP == "expm1":
        y = libdevice.expm1(f)
    elif OP == "erf":
        y = tl.erf(f)
    elif OP == "div":
        y = f / (f * f + 1.5)
    elif OP == "sqrt":
        y = tl.sqrt(tl.abs(f)) + tl.rsqrt(tl.abs(f) + 1.0)
    elif OP == "round":
        y = tl.floor(f * 3.0) + tl.ceil(f) + libdevice.rint(f * 7.0)
    elif OP == "atan":
        y = libdevice.atan(f)
    elif OP == "clamp":
        y = tl.clamp(f, -0.5, 0.5)
    elif OP == "idiv":
        y = ((f * 1000.0).to(tl.int32) // 7 + (f * 100.0).to(tl.int32) % 13).to(tl.float32)
    tl.store(o + i, y.to(o.dtype.element_ty), mask=i < n)


@triton.jit
def libdevice_f32(x, o, n, OP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    f = tl.load(x + i, mask=i < n, other=0.0)
    if OP == "erfc":
        y = libdevice.erfc(f)
    elif OP == "tan":
        y = libdevice.tan(f)
    elif OP == "asinh":
        y = libdevice.asinh(f)
    elif OP == "sinh":
        y = libdevice.sinh(f)
    elif OP == "cbrt":
        y = libdevice.cbrt(f)
    elif OP == "normcdf":
        y = libdevice.normcdf(f)
    elif OP == "erfinv":
        y = libdevice.erfinv(f * 0.2)
    elif OP == "lgamma":
        y = libdevice.lgamma(f)
    elif OP == "hypot":
        y = libdevice.hypot(f, f + 1.0)
    elif OP == "fmod":
        y = libdevice.fmod(f, 0.37)
    elif OP == "atan2":
        y = libdevice.atan2(f, f + 0.3)
    elif OP == "sin":
        y = tl.sin(f)
    elif OP == "acos":
        y = libdevice.acos(f * 0.2)
    elif OP == "sqrt_rn":
        y = tl.sqrt_rn(tl.abs(f))
    elif OP == "div_rn":
        y = tl.div_rn(f, f * f + 1.0)
    elif OP == "rem":
        y = f % 0.7
    elif OP == "exp10":
        y = libdevice.exp10(f)
    tl.store(o + i, y, mask=i < n)


@triton.jit
def f64_poly(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.exp(v) * tl.sin(v) + tl.log(tl.abs(v) + 1.0), mask=i < n)


@triton.jit
def i64_hash(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    h = tl.load(x + i, mask=i < n, other=0)
    h = (h ^ (h >> 30)) * 0x3F58476D1CE4E5B9
    h = (h ^ (h >> 27)) * 0x14D049BB133111EB
    tl.store(y + i, (h ^ (h >> 31)) % 1000003, mask=i < n)


#: Of bf16, computed in f32.
OPERATIONS = [
    "gelu_tanh",
    "mish",
    "silu",
    "log",
    "log2",
    "exp",
    "sincos",
    "pow",
    "log1p",
    "expm1",
    "erf",
    "div",
    "sqrt",
    "round",
    "atan",
    "clamp",
    "idiv",
]
#: Of f32, most of them libdevice's.
FUNCTIONS = [
    "erfc",
    "tan",
    "asinh",
    "sinh",
    "cbrt",
    "normcdf",
    "erfinv",
    "lgamma",
    "hypot",
    "fmod",
    "atan2",
    "sin",
    "acos",
    "sqrt_rn",
    "div_rn",
    "rem",
    "exp10",
]


def numbers(kind: str) -> Callable[[Arrays], Arguments]:
    return lambda arrays: {"x": arrays.normal(kind, 1 << 26), "o": arrays.zeros(kind, 1 << 26), "n": 1 << 26}


def doubles(arrays: Arrays) -> Arguments:
    return {"x": arrays.normal("fp64", 1 << 24), "y": arrays.zeros("fp64", 1 << 24), "n": 1 << 24}


def keys(arrays: Arrays) -> Arguments:
    return {"x": arrays.integers("i64", 0, 2**40, 1 << 24), "y": arrays.zeros("i64", 1 << 24), "n": 1 << 24}


CASES = [
    *(Case(f"ew_{name}", elementwise, numbers("bf16"), blocks, {"OP": name, "B": 1024}) for name in OPERATIONS),
    *(Case(f"lib_{name}", libdevice_f32, numbers("fp32"), blocks, {"OP": name, "B": 1024}) for name in FUNCTIONS),
    Case("f64_poly", f64_poly, doubles, blocks, {"B": 512}),
    Case("i64_hash", i64_hash, keys, blocks, {"B": 1024}),
]
