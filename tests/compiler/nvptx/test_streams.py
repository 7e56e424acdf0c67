"""What is fetched ahead of the loop that reads it, and what must not be."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Pipe, Put, Receive, RingBuffer
from deuteron.compiler.ir import Op
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.elementwise import IntDiv

#: Each step multiplies what the one before has stored.
CHAIN = """
def chain(x, b, steps):
    m, n = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    for i in range(0, steps):
        left = tl.load(x + i * 4096 + m * 64 + n)
        right = tl.load(b + i * 4096 + m * 64 + n)
        tl.store(x + (i + 1) * 4096 + m * 64 + n, tl.dot(left, right).to(tl.float16))
        tl.debug_barrier()
"""
#: A row of factors for each step of a product, as norms before a product have.
SCALED = """
def scaled(x, factors, w, out, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, BK)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(x + m * K + (start + k)[None, :]) * tl.load(factors + (start + k)[None, :])
        total += tl.dot(left, tl.load(w + (start + k)[:, None] * N + n))
    tl.store(out + m * N + n, total)
"""
#: The same with the address of what is stored chosen at run time: any array may be meant.
CHOSEN = CHAIN.replace("chain(x, b, steps)", "chosen(x, b, y, steps, other)").replace(
    "tl.store(x +", "tl.store((y if other else x) +"
)


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
@pytest.mark.parametrize("chosen", [False, True])
def test_what_the_kernel_writes_is_not_fetched_ahead(from_text, run_function, target: str, chosen: bool) -> None:
    signature = {"x": "*fp16:16", "b": "*fp16:16", "steps": "i32"}
    made = from_text(CHOSEN, {**signature, "y": "*fp16:16", "other": "i32"}) if chosen else from_text(CHAIN, signature)
    rings = [op for op in made.gpu(target).walk() if isinstance(op, RingBuffer)]
    assert len(rings) == (0 if chosen else 1)  # of b
    rng = np.random.default_rng(0)
    b = (2 * np.stack([rng.permutation(np.eye(64)) for _ in range(4)])).astype(np.float16)
    x = np.zeros((5, 64, 64), np.float16)
    x[0] = rng.integers(-4, 5, (64, 64))
    wanted = [x[0].astype(np.float64)]
    for step in b:
        wanted.append(wanted[-1] @ step)
    run_function(
        made.tile(), (1,), [x, b, *([np.zeros_like(x)] if chosen else []), 4, *([0] if chosen else [])], 4, target
    )
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
@pytest.mark.parametrize(("rows", "depth"), [(16, 64), (64, 32), (128, 64)])
def test_factors_that_are_repeated_come_ahead_of_the_product(from_text, run_function, target, rows, depth) -> None:
    signature = {**dict.fromkeys(("x", "factors", "w"), "*fp16:16"), "out": "*fp32:16", "K": "i32:16"}
    made = from_text(SCALED, signature, {"M": rows, "N": 64, "BK": depth})
    rings = [op for op in made.gpu(target).walk() if isinstance(op, RingBuffer)]
    assert len(rings) == 3
    rng = np.random.default_rng(0)
    x, factors, w = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((rows, 256), (1, 256), (256, 64)))
    out = np.full((rows, 64), np.nan, np.float32)
    run_function(made.tile(), (1,), [x, factors, w, out, 256], 4, target)
    np.testing.assert_array_equal(out, (x * factors).astype(np.float64) @ w.astype(np.float64))


#: One loop over the steps of all tiles of a program: a branch says where the next tile lies.
FLAT = """
def flat(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr):
    tiles_n, steps = tl.cdiv(N, BN), tl.cdiv(K, BK)
    tiles = tl.cdiv(M, BM) * tiles_n
    tile = tl.program_id(0) - PROGRAMS
    mine = (tiles - tl.program_id(0) + PROGRAMS - 1) // PROGRAMS
    step, row, column = -1, 0, 0
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, steps * mine):
        step = tl.where(step == steps - 1, 0, step + 1)
        if step == 0:
            tile += PROGRAMS
            row, column = tile // tiles_n * BM, tile % tiles_n * BN
            m = row + tl.arange(0, BM)
            n = column + tl.arange(0, BN)
        at = step * BK
        left = LEFT
        right = RIGHT
        total = tl.dot(left, right, total)
        if step == steps - 1:
            place = c + (row + tl.arange(0, BM))[:, None] * N + (column + tl.arange(0, BN))[None, :]
            tl.store(place, total)
            total = tl.zeros((BM, BN), tl.float32)
