"""Reductions and scans over any axis with any combination, against NumPy and the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.tile import control
from deuteron.compiler.tile import elementwise as e

SHAPES = [(1,), (8,), (256,), (4, 64), (64, 4), (32, 1), (1, 32), (4, 8, 16)]
CASES = [(shape, axis) for shape in SHAPES for axis in range(len(shape))]


@pytest.mark.parametrize("shape,axis", CASES)
@pytest.mark.parametrize("kind,reference", [(e.Add, np.sum), (e.Max, np.max), (e.Min, np.min), (e.Mul, np.prod)])
def test_simple_reductions(both, kind, reference, shape, axis):
    x = np.random.default_rng(0).uniform(0.9, 1.1, shape).astype(np.float32)
    found, _ = both(lambda k, x: k.reduce(x, axis, lambda a, b: k.emit(kind(a, b))), x)
    np.testing.assert_allclose(found[0], reference(x.astype(np.float64), axis), rtol=2e-5)


@pytest.mark.parametrize("shape,axis", CASES)
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int64, np.bool_, np.float16])
@pytest.mark.parametrize("kind", [e.Xor, e.And, e.Or, e.Add, e.Max, e.Min])
def test_reductions_of_other_types(both, same, kind, dtype, shape, axis):
    if np.dtype(dtype).kind == "f" and kind not in (e.Max, e.Min):
        kind = e.Max
    x = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    found, wanted = both(lambda k, x: k.reduce(x, axis, lambda a, b: k.emit(kind(a, b))), x)
    same(found[0], wanted[0])


@pytest.mark.parametrize("shape,axis", CASES)
def test_a_sum_of_negative_zeros_is_negative(both, shape, axis):
    found, _ = both(lambda k, x: k.reduce(x, axis, lambda a, b: k.emit(e.Add(a, b))), np.full(shape, -0.0, np.float32))
    assert np.signbit(found[0]).all()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_long_sums_of_narrow_floats(both, same, dtype, axis):
    """They are rounded once, where the running sum of bf16 would stop at 256."""
    x = np.random.default_rng(0).uniform(0, 1, (512, 16) if axis == 0 else (16, 512)).astype(dtype)

    def make(k, x):
        def add(a, b):
            return k.emit(e.Add(a, b))

        return [*k.reduce(x, axis, add), *k.scan(x, axis, add)]

    (total, upto), ulp = both(make, x)[0], float(ml_dtypes.finfo(dtype).eps)
    same(total, x.astype(np.float64).sum(axis).astype(dtype), ulp)
    same(upto, x.astype(np.float64).cumsum(axis).astype(dtype), ulp)


def test_long_sums_of_several_tiles(both, same):
    """Those that are wide already stay as they are."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (512, 16)).astype(ml_dtypes.bfloat16)
    n = rng.integers(0, 2**31, (512, 16)).astype(np.int32)

    def make(k, x, n):
        def add(a, m, b, n):
            return [k.emit(e.Add(a, b)), k.emit(e.Add(n, m))]

        return [*k.reduce([x, n], 0, add), *k.scan([x, n], 0, add, reverse=True)]

    total, count, upto, counts = both(make, x, n)[0]
    ulp = float(ml_dtypes.finfo(x.dtype).eps)
    same(total, x.astype(np.float64).sum(0).astype(x.dtype), ulp)
    same(upto[0], total, ulp)
    np.testing.assert_array_equal(count, n.sum(0, dtype=np.int32))
    np.testing.assert_array_equal(counts, n[::-1].cumsum(0, dtype=np.int32)[::-1])


