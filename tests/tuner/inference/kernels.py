"""Kernels whose parameters have misleading names, or names that say nothing. Read as text."""

import deuteron as triton
import deuteron.language as tl


@triton.jit
def copy(x_ptr, y_ptr, n, FLAVOUR: tl.constexpr):
    at = tl.program_id(0) * FLAVOUR + tl.arange(0, FLAVOUR)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def row_loop(x_ptr, y_ptr, n, WIDTH: tl.constexpr):
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    for start in range(0, n, WIDTH):
        at = start + tl.arange(0, WIDTH)
        total += tl.load(x_ptr + tl.program_id(0) * n + at, mask=at < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def whole_row(x_ptr, y_ptr, n, BLOCK_SIZE: tl.constexpr):
    at = tl.arange(0, BLOCK_SIZE)
    row = tl.load(x_ptr + tl.program_id(0) * n + at, mask=at < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(row, axis=0))


@triton.jit
def heads(x_ptr, y_ptr, n, BLOCK_D: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]
    x = tl.load(x_ptr + at, mask=rows[:, None] < n, other=0.0)
    tl.store(y_ptr + rows, tl.sum(x, axis=1), mask=rows < n)


@triton.jit
def flags(x_ptr, y_ptr, n, BLOCK: tl.constexpr, BLOCK_EVEN: tl.constexpr, BLOCK_KIND: tl.constexpr, TILE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    if BLOCK_EVEN:
        x += 1
    if BLOCK_KIND == "twice":
        x *= 2
    tl.store(y_ptr + at, x, mask=at < n)


@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr, BLOCK_FACTOR: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * BLOCK_FACTOR, mask=at < n)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, P: tl.constexpr, Q: tl.constexpr, R: tl.constexpr, S: tl.constexpr):
    across = tl.cdiv(N, Q)
    group = tl.program_id(0) // (S * across)
    height = min(tl.cdiv(M, P) - group * S, S)
    row = group * S + (tl.program_id(0) % (S * across)) % height
    column = (tl.program_id(0) % (S * across)) // height
    rows, columns = row * P + tl.arange(0, P), column * Q + tl.arange(0, Q)
    total = tl.zeros((P, Q), dtype=tl.float32)
    for start in range(0, K, R):
        k = start + tl.arange(0, R)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(
            b_ptr + k[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total = tl.dot(a, b, total)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def skip(x_ptr, y_ptr, n, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    at = tl.program_id(0) * (BLOCK * GROUP) + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def rows_of_heads(x_ptr, y_ptr, n, BLOCK_D: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.arange(0, ROWS)
    at = tl.program_id(0) * BLOCK_D * n + rows[:, None] * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=rows[:, None] < n), mask=rows[:, None] < n)