"""
BY_POINTERS = (
    "tl.load(a + m[:, None] * K + (at + k)[None, :], mask=(at + k)[None, :] < K, other=0.0)",
    "tl.load(b + (at + k)[:, None] * N + n[None, :], mask=(at + k)[:, None] < K, other=0.0)",
)
BY_DESCRIPTORS = (
    "tl.make_tensor_descriptor(a, (M, K), (K, 1), (BM, BK)).load([row, at])",
    "tl.make_tensor_descriptor(b, (K, N), (N, 1), (BK, BN)).load([at, column])",
)


@pytest.mark.parametrize(("target", "warps"), [("cuda:80", 4), ("cuda:90a", 4), ("cuda:90a", 8), ("cuda:120", 8)])
@pytest.mark.parametrize("operands", [BY_POINTERS, BY_DESCRIPTORS], ids=["pointers", "descriptors"])
def test_a_branch_may_say_where_the_next_tile_lies(from_text, run_function, target, operands, warps) -> None:
    text = FLAT.replace("LEFT", operands[0]).replace("RIGHT", operands[1])
    signature = {**dict.fromkeys(("a", "b"), "*fp16:16"), "c": "*fp32:16", **dict.fromkeys("MNK", "i32:16")}
    blocks = {"BM": 64 * warps // 4, "BN": 64, "BK": 32, "PROGRAMS": 3}
    made = from_text(text, signature, blocks)
    assert len([op for op in made.gpu(target).walk() if isinstance(op, RingBuffer)]) == 2
    rng = np.random.default_rng(0)
    m, n, k = 2 * blocks["BM"], 128, 80
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    run_function(made.tile(), (3,), [a, b, c, m, n, k], warps, target)
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("warps", [4, 8])
def test_what_is_carried_beside_a_branch_and_sums_of_what_was_loaded(from_text, run_function, warps) -> None:
    """Where a step begins is carried, and read before it is advanced; sums of rows wait for what they add up."""
    text = FLAT.replace("LEFT", BY_POINTERS[0]).replace("RIGHT", BY_POINTERS[1]).replace("        at = step * BK\n", "")
    text = text.replace("    m, n, k =", "    at, sums = 0, tl.zeros((BM,), tl.float32)\n    m, n, k =")
    text = text.replace(
        "        if step == steps - 1:", "        sums = sums + tl.sum(left.to(tl.float32), 1) * (step + 1)\n{}"
    ).format("        at = tl.where(at + BK < K, at + BK, 0)\n        if step == steps - 1:")
    text = text.replace("(place, total)", "(place, total + sums[:, None])")
    text += "            sums = tl.zeros((BM,), tl.float32)\n"
    signature = {**dict.fromkeys(("a", "b"), "*fp16:16"), "c": "*fp32:16", **dict.fromkeys("MNK", "i32:16")}
    made = from_text(text, signature, {"BM": 64 * warps // 4, "BN": 64, "BK": 32, "PROGRAMS": 3})
    assert len([op for op in made.gpu().walk() if isinstance(op, RingBuffer)]) == 2
    rng = np.random.default_rng(0)
    m, n, k = 256, 128, 80
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    run_function(made.tile(), (3,), [a, b, c, m, n, k], warps)
    exact, weights = a.astype(np.float64), np.arange(k) // 32 + 1
    np.testing.assert_array_equal(c, exact @ b.astype(np.float64) + (exact @ weights)[:, None])


def test_where_the_next_tile_lies_is_computed_once_and_where_the_result_lies_before_waiting(from_text) -> None:
    text = FLAT.replace("LEFT", BY_POINTERS[0]).replace("RIGHT", BY_POINTERS[1])
    signature = {**dict.fromkeys(("a", "b"), "*fp16:16"), "c": "*fp32:16", **dict.fromkeys("MNK", "i32:16")}
    made = from_text(text, signature, {"BM": 64, "BN": 64, "BK": 32, "PROGRAMS": 3}).gpu()
    filling, loop = (op for op in made.body.ops if isinstance(op, For))
    assert _divisions(filling) == 1
    assert _divisions(loop) == 2
    waits = next(place for place, op in enumerate(loop.body.ops) if isinstance(op, Receive))
    assert sum(_divisions(op) for op in loop.body.ops[:waits]) == 1


def _divisions(op: Op) -> int:
    """By the number of tiles in a row."""
    inside = (inner for block in op.blocks for inner in block.walk())
    return sum(isinstance(inner, IntDiv) for inner in inside)


#: A product of boxes.
BOXES = """
def boxes(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))
"""


@pytest.mark.parametrize(
    "block, warps, engines, puts",
    [
        ((16, 16, 16), 4, {"cp.async"}, 0),
        ((32, 32, 32), 1, {"tma"}, 1),
        ((16, 128, 32), 4, {"tma"}, 1),  # one of them is large
        ((16, 128, 16), 4, {"cp.async"}, 1),  # of f32 results there are twice as many bytes
        ((64, 64, 32), 4, {"tma"}, 1),
    ],
)
def test_threads_move_small_boxes_and_the_copy_engine_large_ones(
    from_text, simulated, block, warps, engines, puts
) -> None:
    signature = {**dict.fromkeys(("a", "b"), "*fp16:16"), "c": "*fp32:16", **dict.fromkeys("MNK", "i32:16")}
    made = from_text(BOXES, signature, dict(zip(("BM", "BN", "BK"), block, strict=True)), warps)
    ops = list(made.gpu().walk())
    assert {op.engine for op in ops if isinstance(op, Pipe)} == engines
    assert sum(isinstance(op, Put) for op in ops) == puts
    rng = np.random.default_rng(0)
    m, n, k = 80, 96, 112
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    simulated(made, (-(-m // block[0]), -(-n // block[1])), [a, b, c, m, n, k])
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
def test_more_warps_than_were_asked_for(from_text, run_function, target) -> None:
    """Two warps cannot hold 64 x 256 results; four do."""
    signature = {**dict.fromkeys(("x", "factors", "w"), "*fp16:16"), "out": "*fp32:16", "K": "i32:16"}
    made = from_text(SCALED, signature, {"M": 64, "N": 256, "BK": 32}, 2)
    rng = np.random.default_rng(0)
    x, factors, w = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((64, 96), (1, 96), (96, 256)))
    out = np.full((64, 256), np.nan, np.float32)
    program = run_function(made.tile(), (1,), [x, factors, w, out, 96], 2, target)
    assert program.num_warps >= 4
    np.testing.assert_array_equal(out, (x * factors).astype(np.float64) @ w.astype(np.float64))


#: Products of the heads of an array, whose columns lie side by side.
HEADS = """
def heads(x, w, out, T, D: tl.constexpr, H: tl.constexpr):
    head = tl.program_id(0)
    t, d = tl.arange(0, 64), tl.arange(0, 64)
    total = tl.zeros((64, 64), tl.float32)
    for start in range(0, T, 64):
        rows = start + t
        left = tl.load(x + head * D + rows[:, None] * (H * D) + d[None, :], mask=(rows < T)[:, None], other=0.0)
        total += tl.dot(tl.trans(left), tl.load(w + (start + t)[:, None] * 64 + d[None, :]))
    tl.store(out + head * 4096 + t[:, None] * 64 + d[None, :], total)
