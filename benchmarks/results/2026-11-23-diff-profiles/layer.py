"""Makes the profiles of this folder: ``python layer.py 32 before``, then ``python layer.py 128 after``.

A layer of an encoder on the CPU with the kernels of ``benchmarks/cpu.py``, whose folder has to be on the path.
``before`` normalises its input for each of three projections, in blocks of 32; ``after`` does it once, under a scope
of its own, in blocks of 128.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext

import numpy as np
from cpu import attention_kernel, layer_norm_kernel, matmul_kernel, normal, softmax_kernel

import deuteron as triton
import deuteron.profiler as proton

TOKENS, WIDTH, HEADS = 1024, 512, 8


def product(a: np.ndarray, b: np.ndarray, block: int) -> np.ndarray:
    (m, k), n = a.shape, b.shape[1]
    c = np.empty((m, n), np.float32)
    grid = (triton.cdiv(m, block) * triton.cdiv(n, block),)
    matmul_kernel[grid](a, b, c, m, n, k, k, 1, n, 1, n, 1, BM=block, BN=block, BK=64, GROUP=8)
    return c


def norm(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    layer_norm_kernel[(len(x),)](x, y, w, b, x.shape[1], 1e-5, BLOCK=x.shape[1])
    return y


def layer(x: np.ndarray, weights: list[np.ndarray], w: np.ndarray, b: np.ndarray, block: int, once: bool) -> None:
    with proton.scope("attention"):
        with proton.scope("projections"):
            with proton.scope("norm") if once else nullcontext():
                inputs = [norm(x, w, b)] * 3 if once else [norm(x, w, b) for _ in range(3)]
            q, k, v = (product(given, weight, block) for given, weight in zip(inputs, weights[:3], strict=True))
        heads = (HEADS, TOKENS, WIDTH // HEADS)
        out = np.empty(heads, np.float32)
        grid = (TOKENS // block, HEADS)
        parts = [np.ascontiguousarray(t.reshape(TOKENS, HEADS, -1).transpose(1, 0, 2)) for t in (q, k, v)]
        attention_kernel[grid](*parts, out, 0.18, TOKENS, D=heads[2], BM=block, BN=block)
        attended = np.ascontiguousarray(out.transpose(1, 0, 2)).reshape(TOKENS, WIDTH)
        product(attended, weights[3], block)
    with proton.scope("feed-forward"):
        hidden = product(norm(x, w, b), weights[4], block)
        product(hidden, weights[5], block)
    with proton.scope("scores"):
        scores = product(x, np.ascontiguousarray(x.T), block)
        softmax_kernel[(TOKENS,)](np.empty_like(scores), scores, TOKENS, TOKENS, BLOCK=TOKENS)


def main() -> None:
    block, name = int(sys.argv[1]), sys.argv[2]
    (x,), (w, b) = normal((TOKENS, WIDTH), np.float32, 1), normal((WIDTH,), np.float32, 2)
    shapes = [(WIDTH, WIDTH)] * 4 + [(WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
    weights = [normal(shape, np.float32, 1)[0] for shape in shapes]
    layer(x, weights, w, b, block, name == "after")
    proton.start(name, hook="triton")
    for _ in range(5):
        layer(x, weights, w, b, block, name == "after")
    proton.finalize()


main()
