"""Products of arrays whose rows begin anywhere: threads bring both operands element by element, on the simulator."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Wgmma
from deuteron.compiler.gpu.latency.operand_writes import writes_tile
from deuteron.compiler.gpu.ops import ConvertLayout, VectorLoad
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.memory import Barrier

KERNEL = """
def product(a, b, c, M, N, K, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), {sums})
    ap = a + m[:, None] * am + k[None, :] * ak
    bp = b + k[:, None] * bk + n[None, :] * bn
    for step in range(0, tl.cdiv(K, BK)):
        left = K - step * BK
        x = tl.load(ap, mask=(m[:, None] < M) & (k[None, :] < left), other=0)
        y = tl.load(bp, mask=(k[:, None] < left) & (n[None, :] < N), other=0)
        acc = tl.dot(x, y, acc)
        ap += BK * ak
        bp += BK * bk
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))
"""
DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8e4nv": ml_dtypes.float8_e4m3fn, "i8": np.int8}
#: Tiles and warps. Of the last the registers of a thread do not hold what it loads of both operands.
SIZES = {"small": ((64, 64, 32), 4), "wide": ((64, 128, 64), 4), "large": ((128, 128, 64), 8)}


def made_of(from_text: Callable[..., Any], kind: str, size: str, order: str = "nn") -> Any:
    """The kernel; the strides along rows are 1 where ``order`` says so, as its launch would find."""
    blocks, warps = SIZES[size]
    sums, out = ("tl.int32", "*i32:16") if kind == "i8" else ("tl.float32", "*fp32:16")
    signature = {"a": f"*{kind}:16", "b": f"*{kind}:16", "c": out, **dict.fromkeys("MNK", "i32")}
    constants = dict(zip(("BM", "BN", "BK"), blocks, strict=True))
    for name in ("am", "ak", "bk", "bn"):
        if name == {"n": "ak", "t": "am"}[order[0]] or name == {"n": "bn", "t": "bk"}[order[1]]:
            constants[name] = 1
        else:
            signature[name] = "i32"
    return from_text(KERNEL.format(sums=sums), signature, constants, warps, num_stages=3)


@pytest.mark.parametrize("order", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(("kind", "size"), [*itertools.product(DTYPES, ["small", "wide"]), ("fp16", "large")])
def test_products_of_arrays_that_begin_anywhere(
    from_text: Callable[..., Any], simulated: Callable[..., Any], kind: str, size: str, order: str
) -> None:
    (bm, bn, bk), _ = SIZES[size]
    made = made_of(from_text, kind, size, order)
    rng = np.random.default_rng(bn + len(order))
    for m, n, k in ((bm - 3, bn - 1, bk - 1), (bm - 1, bn - 5, 2 * bk + 3)):
        x, y = (rng.integers(-4, 5, shape).astype(DTYPES[kind]) for shape in ((m, k), (k, n)))
        a = x if order[0] == "n" else np.ascontiguousarray(x.T)
        b = y if order[1] == "n" else np.ascontiguousarray(y.T)
        c = np.full((m, n), 77, np.int32 if kind == "i8" else np.float32)
        strides = [k if order[0] == "n" else m, n if order[1] == "n" else k]
        simulated(made, (1, 1), [a, b, c, m, n, k, *strides])
        np.testing.assert_array_equal(c, x.astype(np.float64) @ y.astype(np.float64), err_msg=f"{m}, {n}, {k}")


def test_operands_stay_where_they_pass(from_text: Callable[..., Any]) -> None:
    """They would go through shared memory on the way to the registers of a product."""
    (product,) = (op for op in made_of(from_text, "fp16", "large").gpu("cuda:90a").walk() if isinstance(op, Wgmma))
    assert product.a.type.shared is not None and product.b.type.shared is not None


def test_operands_are_written_in_turns_where_registers_are_short(from_text: Callable[..., Any]) -> None:
    loop = next(op for op in made_of(from_text, "fp16", "large").gpu("cuda:90a").walk() if isinstance(op, For))
    seen = [op for op in loop.body.ops if isinstance(op, VectorLoad | ConvertLayout | Barrier)]
    assert [type(op) for op in seen] == [VectorLoad, Barrier, ConvertLayout, VectorLoad, ConvertLayout]
    first, second = (op for op in seen if isinstance(op, ConvertLayout))
    assert first.unfinished and not second.unfinished, "threads wait once for both"
    small = next(op for op in made_of(from_text, "fp16", "small").gpu("cuda:90a").walk() if isinstance(op, For))
    order = [type(op) for op in small.body.ops if isinstance(op, VectorLoad | ConvertLayout)]
    assert order == [VectorLoad, VectorLoad, ConvertLayout, ConvertLayout], "both are asked for at once"


TWICE = """
def twice(a, b, c, d, K, an, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    first = tl.zeros((BM, BN), tl.float32)
    second = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        rows = (start + k)[:, None]
        x = tl.load(a + rows * an + m[None, :], mask=rows < K, other=0).T
        y = tl.load(b + rows * bn + n[None, :], mask=rows < K, other=0)
        z = tl.load(b + rows * bn + BN + n[None, :], mask=rows < K, other=0)
        first = tl.dot(x, y, first)
        second = tl.dot(x, z, second)
    tl.store(c + m[:, None] * BN + n[None, :], first)
    tl.store(d + m[:, None] * BN + n[None, :], second)
"""


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("blocks", [(64, 64, 32), (128, 128, 32)])
def test_two_products_read_one_transposed_tile(
    from_text: Callable[..., Any], simulated: Callable[..., Any], blocks: tuple[int, int, int], stages: int
) -> None:
    constants = dict(zip(("BM", "BN", "BK"), blocks, strict=True))
    bm, bn, bk = blocks
    signature = {
        **dict.fromkeys("ab", "*fp16:16"),
        **dict.fromkeys("cd", "*fp32:16"),
        **dict.fromkeys(("K", "an", "bn"), "i32"),
    }
    made = from_text(TWICE, signature, constants, 8, num_stages=stages)
    loop = next(op for op in made.gpu("cuda:90a").walk() if isinstance(op, For))
    written = [op for op in loop.body.ops if writes_tile(op)]
    assert len(written) == 3 and [op.unfinished for op in written] == [True, True, False], "threads wait once"
    rng = np.random.default_rng(bm)
    k = 2 * bk + 3
    a, b = (rng.integers(-4, 5, (k, n + 3)).astype(np.float16) for n in (bm, 2 * bn))
    c, d = (np.full((bm, bn), 77, np.float32) for _ in range(2))
    simulated(made, (1, 1), [a, b, c, d, k, bm + 3, 2 * bn + 3])
    x = a[:, :bm].T.astype(np.float64)
    np.testing.assert_array_equal(c, x @ b[:, :bn].astype(np.float64))
    np.testing.assert_array_equal(d, x @ b[:, bn : 2 * bn].astype(np.float64))
