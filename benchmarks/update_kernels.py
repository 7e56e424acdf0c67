"""Kernels that add to memory by atomics, for updates.py: written for either compiler."""

import deuteron as triton
import deuteron.language as tl


@triton.jit
def split_k(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, SEM: tl.constexpr,
):  # fmt: skip
    """SPLIT programs add their parts of a tile of a product to memory; sizes are multiples of the blocks."""
    tiles_n = tl.cdiv(N, BN)
    rows = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)
    columns = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(tl.program_id(1) * BK, K, SPLIT * BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :])
        b = tl.load(b_ptr + k[:, None] * N + columns[None, :])
        acc = tl.dot(a, b, acc)
    tl.atomic_add(c_ptr + rows[:, None] * N + columns[None, :], acc.to(c_ptr.dtype.element_ty), sem=SEM)


@triton.jit
def embedding_gradient(index_ptr, gradient_ptr, table_ptr, D, BLOCK: tl.constexpr, SEM: tl.constexpr):
    """Each row of the gradient is added to the row of the table that its token names."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    gradient = tl.load(gradient_ptr + row * D + columns, mask=columns < D, other=0.0)
    tl.atomic_add(table_ptr + tl.load(index_ptr + row) * D + columns, gradient, mask=columns < D, sem=SEM)


@triton.jit
def histogram(x_ptr, counts_ptr, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """How often each number below BINS occurs; the length is a multiple of BLOCK."""
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(counts_ptr + tl.arange(0, BINS), tl.histogram(x, BINS))


@triton.jit
def column_sums(x_ptr, sums_ptr, N, BM: tl.constexpr, BN: tl.constexpr):
    """Each program adds the sums of a tile's columns; sizes are multiples of the blocks."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    tl.atomic_add(sums_ptr + columns, tl.sum(tl.load(x_ptr + rows[:, None] * N + columns[None, :]), 0))
