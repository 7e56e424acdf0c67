"""Elementwise operations against the interpreter: every type, special values and whole ranges."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.ir import types as t
from deuteron.compiler.tile import elementwise as e

FLOATS = ["f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2"]
INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "i1": np.bool_,
    **{f"{k}{b}": np.dtype(f"{'u' if k == 'u' else ''}int{b}") for k in "iu" for b in (8, 16, 32, 64)},
}  # fmt: skip
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, 2.0, -3.0, 65504.0, 448.0]


def floats(name: str, seed: int = 0, size: int = 64) -> np.ndarray:
    """Special values, then random ones of all magnitudes of the format."""
    rng = np.random.default_rng(seed)
    widest = {"f16": 4, "bf16": 37, "f32": 37, "f64": 100, "f8e4m3": 2.5, "f8e5m2": 4.5}[name]
    values = rng.standard_normal(size) * 10.0 ** rng.uniform(-widest, widest, size)
    values[: len(SPECIAL)] = rng.permutation(SPECIAL)
    with np.errstate(all="ignore"):
        return values.astype(DTYPES[name])


def integers(name: str, seed: int = 0, size: int = 64) -> np.ndarray:
    info = np.iinfo(DTYPES[name])
    rng = np.random.default_rng(seed)
    values = rng.integers(info.min, info.max, size, DTYPES[name], endpoint=True)
    values[:6] = rng.permutation(np.array([0, 1, 2, info.max, info.min, info.max - 1], DTYPES[name]))
    return values


def operands(name: str, seed: int = 0) -> np.ndarray:
    if name == "i1":
        return np.random.default_rng(seed).integers(0, 2, 64).astype(np.bool_)
    return floats(name, seed) if name in FLOATS else integers(name, seed)


@pytest.mark.parametrize("name", FLOATS + INTEGERS)
@pytest.mark.parametrize("kind", [e.Add, e.Sub, e.Mul, e.Min, e.Max])
def test_arithmetic(both, same, kind, name):
    found, wanted = both(lambda k, x, y: k.emit(kind(x, y)), operands(name, 1), operands(name, 2))
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("kind", [e.Min, e.Max])
def test_extrema_that_propagate_nan(both, same, kind, name):
    found, wanted = both(lambda k, x, y: k.emit(kind(x, y, propagate_nan=True)), floats(name, 1), floats(name, 2))
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", FLOATS)
def test_division(both, same, name):
    found, wanted = both(lambda k, x, y: k.emit(e.Div(x, y)), floats(name, 1), floats(name, 2))
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", FLOATS)
def test_fma_rounds_once(both, same, name):
    found, wanted = both(lambda k, x, y, z: k.emit(e.Fma(x, y, z)), floats(name, 1), floats(name, 2), floats(name, 3))
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_float_remainder(both, same, name):
    x = np.random.default_rng(0).uniform(-100, 100, 64).astype(DTYPES[name])
    y = np.random.default_rng(1).uniform(0.1, 7, 64).astype(DTYPES[name])
    found, wanted = both(lambda k, x, y: k.emit(e.Rem(x, y)), x, y)
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", [e.IntDiv, e.Rem])
def test_integer_division(both, same, kind, name):
    y = operands(name, 2)
    y[y == 0] = 3
    found, wanted = both(lambda k, x, y: k.emit(kind(x, y)), operands(name, 1), y)
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", [e.IntDiv, e.Rem])
def test_division_that_would_trap_does_not_end_the_process(both, kind, name):
    info = np.iinfo(DTYPES[name])
    for divisor in (0, info.max if info.min == 0 else -1):
        for size in (32, 1):  # vectors and scalars
            x, y = np.full(size, info.min, DTYPES[name]), np.full(size, divisor, DTYPES[name])
            both(lambda k, x, y: k.emit(kind(x, y)), x, y)


@pytest.mark.parametrize("name", ["i32", "i64", "u32", "u64"])
def test_upper_half_of_products(both, same, name):
    found, wanted = both(lambda k, x, y: k.emit(e.MulHigh(x, y)), operands(name, 1), operands(name, 2))
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", ["i1", *INTEGERS])
@pytest.mark.parametrize("kind", [e.And, e.Or, e.Xor])
def test_bitwise(both, same, kind, name):
    found, wanted = both(lambda k, x, y: k.emit(kind(x, y)), operands(name, 1), operands(name, 2))
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", [e.Shl, e.Shr])
def test_shifts(both, same, kind, name):
    amounts = (np.arange(64) % np.dtype(DTYPES[name]).itemsize * 8 // 2).astype(DTYPES[name])
    found, wanted = both(lambda k, x, y: k.emit(kind(x, y)), operands(name, 1), amounts)
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", [e.Shl, e.Shr])
def test_shifts_by_the_width_and_more_leave_nothing_but_the_sign(both, same, kind, name):
    """Known amounts, too."""
    dtype = np.dtype(DTYPES[name])
    bits = 8 * dtype.itemsize
    amounts = np.resize(np.array([0, bits - 1, bits, bits + 1, 100, 127], dtype), 64)
    found, wanted = both(lambda k, x, y: k.emit(kind(x, y)), operands(name, 1), amounts)
    same(found[0], wanted[0])
    known, wanted = both(lambda k, x: k.binary(kind, x, bits), operands(name, 1))
    same(known[0], wanted[0])


@pytest.mark.parametrize("name", ["i1", *FLOATS, *INTEGERS])
@pytest.mark.parametrize("predicate", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(both, same, predicate, name):
    x, y = operands(name, 1), operands(name, 2)
    y[::3] = x[::3]
    found, wanted = both(lambda k, x, y: k.emit(e.Compare(x, y, predicate)), x, y)
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", ["i1", *FLOATS, *INTEGERS])
def test_select(both, same, name):
    found, wanted = both(
        lambda k, c, x, y: k.emit(e.Select(c, x, y)),
        operands("i1"),
        operands(name, 1),
        operands(name, 2),
    )
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("kind", [e.Neg, e.Abs])
def test_sign(both, same, kind, name):
    found, wanted = both(lambda k, x: k.emit(kind(x)), operands(name))
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", ["i1", *INTEGERS])
def test_complement(both, same, name):
    found, wanted = both(lambda k, x: k.emit(e.Not(x)), operands(name))
    same(found[0], wanted[0])


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("kind", [e.Floor, e.Ceil, e.Trunc, e.RoundEven])
def test_rounding(both, same, kind, name):
    x = floats(name)
    x[20:40] = (np.arange(20) / 4 - 2.5).astype(x.dtype)
    found, wanted = both(lambda k, x: k.emit(kind(x)), x)
    same(found[0], wanted[0])


#: Relative errors: 2 ulp of f32, a few of f64, one rounding of the 16-bit formats, which compute in f32.
TOLERANCE = {"f32": 2.5e-7, "f64": 2e-15, "f16": 1e-3, "bf16": 8e-3}


@pytest.mark.parametrize("name", list(TOLERANCE))
@pytest.mark.parametrize(
    "kind",
    [
        *(e.Exp, e.Exp2, e.Exp10, e.Log, e.Log2, e.Log10, e.Sin, e.Cos, e.Tan, e.Atan, e.Tanh, e.Erf),
        *(e.Sqrt, e.Rsqrt),
    ],
)
def test_functions(both, same, kind, name):
    x = np.random.default_rng(0).uniform(-8, 8, 64).astype(DTYPES[name])
    x[: len(SPECIAL)] = np.array(SPECIAL).astype(x.dtype)
    found, wanted = both(lambda k, x: k.emit(kind(x)), x)
    same(found[0], wanted[0], TOLERANCE[name])


ELEMENTS = ["i1", *FLOATS, *INTEGERS]


@pytest.mark.parametrize("name,to", [(a, b) for a in ELEMENTS for b in ELEMENTS if a != b])
def test_casts(both, same, name, to):
    x = operands(name)
    if name in FLOATS and to in INTEGERS:  # out of range is undefined
        info = np.iinfo(DTYPES[to])
        largest = min(float(info.max) * 0.99, 400.0)
        x = np.random.default_rng(0).uniform(max(info.min, -largest), largest, 64).astype(x.dtype)
    found, wanted = both(lambda k, x: k.emit(e.Cast(x, t.SCALARS[to])), x)
    same(found[0], wanted[0])


@pytest.mark.parametrize(
    "name,to", [("f32", "f16"), ("f32", "bf16"), ("f64", "f32"), ("f64", "f16"), ("bf16", "f8e4m3"), ("f64", "f8e5m2")]
)
def test_casts_towards_zero(both, same, name, to):
    found, wanted = both(lambda k, x: k.emit(e.Cast(x, t.SCALARS[to], "rtz")), floats(name))
    same(found[0], wanted[0])


@pytest.mark.parametrize(
    "name,to",
    [
        ("f32", "i32"),
        ("i32", "f32"),
        ("f16", "u16"),
        ("bf16", "i16"),
        ("i64", "f64"),
        ("u8", "f8e5m2"),
    ],
)
def test_bitcasts(both, name, to):
    found, wanted = both(lambda k, x: k.emit(e.Bitcast(x, t.SCALARS[to])), operands(name))
    assert found[0].tobytes() == wanted[0].tobytes()


def test_all_f16_values_survive_bf16_and_f8(both, same):
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for to in (t.BF16, t.F8E4M3, t.F8E5M2, t.F32):
        found, wanted = both(lambda k, x, to=to: k.emit(e.Cast(x, to)), x)
        same(found[0], wanted[0])


def test_all_f16_values_go_towards_zero_to_f8(both, same):
    """Also NaN, all of whose mantissa may be below that of the narrow type."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for to in (t.F8E4M3, t.F8E5M2):
        found, wanted = both(lambda k, x, to=to: k.emit(e.Cast(x, to, "rtz")), x)
        same(found[0], wanted[0])


