"""Element types that are stored and not computed with, against tables of all their numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import CompilationError

ALL = np.arange(256, dtype=np.uint8)
FNUZ = {"float8e4b8": ml_dtypes.float8_e4m3fnuz, "float8e5b16": ml_dtypes.float8_e5m2fnuz}


@triton.jit
def widen(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


@triton.jit
def narrow(x, out, N: tl.constexpr, ROUNDING: tl.constexpr = None):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty, fp_downcast_rounding=ROUNDING))


@triton.jit
def from_bits(x, out, DTYPE: tl.constexpr):
    """Bits that become numbers inside, numbers that become bits, constants and choices."""
    i = tl.arange(0, 256)
    v = tl.load(x + i, mask=i < 200, other=0).to(DTYPE, bitcast=True)
    tl.static_assert(v.dtype == DTYPE)
    v = tl.where(i < 100, v, tl.full((256,), 1.25, DTYPE))
    v = tl.where(i == 101, tl.zeros_like(v), v)
    tl.store(out + i, v.to(tl.float32))


@triton.jit
def multiply(a, b, out, DTYPE: tl.constexpr):
    o = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    x, y = tl.load(a + o).to(DTYPE, bitcast=True), tl.load(b + o).to(DTYPE, bitcast=True)
    tl.store(out + o, tl.dot(x, y) + tl.max(x, 1)[:, None])


@triton.jit
def added(x):
    v = tl.load(x)
    tl.store(x, v + v)


@triton.jit
def rooted(x):
    tl.store(x, tl.sqrt(tl.load(x)))


@triton.jit
def compared(x):
    v = tl.load(x)
    tl.store(x, tl.where(v > v, v, v))


@triton.jit
def sorted_(x):
    i = tl.arange(0, 8)
    tl.store(x + i, tl.sort(tl.load(x + i)))


def e4b15(code):
    """The numbers of float8e4b15: an f16 with four bits of exponent and three of mantissa."""
    magnitude = (code & 0x7F).astype(np.uint16) << 7 | (code & 0x80).astype(np.uint16) << 8
    return magnitude.view(np.float16).astype(np.float64)


def inputs(rng, table, dtype):
    """Every number, every middle of two and its neighbours, numbers of all sizes and the special ones."""
    finite = np.unique(np.abs(table[np.isfinite(table)]))
    ties = (finite[1:] + finite[:-1]) / 2
    near = [ties, np.nextafter(ties, np.inf), np.nextafter(ties, 0)]
    if dtype == np.float32:
        near += [np.nextafter(ties.astype(np.float32), np.float32(x)) for x in (np.inf, 0)]
    special = [np.inf, np.nan, 0.0, 1e30, finite[-1] * 1.01, finite[-1] * 1.06, finite[-1] * 1.13, finite[1] / 2, 1e-30]
    sizes = np.exp2(rng.uniform(-25, 20, 300))
    with np.errstate(over="ignore"):
        values = np.concatenate([finite, *near, special, sizes]).astype(dtype)
    values = np.concatenate([values, -values])
    padded = np.zeros(1 << int(np.ceil(np.log2(len(values)))), dtype)
    padded[: len(values)] = values
    return padded


def nearest(x, table, to_zero):
    """The codes of FNUZ numbers: nearest, ties to the even code, or towards zero; saturating."""
    codes = np.flatnonzero(np.isfinite(table[:128]))
    numbers, size = table[codes], np.abs(x.astype(np.float64))
    below = codes[np.clip(np.searchsorted(numbers, size, side="right") - 1, 0, None)]
    above = np.minimum(below + 1, codes[-1])
    up, down = table[above] - size, size - table[below]
    code = np.where((up < down) | ((up == down) & (below & 1 == 1)), above, below)
    code = below if to_zero else code
    code = np.where(size >= numbers[-1], codes[-1], code)
    code = np.where((x < 0) & (code != 0), code | 0x80, code)
    return np.where(np.isnan(x), 0x80, code).astype(np.uint8)


@pytest.mark.parametrize("name", FNUZ)
@pytest.mark.parametrize("wide", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
def test_every_number_is_widened(launch, name, wide):
    x = ALL.view(FNUZ[name])
    got = launch(widen, (1,), x, np.zeros(256, wide), N=256)[1]
    np.testing.assert_array_equal(got.astype(np.float64), x.astype(wide).astype(np.float64))


@pytest.mark.parametrize("rounding", [None, "rtz"])
@pytest.mark.parametrize("name", FNUZ)
@pytest.mark.parametrize("source", [np.float32, np.float64, np.float16])
def test_numbers_are_rounded_once(launch, rng, name, source, rounding):
    table = ALL.view(FNUZ[name]).astype(np.float64)
    x = inputs(rng, table, source)
    got = launch(narrow, (1,), x, np.zeros(len(x), FNUZ[name]), N=len(x), ROUNDING=rounding)[1]
    np.testing.assert_array_equal(got.view(np.uint8), nearest(x, table, rounding == "rtz"))


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int32, np.int64, np.bool_])
def test_integers_are_rounded_once(launch, rng, kind):
    table = ALL.view(FNUZ["float8e4b8"]).astype(np.float64)
    x = rng.integers(0, 2, 128).astype(kind) if kind == np.bool_ else np.arange(-64, 64).astype(kind)
    if np.dtype(kind).itemsize >= 4:
        x[:2] = np.iinfo(kind).max, np.iinfo(kind).min
    got = launch(narrow, (1,), x, np.zeros(128, FNUZ["float8e4b8"]), N=128)[1]
    np.testing.assert_array_equal(got.view(np.uint8), nearest(x.astype(np.float64), table, False))


@pytest.mark.parametrize("source", [np.float32, np.float16])
def test_float8e4b15_is_rounded_as_triton_does(rng, launch, source):
    """To an f16 towards zero, then to nearest, ties away from zero; not above 1.75, which is what NaN gives."""
    x = inputs(rng, e4b15(ALL), source)
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    beyond = np.abs(half.astype(np.float64)) > np.abs(x.astype(np.float64))
    half = np.where(beyond, np.nextafter(half, np.float16(0)), half)
    size = np.minimum(np.where(np.isnan(half), np.inf, np.abs(half.astype(np.float64))), 1.75)
    code = np.array(
        [np.flatnonzero(np.abs(e4b15(ALL[:127]) - s) == np.abs(e4b15(ALL[:127]) - s).min())[-1] for s in size]
    )
    want = (code | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)
    out = np.zeros(len(x), np.uint8)
    held = launch(narrow_bits, (1,), x, out, N=len(x))[1]
    nan = np.isnan(x)
    np.testing.assert_array_equal(held[~nan], want[~nan])
    assert (held[nan] & 0x7F == 0x7E).all()  # a GPU's conversion to f16 drops the sign of NaN


@triton.jit
def narrow_bits(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(tl.float8e4b15).to(tl.uint8, bitcast=True))


@pytest.mark.parametrize("name", [*FNUZ, "float8e4b15"])
def test_bits_constants_and_choices(launch, name):
    table = e4b15(ALL) if name == "float8e4b15" else ALL.view(FNUZ[name]).astype(np.float64)
    want = np.where(ALL < 100, table, 1.25)
    want[101] = 0
    got = launch(from_bits, (1,), ALL, np.zeros(256, np.float32), DTYPE=getattr(tl, name))[1]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", [*FNUZ, "float8e4b15"])
def test_products_and_extrema(launch, rng, name):
    """In f16 and f32, which hold all of their numbers."""
    a, b = (rng.integers(0, 0x50, (16, 16)).astype(np.uint8) for _ in range(2))
    x, y = (e4b15(v) if name == "float8e4b15" else v.view(FNUZ[name]).astype(np.float64) for v in (a, b))
    got = launch(multiply, (1,), a, b, np.zeros((16, 16), np.float32), DTYPE=getattr(tl, name))[2]
    np.testing.assert_allclose(got, x @ y + x.max(1)[:, None], rtol=1e-6)


def test_arrays_are_seen_as_formats_that_no_library_has():
    x, out = ALL.copy(), np.zeros(256, np.float32)
    widen[(1,)](triton.reinterpret(x, tl.float8e4b15), out, N=256)
    np.testing.assert_array_equal(out, e4b15(ALL))


def test_their_names():
    assert str(tl.float8e4b8) == "fp8e4b8"
    assert repr(tl.float8e5b16) == "triton.language.float8e5b16"
    assert tl.float8e4b15.is_fp8() and tl.float8e4b15.is_fp8e4b15() and not tl.float8e4b15.is_fp8e4b8()


@pytest.mark.parametrize("kernel", [added, rooted, compared, sorted_])
def test_there_is_no_arithmetic(kernel):
    with pytest.raises(CompilationError) as caught:
        triton.compile(kernel, {"x": "*fp8e4b8"})
    assert "float8e4b8" in str(caught.value)
    assert ".to(tl.float16)" in str(caught.value)
    assert "^" in str(caught.value)


@triton.jit
def magnitudes(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.abs(tl.load(x + i)))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_magnitudes_of_eight_bit_floats(launch, dtype):
    got = launch(magnitudes, (1,), ALL.view(dtype), np.zeros(256, dtype), N=256)[1]
    np.testing.assert_array_equal(got.view(np.uint8), ALL & 0x7F)


@triton.jit
def extrema_of_bytes(x_ptr, y_ptr, least_ptr, most_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(least_ptr + i, tl.minimum(x, y))
    tl.store(most_ptr + i, tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_extrema_of_8_bit_floats_are_operands(launch, dtype) -> None:
    """The larger of two infinities was 57344, what they become where f32 is rounded to float8e5."""
    x = np.array([np.inf, -np.inf, 1, 0.0, -0.0, 57344, 448, 2**-6], np.float32).astype(dtype)
    y = np.array([np.inf, 1, -np.inf, -0.0, 0.0, np.inf, 0, 3], np.float32).astype(dtype)
    least, most = launch(extrema_of_bytes, (1,), x, y, np.zeros(8, dtype), np.zeros(8, dtype), N=8)[2:]
    wide = [v.astype(np.float32) for v in (x, y)]
    zeros = (wide[0] == 0) & (wide[1] == 0)
    for got, plain, zero in ((least, np.fmin, -0.0), (most, np.maximum, 0.0)):
        expected = np.where(zeros, np.float32(zero), plain(*wide)).astype(dtype)
        numbers = expected == expected
        np.testing.assert_array_equal(got[numbers].view(np.uint8), expected[numbers].view(np.uint8))
        assert np.isnan(got[~numbers].astype(np.float32)).all()
