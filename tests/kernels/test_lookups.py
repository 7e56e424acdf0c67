"""gather and histogram against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import CompilationError


@triton.jit
def gather_rows(
    src, index, out, M: tl.constexpr, N: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, AXIS: tl.constexpr
):
    x = tl.load(src + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    o = tl.arange(0, P)[:, None] * Q + tl.arange(0, Q)[None, :]
    tl.store(out + o, tl.gather(x, tl.load(index + o), AXIS))


@triton.jit
def gather_computed(src, out, N: tl.constexpr, ROUNDS):
    """Follows a chain of indices: what is gathered is computed, and so is where."""
    x = tl.load(src + tl.arange(0, N))
    at = tl.arange(0, N)
    for r in range(ROUNDS):
        at = (tl.gather(x, at, 0) + r).to(tl.int32) & (N - 1)
        x = x.gather(at, axis=0) + 1
    tl.store(out + tl.arange(0, N), x)


@triton.jit
def gather_by_one(src, row, out, N: tl.constexpr):
    """The same row for all columns."""
    n = tl.arange(0, N)
    x = tl.load(src + n[:, None] * N + n[None, :])
    index = tl.full((1, N), 0, tl.int64) + tl.load(row)
    tl.store(out + n[None, :], tl.gather(x, index, 0))


@triton.jit
def count(x, out, N: tl.constexpr, BINS: tl.constexpr):
    tl.store(out + tl.arange(0, BINS), tl.histogram(tl.load(x + tl.arange(0, N)), BINS))


@triton.jit
def count_some(x, out, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """Counts over all blocks of a long array; the last one is not full."""
    total = tl.zeros((BINS,), tl.int32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x + i, mask=i < n).histogram(BINS, mask=i < n)
    tl.store(out + tl.arange(0, BINS), total)


SHAPES = [
    ((4, 16), (4, 16), 1),
    ((4, 16), (4, 64), -1),
    ((16, 8), (2, 8), 0),
    ((64, 4), (128, 4), -2),
    ((1, 128), (1, 128), 1),
    ((2, 2), (2, 1), 1),
]


@pytest.mark.parametrize(("shape", "wanted", "axis"), SHAPES)
def test_gather(launch, rng, normal, shape, wanted, axis):
    x, index = normal(*shape), rng.integers(0, shape[axis], wanted).astype(np.int32)
    sizes = dict(zip("MNPQ", (*shape, *wanted), strict=True))
    got = launch(gather_rows, (1,), x, index, np.zeros(wanted, np.float32), **sizes, AXIS=axis)[2]
    np.testing.assert_array_equal(got, np.take_along_axis(x, index, axis))


@pytest.mark.parametrize("name", [np.bool_, np.int8, np.uint16, np.float16, np.int64, np.float64])
@pytest.mark.parametrize("kind", [np.int8, np.uint32, np.int64])
def test_gather_every_type(launch, rng, name, kind):
    """Positions outside count modulo the size: -1 is the last one."""
    x = rng.integers(0, 2 if name == np.bool_ else 100, (8, 32)).astype(name)
    low = -40 if np.dtype(kind).kind == "i" else 0
    index = rng.integers(low, 127, (8, 16)).astype(kind)
    got = launch(gather_rows, (1,), x, index, np.zeros((8, 16), name), M=8, N=32, P=8, Q=16, AXIS=1)[2]
    np.testing.assert_array_equal(got, np.take_along_axis(x, index.astype(np.int64) % 32, 1))


@pytest.mark.parametrize("warps", [1, 4])
def test_gather_of_what_was_gathered(launch, rng, warps):
    x = rng.integers(0, 1000, 256).astype(np.int32)
    want, at = x.copy(), np.arange(256)
    for r in range(3):
        at = (want[at] + r) & 255
        want = want[at] + 1
    got = launch(gather_computed, (1,), x, np.zeros_like(x), N=256, ROUNDS=3, num_warps=warps)[1]
    np.testing.assert_array_equal(got, want)


def test_gather_by_a_number(launch, normal):
    x = normal(16, 16)
    got = launch(gather_by_one, (1,), x, np.array([5], np.int64), np.zeros((1, 16), np.float32), N=16)[2]
    np.testing.assert_array_equal(got[0], x[5])


@pytest.mark.parametrize(("size", "bins"), [(256, 16), (64, 256), (1024, 1), (2, 2), (512, 128)])
def test_histogram(launch, rng, size, bins):
    """Most elements have a bin; those that have none do not count."""
    x = rng.integers(-2, bins + 3, size).astype(np.int32)
    x[0] = np.iinfo(np.int32).min
    got = launch(count, (1,), x, np.full(bins, -1, np.int32), N=size, BINS=bins)[1]
    np.testing.assert_array_equal(got, [np.sum(x == b) for b in range(bins)])


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64, np.bool_])
def test_histogram_of_every_type(launch, rng, kind):
    info = np.iinfo(np.int8 if kind == np.bool_ else kind)
    x = rng.integers(0, 2 if kind == np.bool_ else 32, 128).astype(kind)
    if kind != np.bool_:
        x[:3] = info.max, info.min, info.max - 1
    if np.dtype(kind).itemsize == 8:
        x[3] = 1 << 32  # 0 in its low half
    got = launch(count, (1,), x, np.zeros(256, np.int32), N=128, BINS=256)[1]
    np.testing.assert_array_equal(got, [np.sum(x == b) for b in range(256)])


@pytest.mark.parametrize("warps", [1, 8])
def test_masked_histogram_in_a_loop(launch, rng, warps):
    x = rng.integers(0, 8, 700).astype(np.int32)
    got = launch(count_some, (1,), x, np.zeros(8, np.int32), 700, BLOCK=256, BINS=8, num_warps=warps)[1]
    np.testing.assert_array_equal(got, np.bincount(x, minlength=8))


@triton.jit
def wrong_gather(x, KIND: tl.constexpr):
    v = tl.load(x + tl.arange(0, 8)[:, None] * 4 + tl.arange(0, 4)[None, :])
    if KIND == "axis":
        y = tl.gather(v, v.to(tl.int32), 2)
    elif KIND == "float":
        y = tl.gather(v, v, 0)
    elif KIND == "rank":
        y = tl.gather(v, tl.arange(0, 4), 1)
    else:
        y = tl.gather(v, tl.zeros((4, 2), tl.int32), 1)
    tl.store(x, tl.sum(y))


@triton.jit
def wrong_histogram(x, KIND: tl.constexpr):
    v = tl.load(x + tl.arange(0, 8))
    if KIND == "float":
        y = tl.histogram(v, 8)
    elif KIND == "rank":
        y = tl.histogram(v.to(tl.int32)[:, None], 8)
    elif KIND == "bins":
        y = tl.histogram(v.to(tl.int32), 10)
    else:
        y = tl.histogram(v.to(tl.int32), 8, mask=v.to(tl.int32))
    tl.store(x, tl.sum(y))


@pytest.mark.parametrize(
    ("kernel", "kind", "said"),
    [
        (wrong_gather, "axis", "invalid axis 2: it is outside a tile of rank 2"),
        (wrong_gather, "float", "gather needs integer indices"),
        (wrong_gather, "rank", "gather needs tiles of one rank"),
        (wrong_gather, "shape", "differ along axis 0"),
        (wrong_histogram, "float", "histogram takes integers of rank 1"),
        (wrong_histogram, "rank", "histogram takes integers of rank 1"),
        (wrong_histogram, "bins", "hint: use 16"),
        (wrong_histogram, "mask", "the mask is int1"),
    ],
)
def test_mistakes_are_shown_where_they_are(kernel, kind, said):
    with pytest.raises(CompilationError) as caught:
        triton.compile(kernel, {"x": "*fp32"}, {"KIND": kind})
    assert said in str(caught.value)
    assert "^" in str(caught.value)
