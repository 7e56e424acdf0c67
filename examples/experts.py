"""A mixture of experts: each token is multiplied by the matrices of the experts that its router chose.

python examples/experts.py [--device cpu|cuda:0]

Rows of tokens lie wherever a table says: a tile takes tokens of one expert, and gathers their rows while it multiplies.
"""

import numpy as np
from harness import Device, check, device_from_command_line

import deuteron as triton
import deuteron.language as tl


@triton.jit
def experts_kernel(
    x_ptr, w_ptr, out_ptr, slots_ptr, experts_ptr, used, tiles, N, K,
    TOP_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """out [used, N]: row s is token s // TOP_K of x [tokens, K] times the transposed matrix of its expert, of w
    [experts, N, K]. ``slots``: the rows that each tile makes, BLOCK_M a tile; ``used`` or more where it has fewer.
    ``experts``: the expert of each of the ``tiles``. Programs take GROUP_M tiles of rows in turns, so that they share
    what they read of w.
    """
    group = tl.program_id(0) // (GROUP_M * tl.cdiv(N, BLOCK_N))
    height = min(tiles - group * GROUP_M, GROUP_M)
    place = tl.program_id(0) % (GROUP_M * tl.cdiv(N, BLOCK_N))
    tile = group * GROUP_M + place % height
    columns = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    slots = tl.load(slots_ptr + tile * BLOCK_M + tl.arange(0, BLOCK_M))
    expert = tl.load(experts_ptr + tile).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + (slots // TOP_K)[:, None].to(tl.int64) * K + k[None, :]
    w_ptrs = w_ptr + expert * N * K + columns[None, :] * K + k[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(x_ptrs, mask=(slots[:, None] < used) & (k[None, :] < K - start), other=0.0)
        w = tl.load(w_ptrs, mask=(columns[None, :] < N) & (k[:, None] < K - start), other=0.0)
        acc = tl.dot(x, w, acc)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K
    out_ptrs = out_ptr + slots[:, None].to(tl.int64) * N + columns[None, :]
    inside = (slots[:, None] < used) & (columns[None, :] < N)
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)


def route(chosen: np.ndarray, experts: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """The tables of the kernel, ``slots`` [tiles * block] and ``experts`` [tiles], for ``chosen`` [tokens, TOP_K]: rows
    of one expert side by side, the last tile of each filled up."""
    wanted = chosen.reshape(-1)
    slots, tiles = [], []
    for expert in range(experts):
        own = np.flatnonzero(wanted == expert)
        count = -(-len(own) // block)
        slots.append(np.pad(own, (0, count * block - len(own)), constant_values=len(wanted)))
        tiles += [expert] * count
    return np.concatenate(slots).astype(np.int32), np.array(tiles, np.int32)


def experts_product(
    device: Device, x, w, out, chosen: np.ndarray, block_m: int = 16, block_n: int = 64, block_k: int = 64
):
    """out [tokens * TOP_K, N] = the products of x [tokens, K] and w [experts, N, K] that ``chosen`` asks for."""
    experts, n, k = w.shape
    slots, tiles = route(chosen, experts, block_m)
    grid = (len(tiles) * triton.cdiv(n, block_n),)
    experts_kernel[grid](
        x, w, out, device.array(slots), device.array(tiles), chosen.size, len(tiles), n, k,
        TOP_K=chosen.shape[1], BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=8,
    )  # fmt: skip
    return out


def reference(x: np.ndarray, w: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The same in float64, row by row."""
    rows = [token @ w[expert].astype(np.float64).T for token, own in zip(x, chosen, strict=True) for expert in own]
    return np.array(rows).reshape(chosen.size, w.shape[1])


def main(device: Device, tokens: int = 75, experts: int = 8, top_k: int = 2, n: int = 200, k: int = 320) -> None:
    """Tokens that choose two of eight experts each."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((tokens, k)).astype(np.float16)
    w = rng.standard_normal((experts, n, k)).astype(np.float16)
    chosen = rng.permuted(np.tile(np.arange(experts), (tokens, 1)), axis=1)[:, :top_k]
    out = device.empty((tokens * top_k, n), "f16")
    experts_product(device, device.array(x), device.array(w), out, chosen)
    check("mixture of experts", device.numpy(out), reference(x.astype(np.float64), w, chosen), tolerance=2e-3)


if __name__ == "__main__":
    main(device_from_command_line())
