"""CTAs that share an SM where a loop has several products and work of its own between them."""

from __future__ import annotations

import pytest

from deuteron.compiler.gpu.asynchronous import Roles
from deuteron.compiler.target import Target

# As the gradients of attention: what is computed from two products is an operand of two others.
CHAINED = """
def chained(a, b, c, d, out, N, H: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr):
    r, h, s = tl.arange(0, ROWS)[:, None], tl.arange(0, H), tl.arange(0, STEP)
    x = tl.load(a + r * H + h[None, :])
    y = tl.load(b + r * H + h[None, :])
    one = tl.zeros((ROWS, H), tl.float32)
    two = tl.zeros((ROWS, H), tl.float32)
    for start in range(0, N, STEP):
        rows = (start + s)[:, None] * H + h[None, :]
        p, q = tl.load(c + rows), tl.load(d + rows)
        left = tl.exp2(tl.dot(x, tl.trans(p)))
        right = left * tl.dot(y, tl.trans(q))
        one += tl.dot(left.to(tl.float16), q)
        two += tl.dot(right.to(tl.float16), p)
    tl.store(out + r * H + h[None, :], one + two)
"""
SIGNATURE = {**dict.fromkeys(("a", "b", "c", "d"), "*fp16:16"), "out": "*fp32:16", "N": "i32:16"}


def lowered(to_gpu, warps: int, slots: int, step: int = 32):
    constants = {"H": 64, "ROWS": 32 * warps, "STEP": step}
    return to_gpu(CHAINED, SIGNATURE, constants, warps, "cuda:90a", num_stages=slots)


@pytest.mark.parametrize("warps, producer", [(4, False), (8, True)])
def test_one_warp_group_brings_its_tiles_itself(to_gpu, warps: int, producer: bool) -> None:
    """Five warps with all their registers leave no room for another block, four do."""
    made = lowered(to_gpu, warps, 3)
    assert any(isinstance(op, Roles) for op in made.walk()) == producer


def test_loops_one_after_the_other_are_not_one(to_gpu) -> None:
    """Also where a loop over tiles is around them: each has two products, of which one runs beside the other's work."""
    loops = CHAINED.split("    for start", 1)
    half = """    for start in range(0, N, STEP):
        p = tl.load(c + (start + s)[:, None] * H + h[None, :])
        one += tl.dot(tl.exp2(tl.dot(x, tl.trans(p))).to(tl.float16), p)
"""
    text = loops[0] + half + half.replace("load(c", "load(d") + "    tl.store(out + r * H + h[None, :], one + y)\n"
    constants = {"H": 64, "ROWS": 128, "STEP": 32}
    for persistent in (False, True):
        made = to_gpu(text, SIGNATURE, constants, 4, "cuda:90a", persistent=persistent)
        assert any(isinstance(op, Roles) for op in made.walk())


def test_rings_have_fewer_slots_where_another_cta_fits_then(to_gpu) -> None:
    limits = Target.parse("cuda:90a").limits
    slots = {asked: lowered(to_gpu, 4, asked).num_slots for asked in (3, 9, 12, 16)}
    assert slots[3] == 3 and slots[9] == 9, "two CTAs fit as it is"
    assert 9 < slots[12] < 12 and slots[16] == slots[12]
    assert 2 * (lowered(to_gpu, 4, 12).allocation.total + limits.reserved_bytes) <= limits.shared_bytes


def test_a_block_too_large_for_two_keeps_its_slots(to_gpu) -> None:
    assert lowered(to_gpu, 4, 2, step=256).num_slots == 2
