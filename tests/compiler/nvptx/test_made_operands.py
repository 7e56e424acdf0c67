"""Operands that threads make of what they read from rings, in the order in which products take them, simulated."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Wgmma
from deuteron.compiler.gpu.latency.operand_writes import writes_tile
from deuteron.compiler.gpu.memory.scratch import is_round_trip
from deuteron.compiler.gpu.ops import ConvertLayout
from deuteron.compiler.tile.memory import Barrier
from simulator import SimulationError

LEFT = """
def product(a, b, c, s, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = LOADED
        y = tl.load(b + (start + k)[:, None] * N + n[None, :])
        acc = tl.dot(OPERAND, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)
"""
ROWS = "tl.load(a + m[:, None] * K + (start + k)[None, :])"
COLUMNS = "tl.load(a + (start + k)[:, None] * M + m[None, :])"
FORMS = {
    "where": ("bf16", "tl.where(x > 0, x, 0.0).to(tl.bfloat16)"),
    "narrowed": ("fp32", "x.to(tl.bfloat16)"),
    "of bytes": ("i8", "x.to(tl.bfloat16)"),
    "of columns": ("bf16", "tl.trans(x * 2)"),
    "transposed": ("i8", "tl.trans(x).to(tl.bfloat16) * 2"),
    "scaled": ("bf16", "(x * tl.load(s + start + k)[None, :]).to(tl.bfloat16)"),
}
DTYPES = {"bf16": ml_dtypes.bfloat16, "fp32": np.float32, "i8": np.int8}


@pytest.mark.parametrize(("warps", "blocks"), [(4, (64, 64, 64)), (8, (128, 64, 64)), (4, (128, 32, 32))])
@pytest.mark.parametrize("form", FORMS)
def test_left_operands_are_right(
    from_text, simulated, rng, form: str, warps: int, blocks: tuple[int, int, int]
) -> None:
    dtype, operand = FORMS[form]
    signature = {"a": f"*{dtype}:16", "b": "*bf16:16", "c": "*fp32:16", "s": "*fp32:16"}
    made = from_text(
        LEFT.replace("OPERAND", operand).replace("LOADED", COLUMNS if "trans" in operand else ROWS),
        signature | dict.fromkeys("MNK", "i32:16"),
        dict(zip(("BM", "BN", "BK"), blocks, strict=True)),
        warps=warps,
        persistent=False,
    )
    m, n, k = 2 * blocks[0], blocks[1], 5 * blocks[2]
    a = rng.integers(-3, 4, (m, k)).astype(DTYPES[dtype])
    b = rng.integers(-3, 4, (k, n)).astype(ml_dtypes.bfloat16)
    s, c = np.exp2(rng.integers(-2, 3, k)).astype(np.float32), np.full((m, n), np.nan, np.float32)
    transposed = "trans" in operand
    simulated(made, (2, 1), [a.T.copy() if transposed else a, b, c, s, m, n, k])
    x = a.astype(np.float64) * (2 if transposed else 1)
    x = np.maximum(x, 0) if form == "where" else x * s if form == "scaled" else x
    np.testing.assert_array_equal(c, x @ b.astype(np.float64))


#: Bytes of words as A, which go through shared memory to their fragments, and of a packed array as B, which is written
#: there just before.
UNPACKED = """
def unpacked(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.int32)
    for part in range(4):
        for start in range(0, K // 4, BK):
            x = tl.load(a + m[:, None] * K + (part * (K // 4) + start + k)[None, :]).to(tl.int8)
            y = tl.load(b + (start + k)[:, None] * N + n[None, :])
            acc = tl.dot(x, ((y >> (2 * part)) & 3).to(tl.int8) - 1, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)
"""


@pytest.fixture(scope="module")
def unpacked(from_text):
    signature = {"a": "*i32:16", "b": "*u8:16", "c": "*i32:16", "N": "i32:16", "K": "i32:16"}
    return from_text(UNPACKED, signature, {"BM": 128, "BN": 32, "BK": 64}, persistent=False)


def arguments(rng: np.random.Generator) -> list[np.ndarray | int]:
    a, b = rng.integers(-100, 100, (128, 512), np.int32), rng.integers(0, 256, (128, 32)).astype(np.uint8)
    return [a, b, np.full((128, 32), -1, np.int32), 32, 512]


def test_both_operands_of_bytes_are_right(unpacked, simulated, rng) -> None:
    a, b, c, *sizes = arguments(rng)
    simulated(unpacked, (1,), [a, b, c, *sizes])
    parts = np.concatenate([(b >> 2 * part & 3).astype(np.int64) - 1 for part in range(4)])
    np.testing.assert_array_equal(c, a.astype(np.int64) @ parts)


def test_threads_wait_for_each_other_once_for_both_operands(unpacked) -> None:
    """And once before, for products of other warps that still read the tile."""
    function = unpacked.gpu("cuda:90a")
    (ops,) = [block.ops for block in function.body.nest() if any(isinstance(op, Wgmma) for op in block.ops)]
    conversions = [op for op in ops if isinstance(op, ConvertLayout)]
    (written,) = [op for op in conversions if writes_tile(op)]
    assert written.unfinished
    assert not written.unfenced
    assert sum(map(is_round_trip, conversions)) == 1
    assert sum(isinstance(op, Barrier) for op in ops) == 1


def test_without_its_fence_the_product_would_read_too_early(unpacked, simulated, rng) -> None:
    program = unpacked.program()
    lines = program.llvm.splitlines()
    before = next(i for i, line in enumerate(lines) if "wgmma.mma" in line)
    fence = max(i for i, line in enumerate(lines[:before]) if "fence.proxy.async" in line)
    del lines[fence]
    with pytest.raises(SimulationError, match=r"fence\.proxy\.async"):
        simulated(replace(program, llvm="\n".join(lines)), (1,), arguments(rng))