@pytest.mark.parametrize("kind,reference", [(e.Max, np.max), (e.Min, np.min)])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint32, np.float32])
def test_extremes_of_one_sign(both, kind, reference, dtype):
    """Values below and above zero only, and at the ends of the type: no start value may be among them."""
    ends = (np.finfo if np.dtype(dtype).kind == "f" else np.iinfo)(dtype)
    for low, high in ((ends.min, ends.min // 2 - 1), (ends.max // 2, ends.max)):
        x = np.linspace(float(low) / 2, float(high) / 2, 256).astype(dtype).reshape(4, 64)
        for values in (x, np.full_like(x, ends.min), np.full_like(x, ends.max)):
            found, _ = both(lambda k, x: k.reduce(x, 1, lambda a, b: k.emit(kind(a, b))), values)
            np.testing.assert_array_equal(found[0], reference(values, 1))


@pytest.mark.parametrize("shape,axis", CASES)
def test_argmax_takes_the_first_of_equals(both, shape, axis):
    x = np.random.default_rng(0).integers(0, 5, shape).astype(np.float32)
    index = np.broadcast_to(
        np.arange(shape[axis]).reshape([-1 if d == axis else 1 for d in range(len(shape))]), shape
    ).astype(np.int32)

    def make(k, x, index):
        def combine(a, i, b, j):
            equal = k.emit(e.Compare(a, b, "eq"))
            first = k.emit(e.And(equal, k.emit(e.Compare(i, j, "lt"))))
            left = k.emit(e.Or(k.emit(e.Compare(a, b, "gt")), first))
            return k.emit(e.Select(left, a, b)), k.emit(e.Select(left, i, j))

        return k.reduce((x, index), axis, combine)

    found, _ = both(make, x, np.ascontiguousarray(index))
    np.testing.assert_array_equal(found[0], x.max(axis))
    np.testing.assert_array_equal(found[1], x.argmax(axis))


def test_welford(both):
    x = (np.random.default_rng(0).standard_normal((16, 128)) * 3 + 1000).astype(np.float32)

    def make(k, x):
        def combine(mean, m2, count, mean_b, m2_b, count_b):
            delta = k.emit(e.Sub(mean_b, mean))
            total = k.emit(e.Add(count, count_b))
            share = k.emit(e.Div(count_b, total))
            shifted = k.emit(e.Add(mean, k.emit(e.Mul(delta, share))))
            spread = k.emit(e.Mul(k.emit(e.Mul(delta, delta)), k.emit(e.Mul(count, share))))
            return shifted, k.emit(e.Add(k.emit(e.Add(m2, m2_b)), spread)), total

        zero, one = (k.constant(v, "tile<16x128xf32>") for v in (0.0, 1.0))
        return k.reduce((x, zero, one), 1, combine)

    found, _ = both(make, x)
    np.testing.assert_allclose(found[0], x.astype(np.float64).mean(1), rtol=1e-6)
    np.testing.assert_allclose(found[1] / found[2], x.astype(np.float64).var(1), rtol=1e-3)


def test_a_row_without_numbers_has_no_maximum(both):
    x = np.full((2, 64), np.nan, np.float32)
    x[1, 5] = -np.inf
    found, wanted = both(lambda k, x: k.reduce(x, 1, lambda a, b: k.emit(e.Max(a, b))), x)
    assert np.isnan(found[0][0]) and found[0][1] == -np.inf
    np.testing.assert_array_equal(found[0], wanted[0])


def test_a_branch_in_the_combination(both, same):
    x = np.random.default_rng(0).integers(-50, 50, (4, 32)).astype(np.int32)

    def make(k, x):
        def combine(a, b):
            larger = k.emit(e.Compare(a, b, "gt"))
            branches = [k.region([], lambda v=v: v) for v in (a, b)]
            return k.emit(control.If(larger, *branches))

        return k.reduce(x, 1, combine)

    found, _ = both(make, x)
    same(found[0], x.max(1))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape,axis", CASES)
def test_scans(both, same, shape, axis, reverse):
    x = np.random.default_rng(0).integers(-50, 50, shape).astype(np.int32)

    def make(k, x):
        return k.scan(x, axis, lambda a, b: k.emit(e.Add(a, b)), reverse)

    found, wanted = both(make, x)
    along = np.flip(x, axis) if reverse else x
    reference = np.cumsum(along, axis, dtype=np.int32)
    same(found[0], np.flip(reference, axis) if reverse else reference)
    same(found[0], wanted[0])


def test_a_scan_that_does_not_commute(both, same):
    """Linear recurrences y = a * y + b, in pairs."""
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(1, 4, (2, 32)).astype(np.int64),
        rng.integers(0, 9, (2, 32)).astype(np.int64),
    )

    def make(k, a, b):
        def combine(a, b, c, d):
            return k.emit(e.Mul(a, c)), k.emit(e.Add(k.emit(e.Mul(c, b)), d))

        return k.scan((a, b), 1, combine)

    found, wanted = both(make, a, b)
    same(found[0], wanted[0])
    same(found[1], wanted[1])


def test_same_result_every_time(both):
    x = np.random.default_rng(0).standard_normal((8, 512)).astype(np.float32)

    def make(k, x):
        return k.reduce(x, 1, lambda a, b: k.emit(e.Add(a, b)))

    first, again = both(make, x)[0][0], both(make, x)[0][0]
    assert first.tobytes() == again.tobytes()


@pytest.mark.parametrize("size", [1, 64, 256, 1024])
@pytest.mark.parametrize("missing", [0, 1, 37])
def test_masked_rows_with_and_without_a_full_mask(kernel, run, guarded, size, missing):
    """Where the mask is true everywhere the loop runs without it: scalars from both versions meet behind them."""
    n = max(1, size - missing)
    x = guarded(np.random.default_rng(size + missing).integers(-9, 9, n).astype(np.float32))
    base, count, out = kernel.parameter("x", "*f32"), kernel.parameter("n", "i32"), kernel.parameter("out", "*f32")
    index = kernel.arange(size)
    inside = kernel.less(index, count)
    loaded = kernel.load(kernel.pointers(base, index), inside, kernel.constant(0.0, f"tile<{size}xf32>"))
    (total,) = kernel.reduce(loaded, 0, lambda a, b: kernel.emit(e.Add(a, b)))
    (largest,) = kernel.reduce(loaded, 0, lambda a, b: kernel.emit(e.Max(a, b)))
    spread = kernel.binary(e.Sub, loaded, kernel.splat(largest, (size,)))
    (squares,) = kernel.reduce(kernel.binary(e.Mul, spread, spread), 0, lambda a, b: kernel.emit(e.Add(a, b)))
    for place, value in enumerate((total, largest, squares)):
        kernel.store(kernel.pointers(out, kernel.constant(place, "i32")), value)
    found = np.zeros(3, np.float32)
    run(kernel.function, [x.array, n, found])
    padded = np.zeros(size)
    padded[:n] = x.array
    np.testing.assert_array_equal(found, [padded.sum(), padded.max(), ((padded - padded.max()) ** 2).sum()])
