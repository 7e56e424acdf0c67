"""Functions of scalars mapped over tiles, against Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import CompilationError


@triton.jit
def _order(x, y):
    if x < y:
        return -1
    if x == y:
        return 0
    return 1


@triton.jit
def _divmod(a, b):
    return a // b, a % b


@triton.jit
def _divmod_pair(a0, a1, b0, b1):
    return a0 // b0, a1 // b1, a0 % b0, a1 % b1


@triton.jit
def _weighted(a0, a1, a2, a3):
    """Each element of four is treated in its own way, so that their order shows."""
    return a0, a1 * 10, a2 * 100, (a3 * 1000).to(tl.int32)


@triton.jit
def _steps(n):
    """How long the sequence of n/2 and 3n+1 takes to reach 1."""
    count = 0
    while n > 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        count += 1
    return count


@triton.jit
def _polynomial(x, degree):
    total = x * 0.0
    for i in range(degree):
        total = total * x + i
    return total


@triton.jit
def _plain(x, y):
    return tl.exp(x) - y, x > y


@triton.jit
def order(a, b, out, M: tl.constexpr, N: tl.constexpr):
    x, y = tl.load(a + tl.arange(0, M))[:, None], tl.load(b + tl.arange(0, N))[None, :]
    o = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + o, tl.map_elementwise(_order, x, y))


@triton.jit
def divide(a, b, q, r, N: tl.constexpr, PACK: tl.constexpr):
    i = tl.arange(0, N)
    if PACK == 2:
        x, y = tl.map_elementwise(_divmod_pair, tl.load(a + i), tl.load(b + i), pack=2)
    else:
        x, y = tl.map_elementwise(_divmod, tl.load(a + i), tl.load(b + i))
    tl.store(q + i, x)
    tl.store(r + i, y)


@triton.jit
def weigh(a, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.map_elementwise(_weighted, tl.load(a + i), pack=4))


@triton.jit
def collatz(a, out, N: tl.constexpr, ROUNDS):
    i = tl.arange(0, N)
    total = tl.zeros((N,), tl.int32)
    for r in range(ROUNDS):
        total += tl.map_elementwise(_steps, tl.load(a + i) + r)
    tl.store(out + i, total)


@triton.jit
def evaluate(a, out, degree, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.map_elementwise(_polynomial, tl.load(a + i), degree))


@triton.jit
def plain(a, out, flags, N: tl.constexpr):
    """A straight function and a number for the second operand."""
    i = tl.arange(0, N)
    made, above = tl.map_elementwise(_plain, tl.load(a + i), 0.5)
    tl.store(out + i, made)
    tl.store(flags + i, above)


def steps(n):
    count = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        count += 1
    return count


def test_branches(launch, rng):
    x, y = rng.integers(0, 9, 16), rng.integers(0, 9, 8)
    args = x.astype(np.int32), y.astype(np.int32), np.full((16, 8), 7, np.int32)
    np.testing.assert_array_equal(launch(order, (1,), *args, M=16, N=8)[2], np.sign(x[:, None] - y[None, :]))


@pytest.mark.parametrize("pack", [1, 2])
@pytest.mark.parametrize("warps", [1, 4])
def test_several_results(launch, rng, pack, warps):
    x, y = rng.integers(1, 100, 256).astype(np.int32), rng.integers(1, 10, 256).astype(np.int32)
    zeros = np.zeros_like(x)
    got = launch(divide, (1,), x, y, zeros, zeros, N=256, PACK=pack, num_warps=warps)
    np.testing.assert_array_equal(got[2], x // y)
    np.testing.assert_array_equal(got[3], x % y)


@pytest.mark.parametrize("size", [4, 64])
def test_neighbours_are_packed_in_order(launch, size):
    x = np.arange(1, size + 1, dtype=np.int32)
    got = launch(weigh, (1,), x, np.zeros_like(x), N=size)[1]
    np.testing.assert_array_equal(got, x * np.tile([1, 10, 100, 1000], size // 4))


def test_loops(launch):
    x = np.arange(64, dtype=np.int32)
    want = [sum(steps(int(n) + r) for r in range(3)) for n in x]
    np.testing.assert_array_equal(launch(collatz, (1,), x, np.zeros_like(x), N=64, ROUNDS=3)[1], want)


def test_a_scalar_for_all(launch, normal, close):
    x = normal(32)
    want = np.zeros(32)
    for i in range(5):
        want = want * x + i
    close(launch(evaluate, (1,), x, np.zeros_like(x), 5, N=32)[1], want)


def test_straight_functions(launch, normal, close):
    x = normal(128)
    x[0] = math.inf
    _, got, flags = launch(plain, (1,), x, np.zeros_like(x), np.zeros(128, np.bool_), N=128)
    close(got, np.exp(x.astype(np.float64)) - 0.5)
    np.testing.assert_array_equal(flags, x > 0.5)


@triton.jit
def _stores(x):
    tl.device_print("x", x)
    return x


@triton.jit
def _spreads(x):
    return tl.sum(x + tl.arange(0, 4), 0)


@triton.jit
def _nothing(x):
    tl.static_assert(True)


@triton.jit
def _three(x, y):
    return x, y, x


@triton.jit
def wrong(x, KIND: tl.constexpr):
    v = tl.load(x + tl.arange(0, 8))
    if KIND == "effect":
        y = tl.map_elementwise(_stores, v)
    elif KIND == "tile":
        y = tl.map_elementwise(_spreads, v)
    elif KIND == "nothing":
        y = tl.map_elementwise(_nothing, v)
    elif KIND == "pack":
        y = tl.map_elementwise(_weighted, v, pack=3)
    elif KIND == "results":
        y = tl.map_elementwise(_three, v, pack=2)[0]
    else:
        y = tl.map_elementwise(_order, tl.load(x), tl.load(x))
    tl.store(x, tl.sum(y))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("effect", "the function may compute with scalars only, not print"),
        ("tile", "the function may compute with scalars only, not arange"),
        ("nothing", "must return tensors, got None"),
        ("pack", "pack is 3, for 8 elements"),
        ("results", "returns 3 results, which is no multiple of pack, 2"),
        ("scalars", "map_elementwise needs a tile"),
    ],
)
def test_mistakes_are_shown_where_they_are(kind, said):
    with pytest.raises(CompilationError) as caught:
        triton.compile(wrong, {"x": "*fp32"}, {"KIND": kind})
    assert said in str(caught.value)
    assert "^" in str(caught.value)