def test_all_f8_values_widen(both, same):
    for name in ("f8e4m3", "f8e5m2"):
        x = np.arange(256, dtype=np.uint8).view(DTYPES[name])
        found, wanted = both(lambda k, x: k.emit(e.Cast(x, t.F32)), x)
        same(found[0], wanted[0])


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", [0.1, -0.0, 3.3e4, 1e-6, math.inf, math.nan])
def test_constants(both, same, name, value):
    def make(k, x):
        return k.binary(e.Add, k.constant(value, f"tile<64x{name}>"), k.constant(0.0, f"tile<64x{name}>"))

    found, wanted = both(make, operands("i32"))
    same(found[0], wanted[0])


def wrapping_numbers(kernel, type: str, start: int, factor: int):
    """``arange(0, 512) * factor + start``, computed in a type where that may wrap."""
    index = kernel.emit(e.Cast(kernel.arange(512), t.SCALARS[type]))
    return kernel.binary(e.Add, kernel.binary(e.Mul, index, factor), start)


@pytest.mark.parametrize(
    ("type", "start", "factor"),
    [("u8", 3, 1), ("i8", 3, 1), ("u8", 0, 3), ("i16", 0, 127), ("u32", 2**32 - 5, 1), ("i32", 2**31 - 5, 1)],
)
def test_consecutive_numbers_that_wrap_are_widened_one_by_one(kernel, run, type, start, factor):
    numbers = wrapping_numbers(kernel, type, start, factor)
    out = kernel.parameter("out", "*i64")
    kernel.store(kernel.rows(out, (512,)), kernel.emit(e.Cast(numbers, t.I64)))
    found = np.zeros(512, np.int64)
    run(kernel.function, [found])
    wanted = (np.arange(512) * factor + start).astype(DTYPES[type])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("type", ["u8", "u16"])
