"""Compile-time parameters chosen by rules instead of a search.

python examples/heuristics.py [--device cpu|cuda:0]
"""

import numpy as np
from harness import Device, check, device_from_command_line

import deuteron as triton
import deuteron.language as tl


def block_size(args) -> int:
    """A block that fits the problem: 128, 256, 512 or 1024 elements."""
    n = args["n_elements"]
    for size in (128, 256, 512):
        if n <= size * 64:
            return size
    return 1024


@triton.heuristics({"BLOCK_SIZE": block_size})
@triton.jit
def scale_kernel(x_ptr, output_ptr, n_elements, factor, BLOCK_SIZE: tl.constexpr):
    tl.static_print(f"BLOCK_SIZE:{BLOCK_SIZE}")
    pid = tl.program_id(0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x * factor, mask=mask)


@triton.heuristics(
    {
        "EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0,
        "BLOCK_M": lambda args: 64 if args["M"] >= 64 else 16,
        "BLOCK_N": lambda args: 64 if args["N"] >= 64 else 16,
    }
)
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + inner
        a_ptrs = a_ptr + rows[:, None] * K + k[None, :]
        b_ptrs = b_ptr + k[:, None] * N + columns[None, :]
        if EVEN_K:
            a = tl.load(a_ptrs, mask=rows[:, None] < M, other=0.0)
            b = tl.load(b_ptrs, mask=columns[None, :] < N, other=0.0)
        else:
            a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
            b = tl.load(b_ptrs, mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    c_ptrs = c_ptr + rows[:, None] * N + columns[None, :]
    tl.store(c_ptrs, acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


def main(device: Device) -> None:
    """Both kernels at sizes for which their rules choose differently."""
    rng = np.random.default_rng(0)
    for n in (5_000, 30_000, 100_000):
        x = rng.standard_normal(n, dtype=np.float32)
        output = device.empty(n)
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)  # noqa: B023, E731
        scale_kernel[grid](device.array(x), output, n, 3.0)
        check(f"scale {n}", device.numpy(output), 3.0 * x.astype(np.float64), tolerance=1e-6)
    for m, n, k in ((100, 90, 64), (20, 30, 50)):
        a = rng.standard_normal((m, k), dtype=np.float32)
        b = rng.standard_normal((k, n), dtype=np.float32)
        c = device.empty((m, n))
        grid = lambda meta: (  # noqa: E731
            triton.cdiv(m, meta["BLOCK_M"]),  # noqa: B023
            triton.cdiv(n, meta["BLOCK_N"]),  # noqa: B023
        )
        matmul_kernel[grid](device.array(a), device.array(b), c, m, n, k, BLOCK_K=32)
        wanted = a.astype(np.float64) @ b.astype(np.float64)
        check(f"matmul {m}x{n}x{k}", device.numpy(c), wanted, tolerance=1e-5)


if __name__ == "__main__":
    main(device_from_command_line())
