"""A matrix product with few tiles and a long inner dimension: several programs share the sum of one tile.

python examples/split_k.py [--device cpu|cuda:0]

Each program stores its part of the sum, and a second kernel adds the parts in a fixed order: the result is the same in
every run, as it would not be with atomic additions.
"""

import numpy as np
from harness import Device, check, device_from_command_line

import deuteron as triton
import deuteron.language as tl


@triton.jit
def partial_products(
    a_ptr, b_ptr, parts_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """Part p of a tile sums blocks p, p + SPLIT_K, ... of the inner dimension; parts are f32 [SPLIT_K, M, N]."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(part * BLOCK_K, K, SPLIT_K * BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(
            b_ptr + k[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        acc = tl.dot(a, b, acc)
    c_ptrs = parts_ptr + part * M * N + rows[:, None] * N + columns[None, :]
    tl.store(c_ptrs, acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def sum_parts(parts_ptr, c_ptr, size, SPLIT_K: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(0, SPLIT_K):
        total += tl.load(parts_ptr + part * size + offsets, mask=offsets < size, other=0.0)
    tl.store(c_ptr + offsets, total.to(c_ptr.dtype.element_ty), mask=offsets < size)


def matmul(a, b, c, parts, block_m: int = 16, block_n: int = 64, block_k: int = 64):
    """c = a @ b for a [M, K], b [K, N] and c [M, N], C order; ``parts``, f32 [SPLIT_K, M, N], is scratch."""
    (m, k), n = a.shape, b.shape[1]
    split = parts.shape[0]
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    partial_products[(tiles, split)](
        a, b, parts, m, n, k, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, SPLIT_K=split
    )
    sum_parts[(triton.cdiv(m * n, 1024),)](parts, c, m * n, SPLIT_K=split, BLOCK=1024)
    return c


def main(device: Device, shape: tuple[int, int, int] = (13, 250, 3000), split: int = 8) -> None:
    """Four tiles of a product, with eight programs at each."""
    m, n, k = shape
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    c, parts = device.empty((m, n), "f16"), device.empty((split, m, n))
    matmul(device.array(a), device.array(b), c, parts)
    check("split-K matmul", device.numpy(c), a.astype(np.float64) @ b.astype(np.float64), tolerance=1e-3)


if __name__ == "__main__":
    main(device_from_command_line())
