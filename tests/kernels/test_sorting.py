"""flip, sort and topk against NumPy: every kind of number, every dimension, NaN, infinities and zeros of both signs."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import CompilationError


@triton.jit
def flip_all(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, DIM: tl.constexpr):
    a = tl.arange(0, A)[:, None, None] * (B * C)
    o = a + tl.arange(0, B)[None, :, None] * C + tl.arange(0, C)[None, None, :]
    tl.store(out + o, tl.flip(tl.load(x + o), DIM))


@triton.jit
def sort_all(
    x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, DIM: tl.constexpr, DESCENDING: tl.constexpr = False
):
    a = tl.arange(0, A)[:, None, None] * (B * C)
    o = a + tl.arange(0, B)[None, :, None] * C + tl.arange(0, C)[None, None, :]
    tl.store(out + o, tl.sort(tl.load(x + o), DIM, descending=DESCENDING))


@triton.jit
def merge_rows(x, out, M: tl.constexpr, N: tl.constexpr, DIM: tl.constexpr, DESCENDING: tl.constexpr):
    o = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + o, tl.bitonic_merge(tl.load(x + o), DIM, DESCENDING))


@triton.jit
def sort_row(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).sort())


@triton.jit
def topk_last(x, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)[:, None]
    best = tl.topk(tl.load(x + rows * N + tl.arange(0, N)[None, :]), K)
    tl.static_assert(best.dtype == tl.max(tl.load(x + tl.arange(0, 2)), 0).dtype or K == N)
    tl.static_assert(best.dtype == x.dtype.element_ty or K < N)
    tl.store(out + rows * K + tl.arange(0, K)[None, :], best)


@triton.jit
def topk_first(x, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    columns = tl.arange(0, N)[None, :]
    best = tl.topk(tl.load(x + tl.arange(0, M)[:, None] * N + columns), K, dim=0)
    tl.store(out + tl.arange(0, K)[:, None] * N + columns, best)


@triton.jit
def sort_computed(x, out, N: tl.constexpr, ROUNDS):
    """What is sorted was computed, in a loop that carries it, and what comes out is computed with."""
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for r in range(ROUNDS):
        v = tl.sort(v * 3 + tl.flip(v) + r) % 1000
    tl.store(out + i, tl.flip(v) - v)


@triton.jit
def one_of_both_ends(x, y, c, out, N: tl.constexpr):
    """The larger or the smaller of two, as a network exchanges them, and what only looks like it."""
    i = tl.arange(0, N)
    a, b, upper = tl.load(x + i), tl.load(y + i), tl.load(c + i) != 0
    tl.store(out + i, tl.where(upper, tl.maximum(a, b), tl.minimum(b, a)))
    tl.store(out + N + i, tl.where(upper, tl.minimum(a, b), tl.maximum(a, b)))
    tl.store(out + 2 * N + i, tl.where(upper, tl.maximum(a, b), tl.minimum(a, i)))
    tl.store(out + 3 * N + i, tl.where(upper, tl.maximum(a, b), tl.maximum(b, a)))


DTYPES = {
    "bool": np.bool_, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u32": np.uint32, "i64": np.int64,
    "u64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip

SPECIAL = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0]


def numbers(rng, name, shape):
    """Bits drawn at random, so that floats of all magnitudes, NaN and subnormal numbers are among them."""
    dtype = np.dtype(DTYPES[name])
    count = int(np.prod(shape))
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    bits = rng.integers(0, 256, (count, dtype.itemsize), dtype=np.uint8).view(dtype).reshape(-1)
    if dtype.kind not in "iu":
        special = np.array(SPECIAL, np.float64).astype(dtype)
        places = rng.choice(count, min(count, 6), replace=False)
        bits[places] = special[rng.integers(0, len(SPECIAL), len(places))]
    return bits.reshape(shape)


def ascending(x, axis):
    """Sorted by Python: numbers, -0.0 before 0.0, then NaN."""

    def key(number):
        if isinstance(number, int):
            return number
        return (math.isnan(number), 0 if math.isnan(number) else number, math.copysign(1, number))

    def line(row):
        order = sorted(
            range(len(row)), key=lambda i: key(row[i].item() if row[i].dtype.kind in "iub" else float(row[i]))
        )
        return row[order]

    return np.apply_along_axis(line, axis, x)


def same(got, want):
    """Bit by bit, but any NaN is a NaN."""
    assert got.dtype == want.dtype
    whole = f"u{got.dtype.itemsize}"
    bits = np.ascontiguousarray(got).view(whole) == np.ascontiguousarray(want).view(whole)
    if got.dtype.kind not in "iub":
        with np.errstate(invalid="ignore"):  # signalling NaN
            wide = [x.astype(np.float64) for x in (got, want)]
        bits |= np.isnan(wide[0]) & np.isnan(wide[1])
    assert bits.all(), (got, want)


SHAPES = [((1, 1, 16), 2), ((4, 2, 8), -1), ((2, 8, 4), 1), ((16, 1, 4), 0), ((2, 1, 2), -2), ((1, 1, 256), None)]


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_flip(launch, rng, shape, dim):
    for name in ("f32", "i8"):
        x = numbers(rng, name, shape)
        sizes = dict(zip("ABC", shape, strict=True))
        got = launch(flip_all, (1,), x, np.zeros_like(x), **sizes, DIM=dim)[1]
        same(got, np.flip(x, -1 if dim is None else dim))


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_sort_along_each_dimension(launch, rng, shape, dim):
    x = numbers(rng, "f32", shape)
    sizes = dict(zip("ABC", shape, strict=True))
    want = ascending(x, -1 if dim is None else dim)
    for descending in (False, True):
        got = launch(sort_all, (1,), x, np.zeros_like(x), **sizes, DIM=dim, DESCENDING=descending)[1]
        same(got, np.flip(want, -1 if dim is None else dim) if descending else want)


@pytest.mark.parametrize(("name", "dim"), [("f32", 1), ("i8", 0)])
def test_merging_what_rises_and_falls(launch, rng, name, dim):
    want = ascending(numbers(rng, name, (16, 8)), dim)
    size = want.shape[dim]
    halves = np.take(want, range(0, size, 2), dim), np.take(want, range(size - 1, 0, -2), dim)
    x = np.concatenate(halves, dim)
    for descending in (False, True):
        got = launch(merge_rows, (1,), x, np.zeros_like(x), M=16, N=8, DIM=dim, DESCENDING=descending)[1]
        same(got, np.flip(want, dim) if descending else want)


@pytest.mark.parametrize("name", DTYPES)
def test_sort_every_type(launch, rng, name):
    x = numbers(rng, name, (64,))
    same(launch(sort_row, (1,), x, np.zeros_like(x), N=64)[1], ascending(x, 0))


@pytest.mark.parametrize("warps", [1, 4, 8])
def test_sort_many(launch, rng, warps):
    """Pairs lie in the same thread, in other lanes and in other warps."""
    x = numbers(rng, "f32", (512,))
    same(launch(sort_row, (1,), x, np.zeros_like(x), N=512, num_warps=warps)[1], ascending(x, 0))


@pytest.mark.parametrize("k", [1, 4, 32])
@pytest.mark.parametrize("name", ["f32", "i16", "bf16", "u64"])
def test_topk(launch, rng, name, k):
    x = numbers(rng, name, (4, 32))
    want = np.flip(ascending(x, 1), 1)[:, :k]
    same(launch(topk_last, (1,), x, np.zeros((4, k), x.dtype), M=4, N=32, K=k)[1], want)


@pytest.mark.parametrize("name", ["i64", "u64", "u32"])
def test_choices_between_the_larger_and_the_smaller(launch, rng, name):
    """Of 64 bits GPUs make one comparison of them."""
    x, y = numbers(rng, name, (64,)), numbers(rng, name, (64,))
    y[::4] = x[::4]
    c = rng.integers(0, 2, 64).astype(np.int32)
    low, high, place = np.minimum(x, y), np.maximum(x, y), np.arange(64).astype(x.dtype)
    want = [np.where(c, high, low), np.where(c, low, high), np.where(c, high, np.minimum(x, place)), high]
    got = launch(one_of_both_ends, (1,), x, y, c, np.zeros(256, x.dtype), N=64)[3]
    same(got, np.concatenate(want))


@triton.jit
def scaled_topk(q, h, out):
    i, j = tl.arange(0, 4), tl.arange(0, 2)
    tl.store(out + j, tl.topk(tl.load(q + i), 2) * 2)
    tl.store(out + 2 + j, tl.topk(tl.load(h + i), 2) * 40000.0)


def test_some_of_small_numbers_are_wide_enough_to_compute_with(launch):
    q, h = np.array([100, 200, 255, 1], np.uint8), np.array([1, 2, 3, 4], np.float16)
    assert launch(scaled_topk, (1,), q, h, np.zeros(4, np.float32))[2].tolist() == [510, 400, 160000, 120000]


@pytest.mark.parametrize("k", [2, 16])
def test_topk_of_columns(launch, rng, k):
    x = numbers(rng, "f32", (16, 8))
    want = np.flip(ascending(x, 0), 0)[:k]
    same(launch(topk_first, (1,), x, np.zeros((k, 8), x.dtype), M=16, N=8, K=k)[1], want)


def test_sort_in_a_loop(launch, rng):
    x = rng.integers(-1000, 1000, 128).astype(np.int32)
    want = x.copy()
    for r in range(3):
        want = np.fmod(np.sort(want * 3 + want[::-1] + r), 1000)
    got = launch(sort_computed, (1,), x, np.zeros_like(x), N=128, ROUNDS=3)[1]
    np.testing.assert_array_equal(got, want[::-1] - want)


@pytest.mark.parametrize("target", ["cpu", "cuda:90a"])
def test_long_rows_of_rank_two_compile(target):
    """Each value of a network is read twice: whoever follows all paths never comes to an end."""
    sizes = {"A": 1, "B": 2, "C": 1024, "DIM": 2}
    made = triton.compile(sort_all, {"x": "*fp32", "out": "*fp32"}, sizes, target=target, stop_after="llvm")
    assert "sort_all" in str(made.asm["llvm"])


@triton.jit
def wrong_k(x, K: tl.constexpr):
    tl.store(x, tl.max(tl.topk(tl.load(x + tl.arange(0, 8)), K), 0))


@triton.jit
def wrong_dim(x, D: tl.constexpr):
    tl.store(x + tl.arange(0, 8), tl.sort(tl.load(x + tl.arange(0, 8)), D))


@triton.jit
def scalar_flip(x):
    tl.store(x, tl.flip(tl.load(x)))


@triton.jit
def pointer_sort(x):
    tl.store(x, tl.load(tl.sort(x + tl.arange(0, 8))))


@pytest.mark.parametrize(
    ("kernel", "options", "said"),
    [
        (wrong_k, {"K": 3}, "k is one of 1, 2, 4, 8"),
        (wrong_k, {"K": 16}, "topk: k is 16, of 8 elements"),
        (wrong_k, {"K": 0}, "topk: k is 0, of 8 elements"),
        (wrong_dim, {"D": 1}, "sort: dim 1 is outside a tile of rank 1"),
        (wrong_dim, {"D": -2}, "sort: dim -2 is outside a tile of rank 1"),
        (scalar_flip, {}, "flip needs a tile"),
        (pointer_sort, {}, "sort takes numbers"),
    ],
)
def test_mistakes_are_shown_where_they_are(kernel, options, said):
    with pytest.raises(CompilationError) as caught:
        triton.compile(kernel, {"x": "*fp32"}, options)
    assert said in str(caught.value)
    assert "^" in str(caught.value)


@triton.jit
def smallest(x, out, R: tl.constexpr, C: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, R)[:, None]
    tile = tl.load(x + rows * C + tl.arange(0, C)[None, :])
    tl.store(out + rows * K + tl.arange(0, K)[None, :], tl.topk(tile, K, descending=False))


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8, np.bool_])
def test_the_smallest_first(launch, rng, dtype):
    x = rng.integers(0, 200, (4, 64)).astype(dtype)
    got = launch(smallest, (1,), x, np.zeros((4, 8), dtype), R=4, C=64, K=8)[1]
    assert np.array_equal(got, np.sort(x, axis=1)[:, :8])
