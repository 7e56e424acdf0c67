"""Products of tiles: every type, shape and way that an accumulator reaches them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import cpu
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile import program
from deuteron.compiler.tile import shape as s
from deuteron.compiler.tile.matmul import Dot

SHAPES = [
    (16, 16, 16),
    (1, 16, 32),
    (64, 32, 16),
    (32, 128, 64),
    (2, 1, 8),
    (128, 4, 1),
    (8, 64, 2),
]


def numbers(shape, dtype, seed):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("m,n,k", SHAPES)
@pytest.mark.parametrize(
    "dtype,acc",
    [(np.float32, "f32"), (np.float64, "f64"), (np.float16, "f32"), (np.float16, "f16"),
     (ml_dtypes.bfloat16, "f32"), (np.int8, "i32"), (np.uint8, "i32"), (ml_dtypes.float8_e4m3fn, "f32")],
)  # fmt: skip
def test_products(both, dtype, acc, m, n, k):
    a, b = numbers((m, k), dtype, 0), numbers((k, n), dtype, 1)
    if np.dtype(dtype) == np.uint8:
        a, b = a % 8, b % 8
    found, _ = both(lambda q, a, b: q.emit(Dot(a, b, q.constant(0, f"tile<{m}x{n}x{acc}>"))), a, b)
    np.testing.assert_array_equal(found[0].astype(np.float64), a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("precision", ["tf32", "tf32x3", "ieee"])
def test_random_numbers_are_multiplied_in_full_f32(both, precision):
    a, b = (np.random.default_rng(i).standard_normal((64, 64), dtype=np.float32) for i in range(2))
    zero = "tile<64x64xf32>"
    found, _ = both(lambda q, a, b: q.emit(Dot(a, b, q.constant(0.0, zero), precision)), a, b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(found[0] - exact).max() < 1e-5


@pytest.mark.parametrize("which", ["a", "b", "both"])
def test_transposed_operands(both, which):
    a, b = numbers((16, 32), np.float32, 0), numbers((32, 64), np.float32, 1)

    def make(q, a, b):
        if which in ("a", "both"):
            a = q.emit(s.Permute(a, (1, 0)))
        if which in ("b", "both"):
            b = q.emit(s.Permute(b, (1, 0)))
        return q.emit(Dot(a, b, q.constant(0.0, "tile<16x64xf32>")))

    held_a = np.ascontiguousarray(a.T) if which in ("a", "both") else a
    held_b = np.ascontiguousarray(b.T) if which in ("b", "both") else b
    np.testing.assert_array_equal(both(make, held_a, held_b)[0][0], a @ b)


def test_an_accumulator_that_is_read_again_is_not_overwritten(both):
    a, b, c = (numbers((16, 16), np.float32, i) for i in range(3))

    def make(q, a, b, c):
        first = q.emit(Dot(a, b, c))
        second = q.emit(Dot(b, a, c))
        return first, second, q.emit(e.Add(c, first))

    found, _ = both(make, a, b, c)
    for got, wanted in zip(found, (a @ b + c, b @ a + c, 2 * c + a @ b), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_product_that_is_read_again_is_no_accumulator_to_overwrite(both):
    a, b = (numbers((16, 16), np.float32, i) for i in range(2))

    def make(q, a, b):
        first = q.emit(Dot(a, b, q.constant(0.0, "tile<16x16xf32>")))
        second = q.emit(Dot(b, a, first))
        third = q.emit(Dot(a, a, first))
        return second, third, first

    found, _ = both(make, a, b)
    for got, wanted in zip(found, (b @ a + a @ b, a @ a + a @ b, a @ b), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_product_added_to_a_tile_accumulates_on_it(both):
    a, b, c = (numbers((16, 16), np.float32, i) for i in range(3))

    def make(q, a, b, c):
        product = q.emit(Dot(a, b, q.constant(0.0, "tile<16x16xf32>")))
        return q.emit(e.Add(c, product))

    np.testing.assert_array_equal(both(make, a, b, c)[0][0], a @ b + c)


def test_scaled_accumulators_as_in_attention(both):
    """acc = dot(p, v, acc * alpha[:, None]) in a loop, with row statistics carried beside it."""
    p, v = numbers((16, 16), np.float32, 0), numbers((16, 32), np.float32, 1)
    alpha = np.array([0.5, 1, 2, -1] * 4, np.float32)

    def make(q, p, v, alpha):
        zero, three, one = (q.constant(i, "i32") for i in (0, 3, 1))

        def body(i, acc, total):
            wide = q.emit(s.Broadcast(q.emit(s.ExpandDims(alpha, 1)), (16, 32)))
            acc = q.emit(Dot(p, v, q.emit(e.Mul(acc, wide))))
            sums = q.reduce(p, 1, lambda a, b: q.emit(e.Add(a, b)))[0]
            return acc, q.emit(e.Add(q.emit(e.Mul(total, alpha)), sums))

        inits = [q.constant(1.0, "tile<16x32xf32>"), q.constant(0.0, "tile<16xf32>")]
        return q.loop(zero, three, one, inits, body)

    acc, total = np.ones((16, 32), np.float32), np.zeros(16, np.float32)
    for _ in range(3):
        acc, total = acc * alpha[:, None] + p @ v, total * alpha + p.sum(1)
    found, _ = both(make, p, v, alpha)
    np.testing.assert_array_equal(found[0], acc)
    np.testing.assert_array_equal(found[1], total)


def down(q, x, shape):
    """A column vector spread over ``shape``."""
    return q.emit(s.Broadcast(q.emit(s.ExpandDims(x, 1)), shape))


def across(q, x, shape):
    """A row vector spread over ``shape``."""
    return q.emit(s.Broadcast(q.emit(s.ExpandDims(x, 0)), shape))


def plane(q, base, x, y):
    """Pointers base + x[:, None] + y[None, :]."""
    shape = (x.type.shape[0], y.type.shape[0])
    return q.pointers(base, q.emit(e.Add(down(q, x, shape), across(q, y, shape))))


def moved(q, pointers, step):
    return q.emit(e.AddPtr(pointers, q.splat(step, pointers.type.shape)))


def matmul(q, bm, bn, bk):
    """The product as Triton's tutorial writes it: pointer tiles that advance in a loop, masked along K."""
    a, b, c = (q.parameter(name, "*f32") for name in "abc")
    names = ("m", "n", "k", "stride_a", "stride_b", "stride_c")
    m, n, k, stride_a, stride_b, stride_c = (q.parameter(name, "i32") for name in names)

    def ceiling(size, block):
        return q.binary(e.IntDiv, q.binary(e.Add, size, block - 1), block)

    pid, columns = q.emit(program.ProgramId(0)), ceiling(n, bn)
    first_m = q.binary(e.Mul, q.emit(e.IntDiv(pid, columns)), bm)
    first_n = q.binary(e.Mul, q.emit(e.Rem(pid, columns)), bn)
    offs_m = q.binary(e.Add, q.arange(bm), first_m)
    offs_n = q.binary(e.Add, q.arange(bn), first_n)
    offs_k = q.arange(bk)
    rows = q.binary(e.Mul, q.binary(e.Rem, offs_m, m), stride_a)
    a_ptrs = plane(q, a, rows, offs_k)
    b_ptrs = plane(q, b, q.binary(e.Mul, offs_k, stride_b), q.binary(e.Rem, offs_n, n))
    zero, one = q.constant(0, "i32"), q.constant(1, "i32")

    def body(i, acc, a_ptrs, b_ptrs):
        inside = q.less(offs_k, q.emit(e.Sub(k, q.binary(e.Mul, i, bk))))
        left = q.load(a_ptrs, across(q, inside, (bm, bk)), q.constant(0.0, f"tile<{bm}x{bk}xf32>"))
        right = q.load(b_ptrs, down(q, inside, (bk, bn)), q.constant(0.0, f"tile<{bk}x{bn}xf32>"))
        acc = q.emit(Dot(left, right, acc))
        step = q.binary(e.Mul, stride_b, bk)
        return acc, moved(q, a_ptrs, q.constant(bk, "i32")), moved(q, b_ptrs, step)

    inits = [q.constant(0.0, f"tile<{bm}x{bn}xf32>"), a_ptrs, b_ptrs]
    acc, _, _ = q.loop(zero, ceiling(k, bk), one, inits, body)
    inside_m, inside_n = (
        down(q, q.less(offs_m, m), (bm, bn)),
        across(q, q.less(offs_n, n), (bm, bn)),
    )
    out = plane(q, c, q.binary(e.Mul, offs_m, stride_c), offs_n)
    q.store(out, acc, q.emit(e.And(inside_m, inside_n)))
    return q.function


@pytest.mark.parametrize("m,n,k", [(64, 64, 64), (1, 1, 1), (33, 70, 45), (128, 17, 100), (5, 130, 7)])
def test_ragged_matmul(kernel, run, guarded, m, n, k):
    a, b = (guarded(numbers(shape, np.float32, i)) for i, shape in enumerate(((m, k), (k, n))))
    c = guarded(np.zeros((m, n), np.float32))
    function = matmul(kernel, 32, 64, 16)
    run(
        function,
        [a.array, b.array, c.array, m, n, k, k, n, n],
        (-(-m // 32) * -(-n // 64),),
        threads=2,
    )
    np.testing.assert_array_equal(c.array, a.array @ b.array)


def test_pointer_tiles_of_the_loop_are_not_kept_in_memory(kernel):
    program = cpu.lower_to_llvm(matmul(kernel, 32, 64, 16), Schedule())
    tiles = 4 * (32 * 64 + 32 * 16 + 16 * 64)
    assert program.scratch_bytes <= tiles + 1024