def test_offsets_that_wrap_stay_in_the_table(kernel, run, guarded, type):
    size = np.iinfo(DTYPES[type]).max + 1
    start = size - 256 + 3
    table = guarded(np.arange(size, dtype=np.int32))
    base, out = kernel.parameter("table", "*i32"), kernel.parameter("out", "*i32")
    pointers = kernel.pointers(base, wrapping_numbers(kernel, type, start, 1))
    kernel.store(kernel.rows(out, (512,)), kernel.load(pointers))
    found = np.zeros(512, np.int32)
    run(kernel.function, [table.array, found])
    np.testing.assert_array_equal(found, (np.arange(512) + start) % size)


def test_a_negative_shift_is_undefined_and_compiles(kernel, run):
    out = kernel.parameter("out", "*i32")
    kernel.store(kernel.rows(out, (64,)), kernel.binary(e.Shl, kernel.arange(64), -1))
    run(kernel.function, [np.zeros(64, np.int32)])


def test_halves_of_multiples_are_no_multiples(kernel, run):
    """256 divides the first factor and not 253, the product: consecutive numbers from there leave a byte."""
    start, half = kernel.parameter("start", "i32", 256), kernel.parameter("half", "f32")
    product = kernel.binary(e.Mul, kernel.emit(e.Cast(start, t.F32)), half)
    begin = kernel.emit(e.Cast(kernel.emit(e.Cast(product, t.I32)), t.SCALARS["u8"]))
    index = kernel.emit(e.Cast(kernel.arange(16), t.SCALARS["u8"]))
    numbers = kernel.binary(e.Add, index, begin)
    out = kernel.parameter("out", "*i32")
    kernel.store(kernel.rows(out, (16,)), kernel.emit(e.Cast(numbers, t.I32)))
    found = np.zeros(16, np.int32)
    run(kernel.function, [256, 253 / 256, found])
    np.testing.assert_array_equal(found, (np.arange(16) + 253) % 256)
