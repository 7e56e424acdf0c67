"""The language's corners: constants, tuples, helpers, types, control flow."""

from __future__ import annotations

import types

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.language.extra import libdevice

LOG2E = tl.constexpr(1.4426950408889634)
NEG_INF = tl.constexpr(float("-inf"))
DTYPE = tl.constexpr(tl.float32)
B0 = tl.constexpr(8) * 2
SHAPES = tl.constexpr((2, 4))
_ACT = tl.constexpr("gelu")


@triton.jit
def static_lists(x_ptr, o_ptr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in tl.static_range(0, 3):
        acc += tl.load(x_ptr + o + s * BLOCK)
    coeffs = (1.0, 2.0, 3.0)
    for i in tl.static_range(len(coeffs)):
        acc += coeffs[i] * o
    parts = [o, o * 2, o * 3]
    for p in parts:
        acc += p
    for i in tl.static_range(3, 0, -1):
        acc = acc + i
    for d in SHAPES:
        acc += d
    a, (b, c) = (1, (2, 3))
    acc += a + b + c
    t = (acc, acc * 2)
    t2 = t + (acc * 3,)
    acc = t2[0] + t2[-1]
    tl.store(o_ptr + o, acc)


@triton.constexpr_function
def half(n):
    return n // 2


@triton.jit
def _two(x, y):
    return (x + y, x - y)


@triton.jit
def _opt(x, scale=None, bias=None, ACT: tl.constexpr = "none"):
    if scale is not None:
        x = x * scale
    if bias is not None:
        x = x + bias
    if ACT == "relu":
        x = tl.maximum(x, 0)
    elif ACT == "gelu":
        x = 0.5 * x * (1 + libdevice.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
    else:
        tl.static_assert(ACT == "none")
    return x


@triton.jit
def helpers(
    x_ptr,
    bias_ptr,
    o_ptr,
    n,
    BLOCK: tl.constexpr,
    ACT: tl.constexpr = _ACT,
    OUT_DTYPE: tl.constexpr = tl.float32,
):
    """A docstring."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lo, hi = _two(tl.load(x_ptr + o, mask=o < n, other=0).to(tl.float32), 1.0)
    bias = None
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + o, mask=o < n, other=0)
    y = _opt(lo * hi, scale=LOG2E, bias=bias, ACT=ACT)
    h: tl.constexpr = half(BLOCK)
    y = y + h
    tl.store(o_ptr + o, y.to(OUT_DTYPE), mask=o < n)


@triton.jit
def ints(u_ptr, i_ptr, o_ptr, o64_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    m = o < n
    u = tl.load(u_ptr + o, mask=m, other=1)
    i = tl.load(i_ptr + o, mask=m, other=1)
    h = u
    h ^= h >> 16
    h *= 2246822507
    h ^= h >> 13
    h = h * 3266489909
    h ^= h >> 16
    r = (h % 10).to(tl.int32) + i // 3 * 1000 + i % 3 * 100
    r = r + (i >> 1) - (i & 15 | 16) + ~i + -i
    tl.store(o_ptr + o, r, mask=m)
    big = i.to(tl.int64) * 3000000000 + (i.to(tl.int64) << 33)
    big += tl.umulhi(u, u).to(tl.int64)
    tl.store(o64_ptr + o, big, mask=m)


@triton.jit
def _or(a, b):
    return a | b


@triton.jit
def bools(a_ptr, b_ptr, o_ptr, c_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    m = o < n
    a = tl.load(a_ptr + o, mask=m, other=False)
    b = tl.load(b_ptr + o, mask=m, other=0)
    c = a & b | ~a & ~b
    d = a ^ b
    tl.store(o_ptr + o, c, mask=m)
    tl.store(c_ptr, tl.sum(d.to(tl.int32)))
    tl.store(c_ptr + 1, tl.sum(d & m))
    tl.store(c_ptr + 2, tl.max(d.to(tl.int32)))
    any_ = tl.reduce(d.to(tl.int32), 0, _or)
    tl.store(c_ptr + 3, any_)
    anyb = tl.reduce(d, 0, _or)
    tl.store(c_ptr + 4, anyb)
    if anyb:
        tl.store(c_ptr + 5, 7)
    tl.store(c_ptr + 6, tl.sum(a * 2))
    tl.store(c_ptr + 7, tl.sum(tl.where(a, 1, 0)))
    tl.store(c_ptr + 8, tl.cumsum(d.to(tl.int32), 0).to(tl.int32).max(0))
    e = not anyb
    tl.store(c_ptr + 9, e)


@triton.jit
def scalars(o_ptr, i, f, b, neg, big):
    x = i * f
    tl.store(o_ptr + 0, x)
    tl.store(o_ptr + 1, i // 3)
    tl.store(o_ptr + 2, i % 3)
    tl.store(o_ptr + 3, i / 4)
    if b:
        tl.store(o_ptr + 4, 1)
    else:
        tl.store(o_ptr + 4, 2)
    tl.store(o_ptr + 5, neg // 2)
    tl.store(o_ptr + 6, (big >> 32).to(tl.float64))
    tl.store(o_ptr + 7, min(i, 5, neg))
    tl.store(o_ptr + 8, max(i, 5))
    tl.store(o_ptr + 9, abs(neg))
    tl.store(o_ptr + 10, tl.cdiv(i, 4))
    tl.store(o_ptr + 11, float(i))
    tl.store(o_ptr + 12, tl.sqrt(f))
    tl.store(o_ptr + 13, tl.exp2(f * 1.0))
    tl.store(o_ptr + 14, i if b else neg)
    tl.store(o_ptr + 15, 1 < i < 20)
    tl.store(o_ptr + 16, tl.where(i > 3, f, 0.0))
    tl.store(o_ptr + 17, (i > 3) & (neg < 0))
    tl.store(o_ptr + 18, i > 3 and (not neg < 0) or b)
    tl.store(o_ptr + 19, tl.maximum(i, neg).to(tl.float32) + 2 ** (-3))


@triton.jit
def _many(*xs):
    acc = xs[0]
    for i in tl.static_range(1, len(xs)):
        acc += xs[i]
    return acc


@triton.jit
def varargs(x_ptr, o_ptr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o)
    tl.store(o_ptr + o, _many(x, x * 2, 1.0))


@triton.jit
def tupcarry(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    st = (tl.zeros((BLOCK,), tl.float32), tl.full((BLOCK,), 1.0, tl.float32))
    for i in range(n):
        x = tl.load(x_ptr + i * BLOCK + o)
        if i % 2 == 0:
            st = (st[0] + x, st[1])
        else:
            st = (st[0], st[1] * x)
    a, b = st
    tl.store(o_ptr + o, a)
    tl.store(o_ptr + BLOCK + o, b)


@triton.jit
def _clip(x, lim):
    if lim == 0:
        return x
    return tl.minimum(x, lim)


@triton.jit
def _sel(x, k: tl.constexpr):
    if k == 0:
        return x
    if k == 1:
        return x * x
    return x * x * x


@triton.jit
def earlyret(x_ptr, o_ptr, lim, BLOCK: tl.constexpr, K: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o)
    tl.store(o_ptr + o, _sel(_clip(x, lim), K))


@triton.jit
def consts(o_ptr, N: tl.constexpr):
    H: tl.constexpr = N // 2
    K = tl.constexpr(H * 2)
    z = tl.zeros((B0, K), DTYPE) + NEG_INF
    z = tl.where(tl.arange(0, B0)[:, None] > H, z, B0 * 1.0)
    w = tl.full((B0, K), 3, tl.int32) if N > 4 else tl.full((B0, K), 4, tl.int32)
    tl.store(o_ptr + tl.arange(0, B0)[:, None] * K + tl.arange(0, K)[None, :], z + w)
    if N == 8 and H == 4:
        tl.store(o_ptr, 7.0)


@triton.jit
def carries(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    acc = 0
    best = -1
    cnt = 0
    fl = 0.0
    done = False
    for i in range(n):
        x = tl.load(x_ptr + i)
        acc += x
        if x > 1.0 and best < 0:
            best = i
        cnt += x > 0
        fl = fl * 0.5 + i
        done = done | (x > 2)
    tl.store(o_ptr, acc)
    tl.store(o_ptr + 1, best)
    tl.store(o_ptr + 2, cnt)
    tl.store(o_ptr + 3, fl)
    tl.store(o_ptr + 4, done)
    for _ in range(0):
        tl.store(o_ptr + 5, 1.0)
    for _ in range(5, 2):
        tl.store(o_ptr + 5, 2.0)


@triton.jit
def nested_ifs(x_ptr, o_ptr, n, mode, BLOCK: tl.constexpr, FLAG: tl.constexpr = None):
    pid = tl.program_id(0)
    o = pid * BLOCK + tl.arange(0, BLOCK)
    if pid * BLOCK >= n:
        return
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    if mode > 0:
        if mode == 1:
            y = x * 2
        elif mode == 2:
            y = x + 1
            if pid == 0:
                y = y + 10
        else:
            y = -x
    else:
        y = tl.zeros_like(x)
    scale = 3.0 if mode == 2 and pid > 0 else 1.0
    if FLAG is not None:
        y = y * FLAG
    if not (mode == 1 or mode == 2):
        y += 0.5
    tl.store(o_ptr + o, y * scale, mask=o < n)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 32}, num_warps=1),
        triton.Config({"BLOCK": 64}, num_warps=2, num_stages=2),
    ],
    key=["n"],
)
@triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})
@triton.jit
def tuned_add(x_ptr, o_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(o_ptr + o, tl.load(x_ptr + o) + 1)
    else:
        tl.store(o_ptr + o, tl.load(x_ptr + o, mask=o < n) + 1, mask=o < n)


def test_unrolled_loops_over_tuples(launch, normal, close) -> None:
    x, o = normal(96), np.arange(32)
    exact = 4 * (x.reshape(3, 32).astype(np.float64).sum(0) + 12 * o + 18)
    close(launch(static_lists, (1,), x, np.zeros(32, np.float32), BLOCK=32)[1], exact)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
def test_helpers_with_defaults_and_none(launch, normal, close, biased, activation) -> None:
    x, bias = normal(70), normal(70) if biased else None
    exact = (x.astype(np.float64) ** 2 - 1) * np.log2(np.e) + (bias if biased else 0)
    if activation == "relu":
        exact = np.maximum(exact, 0)
    elif activation == "gelu":
        exact *= 0.5 * (1 + np.tanh(0.7978845608 * (exact + 0.044715 * exact**3)))
    arguments = x, bias, np.zeros_like(x), 70
    close(launch(helpers, (3,), *arguments, BLOCK=32, ACT=activation)[2], exact + 16, 1e-4)


def test_constexpr_functions_are_plain_functions_outside() -> None:
    assert half(6) == 3
    assert half(tl.constexpr(6)) == 3


def test_integers_wrap_and_divide_as_in_c(launch, rng) -> None:
    u = rng.integers(0, 2**32, 50, dtype=np.uint32)
    i = rng.integers(-(2**20), 2**20, 50).astype(np.int32)
    h = u ^ (u >> 16)
    h = h * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * np.uint32(0xC2B2AE35)
    h ^= h >> 16
    quotient = np.trunc(i / 3).astype(np.int64)
    small = (h % 10) + quotient * 1000 + (i - 3 * quotient) * 100 + (i >> 1) - ((i & 15) | 16)
    high = ((u.astype(np.uint64) ** 2) >> np.uint64(32)).astype(np.int64)
    big = i.astype(np.int64) * 3000000000 + (i.astype(np.int64) << 33) + high
    zeros = np.zeros(50, np.int32), np.zeros(50, np.int64)
    done = launch(ints, (1,), u, i, *zeros, 50, BLOCK=64)
    np.testing.assert_array_equal(done[2], (small + ~i - i).astype(np.int32))
    np.testing.assert_array_equal(done[3], big)


def test_booleans(launch, rng) -> None:
    a, b = rng.random(50) < 0.5, rng.random(50) < 0.5
    d = (a ^ b).sum()
    done = launch(bools, (1,), a, b, np.zeros(50, bool), np.zeros(10, np.int32), 50, BLOCK=64)
    np.testing.assert_array_equal(done[2], a == b)
    assert done[3].tolist() == [d, d, 1, 1, 1, 7, a.sum() * 2, a.sum(), d, 0]


def test_scalars(launch, close) -> None:
    expected = [
        7 * 2.25,
        2,
        1,
        1.75,
        1,
        -2,
        5,
        -5,
        7,
        5,
        2,
        7,
        1.5,
        2**2.25,
        7,
        1,
        2.25,
        1,
        1,
        7.125,
    ]
    done = launch(scalars, (1,), np.zeros(20), 7, 2.25, True, -5, 5 << 32)
    close(done[0], np.array(expected), 1e-6)


def test_helpers_with_any_number_of_arguments(launch, normal, close) -> None:
    x = normal(32)
    got = launch(varargs, (1,), x, np.zeros(32, np.float32), BLOCK=32)[1]
    close(got, 3 * x.astype(np.float64) + 1)


def test_tuples_through_loops_and_branches(launch, normal, close) -> None:
    x = normal(5, 32)
    exact = np.stack([x[::2].astype(np.float64).sum(0), x[1::2].astype(np.float64).prod(0)])
    close(launch(tupcarry, (1,), x, np.zeros((2, 32), np.float32), 5, BLOCK=32)[1], exact)


@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("power", [0, 1, 2])
def test_early_returns_of_helpers(launch, normal, close, limit, power) -> None:
    x = normal(32)
    exact = (np.minimum(x, 1) if limit else x).astype(np.float64) ** (power + 1)
    got = launch(earlyret, (1,), x, np.zeros(32, np.float32), limit, BLOCK=32, K=power)[1]
    close(got, exact)


def test_constants(launch) -> None:
    expected = np.where(np.arange(16)[:, None] > 4, -np.inf, 16.0) + np.full((1, 8), 3.0)
    expected[0, 0] = 7
    got = launch(consts, (1,), np.zeros((16, 8), np.float32), N=8)[0]
    np.testing.assert_array_equal(got, expected)


def test_numbers_that_loops_turn_into_tensors(launch, normal, close) -> None:
    x, decayed = normal(20), 0.0
    x[4] = 1.5
    for i in range(20):
        decayed = decayed * 0.5 + i
    expected = [x.astype(np.float64).sum(), np.flatnonzero(x > 1)[0], (x > 0).sum(), decayed]
    got = launch(carries, (1,), x, np.zeros(6, np.float32), 20, BLOCK=4)[1]
    close(got, np.array([*expected, (x > 2).any(), 0]), 1e-4)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_nested_branches(launch, normal, close, mode) -> None:
    x = normal(100)
    exact = [0 * x, 2 * x, x + 1, -x][mode].astype(np.float64)
    if mode == 2:
        exact[:64] += 10
        exact[64:] *= 3
    exact = exact * 2 + (0.5 if mode in (0, 3) else 0)
    close(launch(nested_ifs, (3,), x, np.zeros_like(x), 100, mode, BLOCK=64, FLAG=2)[1], exact)


@pytest.mark.parametrize("n", [64, 70])
def test_autotune_over_heuristics(normal, n) -> None:
    x = normal(n)
    out = np.zeros_like(x)
    tuned_add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    np.testing.assert_array_equal(out, x + np.float32(1))


@triton.jit
def rounded(x_ptr, even_ptr, away_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(even_ptr + i, libdevice.llrint(x))
    tl.store(away_ptr + i, libdevice.llround(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_to_int64(launch, dtype):
    x = np.array([0.5, 1.5, -2.5, 2.49, -0.5, 3e9, -4294967296.0, 7], dtype)
    x[5] = np.rint(x[5])
    out = np.full(8, 99, np.int64)
    _, even, away, *_ = launch(rounded, (1,), x, out, out, N=8)
    np.testing.assert_array_equal(even, np.rint(x).astype(np.int64))
    np.testing.assert_array_equal(away, np.trunc(x + np.copysign(0.5, x)).astype(np.int64))


@triton.jit
def masked_by_a_scalar(x_ptr, o_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    wanted = (tl.load(x_ptr) > 0)[:, None]
    tl.store(o_ptr + i, 1.0, mask=(i < n) & wanted)
    tl.static_assert(wanted[None, :].shape == (1, 1))


@pytest.mark.parametrize("first", [1.0, -1.0])
def test_a_scalar_takes_new_dimensions(launch, first):
    out = launch(masked_by_a_scalar, (1,), np.full(1, first, np.float32), np.zeros(8, np.float32), 5, N=8)[1]
    np.testing.assert_array_equal(out, np.float32((np.arange(8) < 5) & (first > 0)))


toolbox = types.ModuleType("toolbox")
toolbox.inner = types.ModuleType("toolbox.inner")
toolbox.two = _two
toolbox.inner.WIDTH = tl.constexpr(3)
toolbox.PLAIN = 4
toolbox.python = abs


@triton.jit
def with_a_module(x_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    up, down = toolbox.two(tl.load(x_ptr + i), 1.0)
    tl.store(x_ptr + i, up * down + toolbox.inner.WIDTH)


def test_functions_and_constants_of_a_module(launch):
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(launch(with_a_module, (1,), x, N=8)[0], x * x - 1 + 3)


def test_what_a_kernel_uses_of_a_module_is_part_of_its_identity(monkeypatch):
    x = np.zeros(8, np.float32)
    before = with_a_module.source.hash
    with_a_module[(1,)](x, N=8)
    monkeypatch.setattr(toolbox, "PLAIN", 5)
    assert with_a_module.source.hash == before
    monkeypatch.setattr(toolbox.inner, "WIDTH", tl.constexpr(4))
    assert with_a_module.source.hash != before
    with pytest.raises(triton.DeuteronError, match=r"toolbox.inner.WIDTH.* was constexpr\(3\)"):
        with_a_module[(1,)](x, N=8)


@triton.jit
def calls_python(x_ptr):
    tl.store(x_ptr, toolbox.python(1.0))


@triton.jit
def reads_a_number(x_ptr):
    tl.store(x_ptr, toolbox.PLAIN)


@triton.jit
def misspells(x_ptr):
    tl.store(x_ptr, toolbox.towo(1.0))


@pytest.mark.parametrize(
    "kernel, message",
    [(calls_python, "jit to call it"), (reads_a_number, r"PLAIN = tl.constexpr\(4\)"), (misspells, "did you mean two")],
)
def test_nothing_else_of_a_module_is_there(kernel, message):
    with pytest.raises(triton.CompilationError, match=message):
        kernel[(1,)](np.zeros(1, np.float32))
