"""Elementwise operations against independent references: f64 mathematics, and Python integers taken modulo 2**bits."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.compiler.errors import UnsupportedOp
from deuteron.compiler.ir import REGISTRY, SCALARS, Op, Tile
from deuteron.compiler.ir.types import F32, F64, I32, I64, Pointer
from deuteron.compiler.targets.interpreter import EagerBuilder, Memory, evaluates
from deuteron.compiler.targets.interpreter.numbers import fused
from deuteron.compiler.tile import elementwise as e

BF16, E4M3, E5M2 = (np.dtype(d) for d in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))
# Largest distance from the exact result, relative to it: half a unit in the last place.
ROUNDING = {
    np.dtype(np.float16): 2**-11, BF16: 2**-8, np.dtype(np.float32): 2**-24, np.dtype(np.float64): 2**-50,
}  # fmt: skip
INTEGERS = [np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)]


def integers(dtype: np.dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    values = [0, 1, 2, 3, 7, 100, info.max, info.max - 1, info.min, info.min + 1, 5, 64]
    values += [-1, -3, -100, -7] if info.min < 0 else [info.max // 2, info.max // 3, 10, 11]
    return np.array(values, dtype)


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left, right = np.meshgrid(values, values)
    return left.copy(), right.copy()


def c_quotient(a: int, b: int) -> int:
    return math.trunc(Fraction(a, b))


INTEGER_BINARY = {
    e.Add: lambda a, b, bits: a + b,
    e.Sub: lambda a, b, bits: a - b,
    e.Mul: lambda a, b, bits: a * b,
    e.IntDiv: lambda a, b, bits: c_quotient(a, b),
    e.Rem: lambda a, b, bits: a - b * c_quotient(a, b),
    e.And: lambda a, b, bits: a & b,
    e.Or: lambda a, b, bits: a | b,
    e.Xor: lambda a, b, bits: a ^ b,
    e.Min: lambda a, b, bits: min(a, b),
    e.Max: lambda a, b, bits: max(a, b),
    e.MulHigh: lambda a, b, bits: (a * b) >> bits,
    e.Shl: lambda a, b, bits: a << b,
    e.Shr: lambda a, b, bits: a >> b,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("kind", INTEGER_BINARY, ids=lambda kind: kind.mnemonic)
def test_integer_binary(apply, kind, dtype):
    bits = 8 * dtype.itemsize
    left, right = pairs(integers(dtype))
    if kind in (e.IntDiv, e.Rem):
        right[right == 0] = 3
    if kind in (e.Shl, e.Shr):
        right = (right % bits).astype(dtype)
    (got,) = apply(lambda build, a, b: build.emit(kind(a, b)).result, left, right)
    wrap = SCALARS[f"{dtype.kind}{bits}"].wrap
    for x, a, b in zip(got.flat, left.flat, right.flat, strict=True):
        assert int(x) == wrap(INTEGER_BINARY[kind](int(a), int(b), bits)), (a, b)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_unary(apply, dtype):
    x = integers(dtype)
    wrap = SCALARS[f"{dtype.kind}{8 * dtype.itemsize}"].wrap
    kinds = {e.Neg: lambda a: -a, e.Not: lambda a: ~a, e.Abs: abs}
    got = apply(lambda build, a: [build.emit(kind(a)).result for kind in kinds], x)
    for function, results in zip(kinds.values(), got, strict=True):
        assert [int(r) for r in results] == [wrap(function(int(a))) for a in x]


BOOLEAN = {
    e.And: [0, 0, 0, 1], e.Or: [0, 1, 1, 1], e.Xor: [0, 1, 1, 0], e.Add: [0, 1, 1, 0], e.Mul: [0, 0, 0, 1],
    e.Sub: [0, 1, 1, 0], e.Min: [0, 0, 0, 1], e.Max: [0, 1, 1, 1],
}  # fmt: skip


@pytest.mark.parametrize("kind", BOOLEAN, ids=lambda kind: kind.mnemonic)
def test_booleans_are_integers_modulo_two(apply, kind):
    left, right = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    (got,) = apply(lambda build, a, b: build.emit(kind(a, b)).result, left, right)
    assert got.tolist() == [bool(x) for x in BOOLEAN[kind]]


def test_logical_not(apply):
    (got,) = apply(lambda build, a: build.emit(e.Not(a)).result, np.array([True, False]))
    assert got.tolist() == [False, True]


UNARY = {
    e.Neg: lambda x: -x, e.Abs: abs, e.Exp: math.exp, e.Exp2: lambda x: 2.0**x, e.Log: math.log,
    e.Log2: math.log2, e.Sin: math.sin, e.Cos: math.cos, e.Tanh: math.tanh, e.Erf: math.erf,
    e.Exp10: lambda x: 10.0**x, e.Log10: math.log10, e.Tan: math.tan, e.Reciprocal: lambda x: 1 / x, e.Atan: math.atan,
    e.Sqrt: math.sqrt, e.Rsqrt: lambda x: 1 / math.sqrt(x), e.Floor: math.floor, e.Ceil: math.ceil,
    e.RoundEven: round, e.Trunc: math.trunc,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("kind", UNARY, ids=lambda kind: kind.mnemonic)
def test_float_unary(apply, kind, dtype):
    positive = kind in (e.Log, e.Log2, e.Log10, e.Sqrt, e.Rsqrt)
    x = np.linspace(0.1 if positive else -4, 4.5, 64).astype(dtype)
    (got,) = apply(lambda build, a: build.emit(kind(a)).result, x)
    expected = np.array([float(UNARY[kind](float(a))) for a in x])
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=ROUNDING[dtype], atol=1e-30)


@pytest.mark.parametrize(
    ("kind", "x", "expected"),
    [
        (e.Exp, [np.inf, -np.inf, np.nan, 1000], [np.inf, 0, np.nan, np.inf]),
        (e.Log, [0, -1, np.inf, np.nan], [-np.inf, np.nan, np.inf, np.nan]),
        (e.Sqrt, [-1, 0, np.inf, np.nan], [np.nan, 0, np.inf, np.nan]),
        (e.Rsqrt, [0, np.inf, -1, np.nan], [np.inf, 0, np.nan, np.nan]),
        (e.RoundEven, [0.5, 1.5, 2.5, -0.5], [0, 2, 2, -0.0]),
        (e.Floor, [-0.5, np.inf, np.nan, -0.0], [-1, np.inf, np.nan, -0.0]),
        (e.Erf, [np.inf, -np.inf, np.nan, 0], [1, -1, np.nan, 0]),
    ],
    ids=lambda value: getattr(value, "mnemonic", ""),
)
def test_special_values(apply, kind, x, expected):
    (got,) = apply(lambda build, a: build.emit(kind(a)).result, np.array(x, np.float32))
    np.testing.assert_array_equal(got, np.array(expected, np.float32))
    known = ~np.isnan(got)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(np.array(expected)[known]))


BINARY = {
    e.Add: lambda a, b: a + b, e.Sub: lambda a, b: a - b, e.Mul: lambda a, b: a * b,
    e.Div: lambda a, b: a / b, e.Rem: math.fmod, e.Pow: np.float_power, e.Atan2: math.atan2,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("kind", BINARY, ids=lambda kind: kind.mnemonic)
def test_float_binary(apply, kind, dtype):
    left, right = pairs(np.linspace(-3, 4.3, 16).astype(dtype))
    (got,) = apply(lambda build, a, b: build.emit(kind(a, b)).result, left, right)
    with np.errstate(invalid="ignore"):
        exact = [BINARY[kind](float(a), float(b)) for a, b in zip(left.flat, right.flat, strict=True)]
    np.testing.assert_allclose(got.astype(np.float64).ravel(), exact, rtol=ROUNDING[dtype], atol=1e-30)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, BF16], ids=str)
def test_extremes_and_nan(apply, dtype):
    left, right = (np.array(v, dtype) for v in ([1, np.nan, 2, np.nan], [2, 3, np.nan, np.nan]))

    def make(build, a, b):
        return [build.emit(kind(a, b, nan)).result for nan in (False, True) for kind in (e.Min, e.Max)]

    got = [x.astype(float).tolist() for x in apply(make, left, right)]
    for plain, strict, first in ((got[0], got[2], 1), (got[1], got[3], 2)):
        assert plain[:3] == [first, 3, 2]
        assert math.isnan(plain[3])
        assert strict[0] == first
        assert all(math.isnan(x) for x in strict[1:])


def test_comparisons_of_nan_are_false_but_for_ne(apply):
    x, y = np.array([np.nan, 1, 1, 2], np.float32), np.array([np.nan, np.nan, 1, 1], np.float32)
    predicates = ["eq", "ne", "lt", "le", "gt", "ge"]
    got = apply(lambda build, a, b: [build.emit(e.Compare(a, b, p)).result for p in predicates], x, y)
    assert {p: r.tolist() for p, r in zip(predicates, got, strict=True)} == {
        "eq": [False, False, True, False], "ne": [True, True, False, True],
        "lt": [False, False, False, False], "le": [False, False, True, False],
        "gt": [False, False, False, True], "ge": [False, False, True, True],
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [*INTEGERS, np.dtype(bool), BF16], ids=str)
def test_comparisons_know_the_sign(apply, dtype):
    values = integers(dtype) if dtype in INTEGERS else np.array([1, 0, 1, 0], dtype)
    left, right = pairs(values)
    got = apply(
        lambda build, a, b: [build.emit(e.Compare(a, b, p)).result for p in ("lt", "ge")],
        left,
        right,
    )
    expected = [[float(a) < float(b) if dtype == BF16 else int(a) < int(b)
                 for a, b in zip(left.flat, right.flat, strict=True)]]  # fmt: skip
    assert got[0].ravel().tolist() == expected[0]
    assert got[1].ravel().tolist() == [not x for x in expected[0]]


def test_select(apply):
    got = apply(lambda build, c, a, b: build.emit(e.Select(c, a, b)).result,
                np.array([True, False]), np.array([1, 2]), np.array([3, 4]))  # fmt: skip
    assert got[0].tolist() == [1, 4]


finite = st.floats(-1e6, 1e6, width=32)


@given(x=finite, y=finite, z=finite)
def test_fma_rounds_once(x, y, z):
    eager = EagerBuilder(Memory(), (0, 0, 0), (1, 1, 1))
    operands = [eager.argument(name, Tile(F32), v) for name, v in (("x", x), ("y", y), ("z", z))]
    got = np.float32(eager.array(eager.emit(e.Fma(*operands)).result))
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    # The nearest f32 is at least as near as its two neighbours.
    near = [got, np.nextafter(got, np.float32(-np.inf)), np.nextafter(got, np.float32(np.inf))]
    distances = [abs(Fraction(float(v)) - exact) for v in near]
    assert distances[0] == min(distances)


@pytest.mark.parametrize("spread", [1, 40, 150, 700])
def test_fma_of_f64_is_that_of_fractions(spread):
    """Sums that nearly cancel, that lie at the middle between two numbers, and magnitudes at the ends of the range."""
    rng = np.random.default_rng(spread)

    def numbers(most):
        whole = rng.integers(1 << 52, 1 << 53, 4000) * rng.choice([-1.0, 1.0], 4000)
        short = np.where(rng.random(4000) < 0.5, whole, whole // 2.0**27 * 2.0**27)
        return np.ldexp(short, rng.integers(-most, most + 1, 4000) - 52)

    x, y, z = numbers(spread), numbers(spread), numbers(min(2 * spread, 1000))
    with np.errstate(all="ignore"):
        product = x * y
        chances = [rng.random(4000) < chance for chance in (0.2, 0.3, 0.4)]
        z = np.select(chances, [-product, np.nextafter(-product, 0), product * 2.0**-53], z)
        finite = np.isfinite(z)
        x, y, z = x[finite], y[finite], z[finite]
        got = fused(x, y, z, F64)
    for a, b, c, found in zip(x, y, z, got, strict=True):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        try:
            assert found == float(exact)
        except OverflowError:
            assert found == (math.inf if exact > 0 else -math.inf)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_fma_differs_from_two_roundings(apply, name):
    dtype = np.dtype(f"float{name[1:]}")
    tiny = np.array([np.finfo(dtype).eps], dtype)
    x, y, z = 1 + tiny, 1 - tiny, np.array([-1], dtype)
    (got,) = apply(lambda build, a, b, c: build.emit(e.Fma(a, b, c)).result, x, y, z)
    assert got[0] == -(tiny[0] ** 2)
    assert x[0] * y[0] + z[0] != got[0]


def cast(apply, x: np.ndarray, to: str, rounding: str = "rtne") -> np.ndarray:
    return apply(lambda build, a: build.emit(e.Cast(a, SCALARS[to], rounding)).result, x)[0]


@pytest.mark.parametrize("source", INTEGERS, ids=str)
@pytest.mark.parametrize("to", ["i1", "i8", "u8", "i32", "u32", "i64", "u64", "f32", "f64"])
def test_casts_of_integers(apply, source, to):
    x = integers(source)
    got = cast(apply, x, to)
    if to == "i1":
        assert got.tolist() == [int(v) != 0 for v in x]
    elif to[0] == "f":
        width = {"f32": np.float32, "f64": np.float64}[to]
        assert [float(v) for v in got] == [float(width(int(v))) for v in x]
    else:
        assert [int(v) for v in got] == [SCALARS[to].wrap(int(v)) for v in x]


def test_casts_of_floats_to_integers_truncate(apply):
    x = np.array([-2.9, -0.5, 0.5, 2.9], np.float32)
    assert cast(apply, x, "i32").tolist() == [-2, 0, 0, 2]
    assert cast(apply, x.astype(BF16), "i64").tolist() == [-2, 0, 0, 2]
    assert cast(apply, np.array([np.nan, 0.0, -0.0, 0.1], np.float32), "i1").tolist() == [
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("to", "rounding", "x", "expected"),
    [
        ("f16", "rtne", [1 + 2**-11, 1 + 3 * 2**-11, 65519, 65520, 2**-25], [1, 1 + 2**-9, 65504, np.inf, 0]),
        ("f16", "rtz", [1 + 3 * 2**-11, -1 - 3 * 2**-11, 1e9, np.inf, 2**-24 * 1.9],
         [1 + 2**-10, -1 - 2**-10, 65504, np.inf, 2**-24]),
        ("bf16", "rtne", [1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, np.nan], [1, 1 + 2**-6, np.inf, np.nan]),
        ("bf16", "rtz", [1 + 3 * 2**-8, -3.4e38, np.nan], [1 + 2**-7, -float(ml_dtypes.finfo(BF16).max), np.nan]),
        ("f8e4m3", "rtne", [1 + 2**-4, 1 + 3 * 2**-4, 460, 1e9, -np.inf, np.nan, 2**-10],
         [1, 1.25, 448, 448, -448, np.nan, 0]),
        ("f8e5m2", "rtne", [1 + 2**-3, 1 + 3 * 2**-3, 60000, np.inf, 2**-16], [1, 1.5, 57344, 57344, 2**-16]),
        ("f8e5m2", "rtz", [1.9, -1.9, 1e9, np.inf, -np.inf, np.nan], [1.75, -1.75, 57344, np.inf, -np.inf, np.nan]),
    ],
)  # fmt: skip
def test_narrowing_casts_of_floats(apply, to, rounding, x, expected):
    size = 8
    padded, wanted = (np.array([*v, *[0.0] * (size - len(v))]) for v in (x, expected))
    got = cast(apply, padded.astype(np.float32), to, rounding)
    np.testing.assert_array_equal(got.astype(np.float64), wanted)


def test_f64_is_rounded_to_bf16_once(apply):
    # In f32 this is the tie 1 + 2**-8, which would go to the even neighbour 1.
    x = np.array([1 + 2**-8 + 2**-40])
    assert float(cast(apply, x, "bf16")[0]) == 1 + 2**-7


def test_bitcasts(apply):
    x = np.array([1.0, -0.0, np.inf, 2.0], np.float32)
    (got,) = apply(lambda build, a: build.emit(e.Bitcast(a, I32)).result, x)
    assert got.tolist() == [0x3F800000, -0x80000000, 0x7F800000, 0x40000000]
    (back,) = apply(lambda build, a: build.emit(e.Bitcast(a, F32)).result, got)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "int8"])
def test_addptr_counts_elements(apply, dtype):
    offsets = np.array([0, 1, -2 if dtype[0] == "i" else 2, 100], dtype)

    def make(build, x, at):
        pointers = build.emit(e.Bitcast(x, Pointer(SCALARS["f16"]))).result
        return build.emit(e.Bitcast(build.emit(e.AddPtr(pointers, at)).result, I64)).result

    base = np.full(4, 1 << 40, np.int64)
    (got,) = apply(make, base, offsets)
    assert got.tolist() == [(1 << 40) + 2 * int(o) for o in offsets]


def test_constants_and_hints(apply):
    def make(build, x):
        made = [build.emit(e.Constant(v, Tile(SCALARS[n], (2,)))).result
                for v, n in ((-8, "u8"), (1.1, "bf16"), (True, "i1"), (2**63, "u64"))]  # fmt: skip
        return [*made, build.emit(e.Hint(x, divisibility=(4,))).result]

    got = apply(make, np.array([4, 8]))
    assert [float(x[1]) for x in got] == [248, 1.1015625, 1, 2**63, 8]


def test_every_elementwise_operation_is_tested_here():
    tested = {*INTEGER_BINARY, *UNARY, *BINARY, e.Not, e.Compare, e.Select, e.Fma, e.Cast, e.Bitcast, e.AddPtr,
              e.Hint, e.Constant}  # fmt: skip
    assert tested == {op for op in REGISTRY.values() if op.__module__ == e.__name__}


def test_unknown_operations_are_refused_with_a_reason():
    class Unheard(Op):
        """Not registered: has no mnemonic."""

    with pytest.raises(UnsupportedOp, match="not available on interpreter: no rule"):
        evaluates.find(Unheard())
