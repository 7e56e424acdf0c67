"""What loops and branches carry: tuples, lists that are unrolled, numbers that become tensors."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import InterpreterError, KernelAssertionError

SHAPES = tl.constexpr((2, 4))


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


def test_unrolled_loops_over_tuples(launch, normal, close) -> None:
    x, o = normal(96), np.arange(32)
    exact = 4 * (x.reshape(3, 32).astype(np.float64).sum(0) + 12 * o + 18)
    close(launch(static_lists, (1,), x, np.zeros(32, np.float32), BLOCK=32)[1], exact)


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


def test_tuples_through_loops_and_branches(launch, normal, close) -> None:
    x = normal(5, 32)
    exact = np.stack([x[::2].astype(np.float64).sum(0), x[1::2].astype(np.float64).prod(0)])
    close(launch(tupcarry, (1,), x, np.zeros((2, 32), np.float32), 5, BLOCK=32)[1], exact)


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


def test_numbers_that_loops_turn_into_tensors(launch, normal, close) -> None:
    x, decayed = normal(20), 0.0
    x[4] = 1.5
    for i in range(20):
        decayed = decayed * 0.5 + i
    expected = [x.astype(np.float64).sum(), np.flatnonzero(x > 1)[0], (x > 0).sum(), decayed]
    got = launch(carries, (1,), x, np.zeros(6, np.float32), 20, BLOCK=4)[1]
    close(got, np.array([*expected, (x > 2).any(), 0]), 1e-4)


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


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_nested_branches(launch, normal, close, mode) -> None:
    x = normal(100)
    exact = [0 * x, 2 * x, x + 1, -x][mode].astype(np.float64)
    if mode == 2:
        exact[:64] += 10
        exact[64:] *= 3
    exact = exact * 2 + (0.5 if mode in (0, 3) else 0)
    close(launch(nested_ifs, (3,), x, np.zeros_like(x), 100, mode, BLOCK=64, FLAG=2)[1], exact)


@triton.jit
def to_the_end_of_int32(o_ptr, n):
    total = 0
    for _ in range(0, 2147483647, 1 << 30):
        total += 1
    for i in range(2147483640, 2147483647, 4):
        total += i - 2147483600
    for i in range(5, n, 1 << 30):
        total += i // 5
    for i in range(2147483646, -2147483647, -(1 << 20)):
        if i < 2147000000:
            break
        total += 1000
    tl.store(o_ptr, total)


def test_loops_end_where_the_next_step_passes_int32(launch) -> None:
    expected = 2 + (40 + 44) + (1 + (5 + 2**30) // 5) + 1000
    assert launch(to_the_end_of_int32, (1,), np.zeros(1, np.int64), 2147483647)[0] == expected


@triton.jit
def ways_down(o_ptr, start, stop, step, never):
    total = 0
    for i in range(start, stop, step):
        total += i
    tl.store(o_ptr, total * 1000 + i)
    left = 0
    for j in range(start, stop, step):
        if j == never:
            break
        left += j
    tl.store(o_ptr + 1, left * 1000 + j)
    tl.store(o_ptr + 2, sum_until(start, stop, step, never))


@triton.jit
def sum_until(start, stop, step, never):
    total = 0
    for i in range(start, stop, step):
        total += i
        if total == never:
            return -1
    return total


@pytest.mark.parametrize(("start", "stop", "step"), [(10, -3, -3), (10, -2, -3), (7, 6, -1), (3, 11, 2), (5, 6, 9)])
def test_steps_of_either_sign_may_be_known_at_run_time_alone(launch, start: int, stop: int, step: int) -> None:
    """Loops that may be left run as often as others, and their index is the last one."""
    seen = range(start, stop, step)
    expected = [sum(seen) * 1000 + seen[-1], sum(seen) * 1000 + seen[-1], sum(seen)]
    assert launch(ways_down, (1,), np.zeros(3, np.int64), start, stop, step, 777)[0].tolist() == expected


@triton.jit
def counted(o_ptr, start, stop, step):
    trips = 0
    for _ in range(start, stop, step):
        trips += 1
    tl.store(o_ptr, trips)


@pytest.mark.parametrize("interpret", [False, True])
def test_run_time_bounds_at_the_ends_of_int32_are_reached(interpret: bool) -> None:
    """But on GPUs, where the index wraps, as in Triton. A step of 0 is refused."""
    with knobs.interpret.scope(interpret):
        for start, stop, step in [
            (2147483640, 2147483647, 5),
            (0, 2147483647, 1 << 30),
            (-2147483640, -2147483648, -5),
        ]:
            found = np.zeros(1, np.int32)
            counted[(1,)](found, start, stop, step)
            assert found[0] == len(range(start, stop, step))
        with pytest.raises((KernelAssertionError, InterpreterError), match="zero"):
            counted[(1,)](found, 0, 3, 0)
