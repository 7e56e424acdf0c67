"""Which quotients of rows threads share out."""

from __future__ import annotations

import pytest

SIGNATURE = {"x": "*fp32:16", "out": "*fp32:16", "W": "i32", "N": "i32"}
KERNEL = """
def unfold(x, out, W, N, ROWS: tl.constexpr, C: tl.constexpr):
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    y = place // W
    c = tl.arange(0, C)[None, :]
    tl.store(out + y[:, None] + c * N, tl.load(x + y[:, None] * C + c))
"""


@pytest.mark.parametrize(
    ("warps", "rows", "divisor", "moved"),
    [(4, 256, "W", True), (4, 8, "W", False), (1, 32, "W", True), (4, 256, "12", False)],
    ids=["many", "few", "one warp", "constant"],
)
def test_rows_of_many_quotients_are_computed_once(to_gpu, warps: int, rows: int, divisor: str, moved: bool) -> None:
    text = KERNEL.replace("place // W", f"place // {divisor}")
    made = to_gpu(text, SIGNATURE, {"ROWS": rows, "C": 64}, warps, "cuda:90a")
    (quotient,) = [op for op in made.walk() if op.mnemonic == "int_div" and op.result.type.rank]
    held = quotient.result.type.layout.registers
    assert held == max(1, rows // (32 * warps)) if moved else held >= rows // (32 * warps)
    converted = [op for op in made.walk() if op.mnemonic == "gpu.convert" and op.operands[0] is quotient.result]
    assert bool(converted) == moved


IN_LOOP = """
def kernel(x, out, W, N, ROWS: tl.constexpr, C: tl.constexpr):
    c = tl.arange(0, C)[None, :]
    for turn in range(N):
        y = (turn * ROWS + tl.arange(0, ROWS)) // W
        tl.store(out + y[:, None] + c * N, tl.load(x + y[:, None] * C + c))
"""


def test_in_a_loop_nobody_waits_for_quotients(to_gpu) -> None:
    made = to_gpu(IN_LOOP, SIGNATURE, {"ROWS": 256, "C": 64}, 4, "cuda:90a")
    quotients = [op.result for op in made.walk() if op.mnemonic == "int_div" and op.result.type.rank]
    converted = [op for op in made.walk() if op.mnemonic == "gpu.convert" and op.operands[0] in quotients]
    assert quotients and not converted
