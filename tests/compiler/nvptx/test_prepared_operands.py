"""Right operands of products that threads make of tiles in rings, under the product before, on the simulator."""

from __future__ import annotations

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Deposit, Pipe
from deuteron.compiler.targets import Target
from deuteron.compiler.targets.nvptx import emit_ptx

KERNEL = """
def product(a, b, s, c, M, N, K, {constants}):
    for tile in range(tl.program_id(0), (M // BM) * (N // BN), tl.num_programs(0)):
        m, n, k = tile % (M // BM) * BM + tl.arange(0, BM), tile // (M // BM) * BN + tl.arange(0, BN), tl.arange(0, BK)
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            x = tl.load(a + m[:, None] * K + (start + k)[None, :])
            {load}
            acc = tl.dot(x, {operand}, acc)
        tl.store(c + m[:, None] * N + n[None, :], acc)
"""
CONSTANTS = "BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr"
ROWS = "y = tl.load(b + (start + k)[:, None] * N + n[None, :])"
COLUMNS = "y = tl.load(b + n[:, None] * K + (start + k)[None, :])"
SCALED = ROWS + "; scale = tl.load(s + start // BK)"
SIGNATURE = {"a": "*bf16:16", "b": "*i8:16", "s": "*fp32:16", "c": "*fp32:16", **dict.fromkeys("MNK", "i32:16")}
FORMS = {
    "cast": (ROWS, "y.to(tl.bfloat16)"),
    "of columns": (COLUMNS, "tl.trans(y.to(tl.bfloat16))"),
    "of columns, transposed first": (COLUMNS, "tl.trans(y).to(tl.bfloat16)"),
    "scaled": (SCALED, "(y.to(tl.float32) * scale).to(tl.bfloat16)"),
    "shifted": (ROWS, "((y << 4).to(tl.int8) >> 4).to(tl.bfloat16)"),
}


@pytest.mark.parametrize(
    ("warps", "slots", "blocks"), [(4, 2, (64, 64, 64)), (8, 3, (128, 64, 64)), (8, 2, (128, 128, 32))]
)
@pytest.mark.parametrize("form", FORMS)
def test_products_are_right_however_long_their_loops_are(
    from_text, run_function, form: str, warps: int, slots: int, blocks: tuple[int, int, int]
) -> None:
    load, operand = FORMS[form]
    text = KERNEL.format(constants=CONSTANTS, load=load, operand=operand)
    made = from_text(text, SIGNATURE, dict(zip(("BM", "BN", "BK"), blocks, strict=True)), warps=warps, num_stages=slots)
    assert any(isinstance(op, Deposit) for op in made.gpu("cuda:90a").walk())
    rng = np.random.default_rng(warps)
    m, n = 2 * blocks[0], 2 * blocks[1]
    for turns in (0, 1, 2, 5):
        k = turns * blocks[2]
        a = rng.integers(-3, 4, (m, max(k, 16))).astype(ml_dtypes.bfloat16)[:, :k].copy()
        b = rng.integers(-8, 8, (n, k) if "columns" in form else (k, n)).astype(np.int8)
        s = np.exp2(rng.integers(-2, 3, max(turns, 1))).astype(np.float32)
        right = (b.T if "columns" in form else b).astype(np.float64)
        right *= np.repeat(s, blocks[2])[:k, None] if form == "scaled" else 1
        c = np.full((m, n), 77, np.float32)
        run_function(made.tile(), (1,), [a, b, s, c, m, n, k], warps, "cuda:90a")
        np.testing.assert_array_equal(c, a.astype(np.float64) @ right)


def test_what_threads_wrote_is_fenced_before_the_tensor_cores_read_it(from_text) -> None:
    """Stores go through the generic proxy, and wgmma reads through the asynchronous one (PTX ISA, "Proxies")."""
    load, operand = FORMS["cast"]
    text = KERNEL.format(constants=CONSTANTS, load=load, operand=operand)
    ptx = emit_ptx(from_text(text, SIGNATURE, {"BM": 64, "BN": 64, "BK": 64}).program(), Target.parse("cuda:90a"))
    kinds = re.findall(r"st\.shared|fence\.proxy\.async|bar\.sync|mbarrier\.arrive|wgmma\.mma", ptx)
    after = [kind for before, kind in itertools.pairwise(kinds) if before == "st.shared" != kind]
    assert after[:2] == ["fence.proxy.async"] * 2


@pytest.mark.parametrize(
    ("operand", "acc", "slots"), [("y.to(tl.bfloat16)", "acc", 4), ("y.to(tl.bfloat16)", "acc * 2", 3)]
)
def test_rings_have_a_slot_more_for_what_the_product_before_reads(
    from_text, operand: str, acc: str, slots: int
) -> None:
    text = KERNEL.format(constants=CONSTANTS, load=ROWS, operand=operand).replace(", acc)", f", {acc})")
    function = from_text(text, SIGNATURE, {"BM": 64, "BN": 64, "BK": 64}, num_stages=3).gpu("cuda:90a")
    pipes = [op for op in function.walk() if isinstance(op, Pipe)]
    assert {pipe.slots for pipe in pipes if pipe.engine == "tma"} == {slots}
    assert sum(pipe.engine == "threads" for pipe in pipes) == (slots == 4)
