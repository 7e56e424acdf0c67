"""Grouped matrix multiplication with a fused leaky ReLU, autotuned.

python examples/matmul.py [--device cpu|cuda:0]
"""

import numpy as np
from harness import Device, check, device_from_command_line

import deuteron as triton
import deuteron.language as tl

#: BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, num_warps, num_stages, persistent. The small tiles suit CPUs, small
#: products and GPUs with little shared memory; the large ones warp groups with rings of up to 4 x 48 KiB, in programs
#: that stay and work on many tiles.
CONFIGS = (
    (64, 64, 64, 4, 4, False),
    (64, 128, 32, 4, 4, False),
    (64, 128, 64, 4, 4, True),
    (64, 256, 64, 4, 4, True),
    (128, 128, 32, 4, 4, False),
    (128, 128, 64, 8, 4, False),
    (128, 128, 64, 8, 5, True),
    (128, 256, 64, 8, 3, True),
    (128, 256, 64, 8, 4, True),
)


def configs() -> list[triton.Config]:
    """The configurations to choose from. ``persistent`` is a schedule option that only this compiler has."""
    return [
        triton.Config(
            {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8, "persistent": persistent},
            num_warps=warps,
            num_stages=stages,
        )
        for m, n, k, warps, stages, persistent in CONFIGS
    ]


@triton.autotune(configs=configs(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    # Programs walk groups of GROUP_SIZE_M rows of tiles column by column, so that tiles in flight share inputs in L2.
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m

    # Masks say where the matrices end, in rows and columns too, so that a copy engine can bring every tile.
    offs_m = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    offs_n = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + (offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn)

    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_SIZE_K)):
        left = K - k * BLOCK_SIZE_K
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < left) & (offs_n[None, :] < N), other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = leaky_relu(accumulator)
    c = accumulator.to(c_ptr.dtype.element_ty)

    c_ptrs = c_ptr + stride_cm * offs_m[:, None] + stride_cn * offs_n[None, :]
    tl.store(c_ptrs, c, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


def matmul(a, b, c, activation: str = ""):
    """c = activation(a @ b) for a [M, K], b [K, N] and c [M, N] of f16, C order."""
    (m, k), n = a.shape, b.shape[1]
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(m, meta["BLOCK_SIZE_M"]) * triton.cdiv(n, meta["BLOCK_SIZE_N"]),
    )
    matmul_kernel[grid](a, b, c, m, n, k, k, 1, n, 1, n, 1, ACTIVATION=activation)
    return c


def main(device: Device, shape: tuple[int, int, int] = (321, 250, 190)) -> None:
    """A product whose sizes are no multiples of any tile."""
    m, n, k = shape
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for activation in ("", "leaky_relu"):
        c = device.empty((m, n), "f16")
        matmul(device.array(a), device.array(b), c, activation)
        wanted = np.where(exact >= 0, exact, 0.01 * exact) if activation else exact
        check(f"matmul {activation}".strip(), device.numpy(c), wanted, tolerance=1e-3)
    print("best config:", matmul_kernel.best_config)


if __name__ == "__main__":
    main(device_from_command_line())
