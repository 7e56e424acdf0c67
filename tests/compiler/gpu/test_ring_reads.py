"""What threads make of tiles in rings: read as the product takes it, where that costs less than another round trip."""

from __future__ import annotations

import pytest

from deuteron.compiler.gpu.asynchronous import Wgmma, slot_of
from deuteron.compiler.gpu.layouts.ring_reads import RingRead, Taken, layout_as_taken
from deuteron.compiler.gpu.memory.scratch import is_round_trip
from deuteron.compiler.gpu.ops import ConvertLayout
from deuteron.compiler.ir.core import Function
from deuteron.compiler.layout import coalesced_vectors, dot_operand, permute_layout, shared_tensor_core
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.memory import Barrier

KERNEL = """
def made(a_ptr, b_ptr, c_ptr, s_ptr, t_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), ACC)
    s = tl.load(s_ptr + m)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :])
        BODY
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)
"""
COLUMNS = "tl.load(a_ptr + (start + k)[:, None] * BM + m[None, :])"
LEFT = {
    "chosen": ("bf16", "bf16", "a = tl.where(a > 0, a, 0.0)"),
    "narrowed": ("fp32", "bf16", "a = a.to(tl.bfloat16)"),
    "widened": ("fp8e4nv", "fp16", "a = a.to(tl.float16)"),
    "scaled by rows": ("bf16", "bf16", "a = (a * s[:, None]).to(tl.bfloat16)"),
    "scaled by columns": ("fp16", "fp16", "a = (a * tl.load(t_ptr + start + k)[None, :]).to(tl.float16)"),
    "seen transposed": ("bf16", "bf16", f"a = tl.trans({COLUMNS}); a = tl.where(a > 0, a, 0.0)"),
    "made of columns": ("bf16", "bf16", f"a = tl.trans(({COLUMNS} * s[None, :]).to(tl.bfloat16))"),
    "summed as well": ("fp16", "fp16", "a = tl.exp(a.to(tl.float32)); s += tl.sum(a, 1); a = a.to(tl.float16)"),
}
UNPACKED = "b = ((b & 12) >> 2).to(tl.int8)"


def made(to_gpu, a: str, b: str, body: str, blocks: tuple[int, int, int], warps: int) -> Function:
    acc = "fp32" if b != "i8" else "i32"
    signature = {"a_ptr": f"*{a}:16", "b_ptr": f"*{b}:16", "c_ptr": f"*{acc}:16", "s_ptr": "*fp32:16"}
    signature |= {"t_ptr": "*fp32:16", "N": "i32:16", "K": "i32:16"}
    text = KERNEL.replace("BODY", body).replace("ACC", "tl.float32" if acc == "fp32" else "tl.int32")
    return to_gpu(text, signature, dict(zip(("BM", "BN", "BK"), blocks, strict=True)), warps, persistent=False)


def the_loop(function: Function) -> list[object]:
    """The body of the loop with the product."""
    (body,) = [
        op.body for op in function.walk() if isinstance(op, For) and any(isinstance(o, Wgmma) for o in op.body.ops)
    ]
    return body.ops


@pytest.mark.parametrize(("blocks", "warps"), [((64, 128, 64), 4), ((128, 64, 64), 4), ((128, 128, 64), 8)])
@pytest.mark.parametrize("form", LEFT)
def test_a_left_operand_is_read_in_fragments(to_gpu, form: str, blocks: tuple[int, int, int], warps: int) -> None:
    ops = the_loop(made(to_gpu, *LEFT[form], blocks, warps))
    (product,) = [op for op in ops if isinstance(op, Wgmma)]
    (read,) = [op for op in ops if isinstance(op, ConvertLayout) and slot_of(op.x) is not None]
    fragments = product.a.type.layout
    assert fragments is not None
    assert read.to.layout in (fragments, permute_layout(fragments, (1, 0)))
    assert not any(isinstance(op, Barrier) or (isinstance(op, ConvertLayout) and is_round_trip(op)) for op in ops)


def test_bytes_along_n_are_read_in_pairs_of_rows_along_k(to_gpu) -> None:
    """They are transposed on their way to shared memory, and go there once."""
    ops = the_loop(made(to_gpu, "i8", "i8", UNPACKED, (64, 64, 64), 4))
    through = [op for op in ops if isinstance(op, ConvertLayout) and op.x.type.shared is None]
    assert not any(map(is_round_trip, through))
    assert [op.to.shared is not None for op in through] == [False, False, False, True]


def test_a_row_is_shuffled_within_warps_beside_what_a_product_takes(to_gpu) -> None:
    ops = the_loop(made(to_gpu, *LEFT["scaled by columns"], (128, 128, 64), 4))
    (row,) = [op for op in ops if isinstance(op, ConvertLayout) and op.to.rank == 1]
    assert not any(map(any, row.x.type.layout.warp))


def test_warps_do_not_all_make_the_same(to_gpu) -> None:
    """Eight warps share 64 rows: fragments of A are those of two groups."""
    ops = the_loop(made(to_gpu, *LEFT["chosen"], (64, 256, 64), 8))
    (read,) = [op for op in ops if isinstance(op, ConvertLayout) and slot_of(op.x) is not None]
    assert not read.to.layout.free_bits("warp")


#: A ring of 32-bit words, of which fragments of bytes are made: two lanes meet in a bank.
WORDS = RingRead(shared_tensor_core((128, 64), 32, 128, (1, 0)), 32, 1)
HALVES = RingRead(shared_tensor_core((128, 64), 16, 128, (1, 0)), 16, 1)
BYTES_OF_A = Taken(dot_operand((128, 64), 0, (4, 1), 8), 8, 1)
HALVES_OF_A = Taken(dot_operand((128, 64), 0, (4, 1), 16), 16, 1)
VECTORS = coalesced_vectors((128, 64), 4, 4, (1, 0))


@pytest.mark.parametrize(
    ("read", "taken", "chosen"),
    [
        pytest.param(HALVES, [HALVES_OF_A], True, id="without conflicts"),
        pytest.param(WORDS, [BYTES_OF_A], False, id="conflicts cost more than a round trip of bytes"),
        pytest.param(HALVES, [HALVES_OF_A, HALVES_OF_A], True, id="two products want the same"),
        pytest.param(HALVES, [HALVES_OF_A, BYTES_OF_A], False, id="two products want it differently"),
        pytest.param(HALVES, [HALVES_OF_A._replace(loops=2)], False, id="a product of an inner loop"),
        pytest.param(HALVES, [], False, id="no product"),
        pytest.param(HALVES, [HALVES_OF_A._replace(k_axis=1)], False, id="rows lie along K already"),
    ],
)
def test_what_costs_less_is_chosen(read: RingRead, taken: list[Taken], chosen: bool) -> None:
    assert layout_as_taken([read], taken, VECTORS) == (taken[0].layout if chosen else None)
