"""Tiles written one after the other for products: threads wait for each other once, and before anyone reads."""

from __future__ import annotations

import pytest

from deuteron.compiler.gpu.asynchronous import Wgmma
from deuteron.compiler.gpu.latency.operand_writes import writes_tile
from deuteron.compiler.gpu.memory.scratch import is_round_trip
from deuteron.compiler.gpu.ops import ConvertLayout
from deuteron.compiler.ir.core import Block, Function

HEAD = """
def k(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.arange(0, BM), tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + k[None, :])
        y = tl.load(b + k[:, None] * N + n[None, :])
        {body}
    tl.store(c + m[:, None] * N + n[None, :], acc)
"""
BODIES = {
    "one after the other": "acc = tl.dot(x, y * 2, tl.dot(x, y * 3, acc))",
    "one of the other's product": (
        "z = tl.dot(tl.trans(y * 2), tl.trans(x)).to(tl.float16); "
        "acc = tl.dot(x, y * 3, tl.dot(tl.trans(z * 2), tl.trans(z * 3).to(tl.float16), acc))"
    ),
}


def blocks_of(function: Function) -> list[Block]:
    return [block for op in function.walk() for block in op.blocks] + [function.body]


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("body", BODIES)
def test_what_is_read_is_finished(from_text, body: str, warps: int) -> None:
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16"} | dict.fromkeys("MNK", "i32:16")
    text = HEAD.replace("{body}", BODIES[body])
    function = from_text(text, signature, {"BM": 128, "BN": 128, "BK": 128}, warps).gpu("cuda:90a")
    assert any(isinstance(op, Wgmma) for op in function.walk())
    written = 0
    for block in blocks_of(function):
        unfinished = False
        for op in block.ops:
            if isinstance(op, ConvertLayout) and writes_tile(op):
                unfinished = op.unfinished
                written += 1
            else:
                reads = any(value.type.shared is not None for value in op.reads)
                assert not (unfinished and (reads or op.blocks)), op
                unfinished &= not (isinstance(op, ConvertLayout) and is_round_trip(op))
        assert not unfinished
    assert written