"""


@pytest.mark.parametrize("width", [100, 104, 128])
def test_boxes_begin_where_16_bytes_do(from_text, run_function, width: int) -> None:
    """The copy engine stops at others with an illegal instruction (seen on an H100)."""
    types = {"x": "*fp16:16", "w": "*fp16:16", "out": "*fp32:16", "T": "i32"}
    made = from_text(HEADS, types, {"D": width, "H": 4})
    rng = np.random.default_rng(0)
    x, w = rng.integers(-4, 5, (130, 4, width)).astype(np.float16), rng.integers(-4, 5, (192, 64)).astype(np.float16)
    out = np.zeros((4, 64, 64), np.float32)
    program = run_function(made.tile(), (4,), [x, w, out, 130])
    assert ("x" in {tensor_map.base for tensor_map in program.recipe.descriptors}) == (width % 8 == 0)
    np.testing.assert_array_equal(out, np.einsum("thd,tn->hdn", x[..., :64].astype(np.float64), w[:130]))


@pytest.mark.parametrize(
    ("columns", "size", "given"), [("i32", "int8", 296), ("fp32", "int32", 40.5), ("i64", "int32", 40)]
)
def test_a_launch_computes_no_sizes_as_casts_change_them(from_text, simulated, rng, columns, size, given) -> None:
    """40 columns each: of 296 eight bits are left, and a number with a fraction is no size."""
    text = f"""
def masked(x, w, out, K, columns):
    m, n, k = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :], tl.arange(0, 64)
    total = tl.zeros((64, 64), tl.float32)
    for start in range(0, K, 64):
        right = tl.load(w + (start + k)[:, None] * 64 + n, mask=n < columns.to(tl.{size}), other=0)
        total += tl.dot(tl.load(x + m * K + (start + k)[None, :]), right)
    tl.store(out + m * 64 + n, total)
"""
    signature = {"x": "*fp16:16", "w": "*fp16:16", "out": "*fp32:16", "K": "i32:16", "columns": columns}
    made = from_text(text, signature)
    assert any("columns" in described.sizes for described in made.gpu().recipe.descriptors) == (columns == "i64")
    x, w = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((64, 128), (128, 64)))
    out = np.full((64, 64), np.nan, np.float32)
    simulated(made, (1,), [x, w, out, 128, given])
    np.testing.assert_array_equal(out, x.astype(np.float64) @ np.where(np.arange(64) < 40, w, 0))
