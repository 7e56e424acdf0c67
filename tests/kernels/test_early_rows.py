"""Rows that loops around products read beside their tiles, which come an iteration early on GPUs."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl

M, N, B = 64, 32, 32


@triton.jit
def weighted(x, y, scale, out, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr, MASKED: tl.constexpr):
    """Each step's product times the step's row of factors, of which the last may be cut off."""
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, B)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, B):
        a = tl.load(x + m * K + (start + k)[None, :])
        b = tl.load(y + (start + k)[:, None] * N + n[None, :])
        place = start // B * N + n
        if MASKED:
            factors = tl.load(scale + place, mask=place < K // B * N - 3, other=0.5)
        else:
            factors = tl.load(scale + place)
        total += tl.dot(a, b) * factors[None, :]
    tl.store(out + m * N + n[None, :], total)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_each_step_has_its_own_row(launch, rng, close, steps: int, masked: bool) -> None:
    """And nothing is read behind the last one, or where there is none."""
    k = steps * B
    x, y = (rng.standard_normal(shape).astype(np.float16) for shape in ((M, max(k, 1)), (max(k, 1), N)))
    scale = rng.standard_normal(steps * N - 3 * masked if steps else 1).astype(np.float32)
    out = launch(weighted, (1,), x, y, scale, np.zeros((M, N), np.float32), k, M=M, N=N, B=B, MASKED=masked)[3]
    rows = np.append(scale.astype(np.float64), [0.5] * 3)[: steps * N].reshape(steps, N)
    exact = sum(
        (x[:, s * B : s * B + B].astype(float) @ y[s * B : s * B + B].astype(float) * rows[s] for s in range(steps)),
        np.zeros((M, N)),
    )
    close(out, exact, 1e-3)


@triton.jit
def remembered(x, y, row, out, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    """The row that a step reads was written by the one before."""
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, B)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, B):
        a = tl.load(x + m * K + (start + k)[None, :])
        b = tl.load(y + (start + k)[:, None] * N + n[None, :])
        before = tl.load(row + n)
        total += tl.dot(a, b) * before[None, :]
        tl.debug_barrier()
        tl.store(row + n, before + 1.0)
        tl.debug_barrier()
    tl.store(out + m * N + n[None, :], total)


def test_a_row_that_the_loop_writes_is_read_when_its_turn_comes(launch, rng, close) -> None:
    k = 4 * B
    x, y = (rng.standard_normal(shape).astype(np.float16) for shape in ((M, k), (k, N)))
    row = np.arange(N, dtype=np.float32)
    made = launch(remembered, (1,), x, y, row, np.zeros((M, N), np.float32), k, M=M, N=N, B=B)
    exact = sum(
        x[:, s * B : s * B + B].astype(float) @ y[s * B : s * B + B].astype(float) * (row + s) for s in range(4)
    )
    close(made[3], exact, 1e-3)
    np.testing.assert_array_equal(made[2], row + 4)


@triton.jit
def by_table(x, y, table, out, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    """The row says where the step's tile lies, as a table of pages does."""
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, B)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, B):
        places = tl.load(table + start + k)
        a = tl.load(x + m * K + (start + k)[None, :])
        b = tl.load(y + places[:, None] * N + n[None, :])
        total += tl.dot(a, b)
    tl.store(out + m * N + n[None, :], total)


def test_rows_of_addresses(launch, rng, close) -> None:
    k = 4 * B
    x, y = (rng.standard_normal(shape).astype(np.float16) for shape in ((M, k), (k, N)))
    table = rng.permutation(k).astype(np.int32)
    out = launch(by_table, (1,), x, y, table, np.zeros((M, N), np.float32), k, M=M, N=N, B=B)[3]
    close(out, x.astype(float) @ y[table].astype(float), 1e-3)


@triton.jit
def recurrence(x, gate, key, out, final, T, R: tl.constexpr, C: tl.constexpr):
    """A step scales the state, takes from it what its columns come to under the step's row, and adds that to it."""
    r, c = tl.arange(0, R), tl.arange(0, C)
    state = tl.zeros((R, C), tl.float32)
    for t in range(T):
        k = tl.load(key + t * R + r)
        v = tl.load(x + t * C + c) - tl.sum(state * k[:, None], 0)
        state = state * tl.load(gate + t) + k[:, None] * v[None, :]
        tl.store(out + t * C + c, tl.sum(state * k[:, None], 0))
    tl.store(final + r[:, None] * C + c[None, :], state)


@pytest.mark.parametrize("warps", [1, 4, 16])
@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_steps_of_a_recurrence(launch, rng, close, steps: int, warps: int) -> None:
    rows, columns = 32, 16
    x, key = (rng.standard_normal((max(steps, 1), n)).astype(np.float32) / 4 for n in (columns, rows))
    gate = rng.uniform(0.5, 1, max(steps, 1)).astype(np.float32)
    made = launch(
        recurrence, (1,), x, gate, key, np.zeros_like(x), np.zeros((rows, columns), np.float32), steps,
        R=rows, C=columns, num_warps=warps,
    )  # fmt: skip
    state, told = np.zeros((rows, columns)), np.zeros(x.shape)
    for t in range(steps):
        v = x[t] - key[t].astype(float) @ state
        state = state * gate[t] + np.outer(key[t], v)
        told[t] = key[t] @ state
    close(made[4], state, 1e-4)
    close(made[3], told, 1e-4)


@triton.jit
def fed_back(x, out, T, R: tl.constexpr, C: tl.constexpr):
    """Each step reads the row that the one before has written, by all threads alike."""
    r, c = tl.arange(0, R), tl.arange(0, C)
    state = tl.zeros((R, C), tl.float32)
    for t in range(T):
        row = tl.load(x + t * C + c)
        state += row[None, :] * (r + 1)[:, None].to(tl.float32)
        tl.debug_barrier()
        tl.store(x + (t + 1) * C + c, tl.max(state, 0))
        tl.debug_barrier()
    tl.store(out + r[:, None] * C + c[None, :], state)


def test_a_recurrence_through_memory_waits_for_its_own_rows(launch, rng) -> None:
    rows, columns, steps = 4, 64, 5
    x = np.zeros((steps + 1, columns), np.float32)
    x[0] = rng.integers(1, 4, columns)
    made = launch(fed_back, (1,), x, np.zeros((rows, columns), np.float32), steps, R=rows, C=columns)
    state, row = np.zeros((rows, columns)), x[0].astype(float)
    for _ in range(steps):
        state += row * np.arange(1, rows + 1)[:, None]
        row = state.max(0)
    np.testing.assert_array_equal(made[1], state)


@triton.jit
def step_by_step(x, places, out, T, FIRST, STEP, R: tl.constexpr, C: tl.constexpr, WHERE: tl.constexpr):
    """Rows lie where a pointer has moved to, where a table says, or ever further from the end."""
    r, c = tl.arange(0, R), tl.arange(0, C)
    state = tl.zeros((R, C), tl.float32)
    moved = x
    for t in range(FIRST, T, STEP if WHERE == "down" else 1):
        moved += C * t
        if WHERE == "moved":
            row = tl.load(moved + c)
        elif WHERE == "table":
            row = tl.load(x + tl.load(places + t) * C + c)
        else:
            row = tl.load(x + t * C + c)
        state = state + row[None, :] * (r[:, None] + 1) + tl.max(state, 1)[:, None]
    tl.store(out + r[:, None] * C + c[None, :], state)


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("where", ["moved", "table", "down"])
def test_where_the_next_row_lies(launch, rng, where: str, steps: int) -> None:
    """Found for an iteration that there is, of what that iteration has."""
    rows, columns = 4, 32
    x = rng.integers(-3, 4, (7, columns)).astype(np.float32)
    places = rng.integers(0, 7, steps).astype(np.int32)
    first, end, step = (steps, 0, -1) if where == "down" else (0, steps, 1)
    out = np.full((rows, columns), np.nan, np.float32)
    made = launch(step_by_step, (1,), x, places, out, end, first, step, R=rows, C=columns, WHERE=where)[2]
    order = {"moved": np.cumsum(range(steps)), "table": places, "down": range(steps, 0, -1)}[where]
    state = np.zeros((rows, columns))
    for row in x[np.asarray(order, int)]:
        state = state + row * np.arange(1, rows + 1)[:, None] + state.max(1)[:, None]
    np.testing.assert_array_equal(made, state)


@triton.jit
def staged(x, y, counts, out, sums, STAGES: tl.constexpr, MOVES: tl.constexpr, STEP: tl.constexpr, B: tl.constexpr):
    """Rows of two arrays, by their numbers or by pointers that move, whose results are stored at each step; the second
    loop begins where the first one left off."""
    i = tl.arange(0, B)
    count = tl.load(counts)
    at = y + i
    for turn in range(2):
        for t in tl.range(turn, count, STEP, num_stages=STAGES):
            a = tl.load(x + t * B + i, mask=i < B - 3, other=2.0)
            b = tl.load(at if MOVES else y + t * B + i)
            weight = tl.load(counts + 1 + t)
            value = a * b + weight
            tl.store(out + (turn * count + t) * B + i, value)
            tl.store(sums + turn * count + t, tl.max(value))
            at += STEP * B


@pytest.mark.parametrize("stages", [2, 3, 4, 7])
@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize(("count", "step"), [(0, 1), (1, 1), (2, 1), (3, 2), (9, 1), (10, 3)])
def test_loops_with_stages(launch, rng, stages: int, moves: bool, count: int, step: int) -> None:
    """Nothing is read behind the last row, and each step has its own, however many are on their way."""
    size = 64
    x, y = rng.integers(-9, 9, (max(count, 1), size)), rng.integers(-9, 9, (2 * count + 8, size))
    x, y = x.astype(np.float32), y.astype(np.float32)
    counts = np.append(count, rng.integers(-9, 9, max(count, 1))).astype(np.int32)
    out, sums = np.full((2 * count + 1, size), 77, np.float32), np.full(2 * count + 1, 77, np.float32)
    exact, most = out.copy(), sums.copy()
    place = 0
    for turn in range(2):
        for t in range(turn, count, step):
            row = np.where(np.arange(size) < size - 3, x[t], 2) * y[place if moves else t] + counts[1 + t]
            exact[turn * count + t], most[turn * count + t] = row, row.max()
            place += step
    made = launch(staged, (1,), x, y, counts, out, sums, STAGES=stages, MOVES=moves, STEP=step, B=size)
    np.testing.assert_array_equal(made[3], exact)
    np.testing.assert_array_equal(made[4], most)
