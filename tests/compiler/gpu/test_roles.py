"""What consumers do with the slots that a producer fills: from when on they read them, and until when."""

from __future__ import annotations

import pytest

from deuteron.compiler.gpu.asynchronous import Await, Receive, Release, Roles, Wgmma, slot_of
from deuteron.compiler.gpu.residency import ANOTHER_CTA, MANY_TILES, SEVERAL_TILES
from deuteron.compiler.ir.core import Op, Value
from deuteron.compiler.runtime.launch.guards import programs_per_sm
from deuteron.compiler.target import Target
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.elementwise import Constant

TWICE = """
def twice(a_ptr, b_ptr, w_ptr, out_ptr, K, N: tl.constexpr):
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    left, right = tl.load(w_ptr + rows * N + columns), tl.load(w_ptr + N * N + rows * N + columns)
    sums = tl.zeros((N, N), tl.float32)
    more = tl.zeros((N, N), tl.float32)
    for k in range(0, K, N):
        b = tl.load(b_ptr + (k + rows) * N + columns)
        {body}
    tl.store(out_ptr + rows * N + columns, sums)
    tl.store(out_ptr + N * N + rows * N + columns, more)
"""
TYPES = {**dict.fromkeys(("a_ptr", "b_ptr", "w_ptr"), "*fp16:16"), "out_ptr": "*fp32:16", "K": "i32:16"}
BOTH = ("sums = tl.dot(left, b, sums)", "more = tl.dot(right, b, more)")
IN_A_BRANCH = ("if k > N:", "    more += tl.load(w_ptr + k) * b.to(tl.float32)")


def consumed(to_gpu, *body: str, warps: int = 4) -> list[Op]:
    """The loop of the consumers."""
    function = to_gpu(TWICE.format(body="\n        ".join(body)), TYPES, {"N": 64}, warps)
    (roles,) = [op for op in function.walk() if isinstance(op, Roles)]
    (loop,) = [op for op in roles.consumer.walk() if isinstance(op, For)]
    return loop.body.ops


def reads(op: Op, pipe: Value) -> bool:
    slots = [slot_of(value) for value in op.reads]
    return any(slot is not None and slot.pipe is pipe for slot in slots)


@pytest.mark.parametrize(
    "body", [BOTH, (*IN_A_BRANCH, BOTH[0]), (BOTH[0], *IN_A_BRANCH)], ids=["two", "before", "after"]
)
def test_a_slot_is_received_before_all_that_read_it_and_released_after(to_gpu, body: tuple[str, ...]) -> None:
    """Products read until they are waited for, and branches by what is in them."""
    ops = consumed(to_gpu, *body)
    (receive,) = [op for op in ops if isinstance(op, Receive)]
    (release,) = [op for op in ops if isinstance(op, Release)]
    readers = [op for op in ops if reads(op, receive.pipe)]
    assert len(readers) >= 2
    flying = [op.result for op in readers if isinstance(op, Wgmma) and not op.waits]
    waits = [op for op in ops if isinstance(op, Await) and op.x in flying]
    assert len(waits) == len(flying)
    order = [ops.index(op) for op in (receive, *readers, *waits, release)]
    assert order[0] == min(order) and order[-1] == max(order)


@pytest.mark.parametrize(("warps", "producers"), [(4, 1), (8, 4)])
def test_one_warp_feeds_a_single_group_and_a_group_several(to_gpu, warps: int, producers: int) -> None:
    """A whole group has registers to give away."""
    function = to_gpu(TWICE.format(body=BOTH[0]), TYPES, {"N": 128}, warps)
    (roles,) = [op for op in function.walk() if isinstance(op, Roles)]
    assert roles.producer_warps == producers
    assert (roles.consumer_registers > 0) == (producers > 1)
    assert function.recipe.threads == 32 * (warps + producers)


PRODUCT = """
def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ADDS: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + rows * K + k + tl.arange(0, BK)[None, :])
        b = tl.load(b_ptr + (k + tl.arange(0, BK)[:, None]) * N + columns)
        sums = tl.dot(a, b, sums)
    if ADDS:
        tl.atomic_add(c_ptr + rows * N + columns, sums)
    else:
        tl.store(c_ptr + rows * N + columns, sums)
"""
SIZES = {**dict.fromkeys("MNK", "i32:16"), "c_ptr": "*fp32:16"}


@pytest.mark.parametrize(
    ("block", "options", "elem", "two"),
    [
        ((128, 128, 64), {"persistent": False}, "fp16", True),
        ((128, 128, 64), {"persistent": True}, "fp16", False),  # copies for its next tile meanwhile
        ((128, 128, 64), {"persistent": False, "num_stages": 4}, "fp16", False),  # 128 KiB of 227
        ((128, 256, 64), {"persistent": False, "num_stages": 2}, "fp16", False),  # 128 accumulators a thread
        ((128, 128, 128), {"persistent": False}, "fp8e4nv", False),  # what fp8 sums up takes more registers
        ((128, 128, 64), {"persistent": False, "maxnreg": 96}, "fp16", False),  # as the author says
    ],
)
def test_an_sm_holds_two_ctas_where_there_is_room(to_gpu, block, options, elem: str, two: bool) -> None:
    """Two have 112 registers a thread, as they are: ptxas takes no wgmma of 64 accumulators for a kernel that begins
    with 80, whatever setmaxnreg would add."""
    types = {**SIZES, "a_ptr": f"*{elem}:16", "b_ptr": f"*{elem}:16"}
    sizes = dict(zip(("BM", "BN", "BK"), block, strict=True))
    function = to_gpu(PRODUCT, types, {**sizes, "ADDS": False}, 8, **options)
    (roles,) = [op for op in function.walk() if isinstance(op, Roles)]
    assert (roles.resident_ctas == 2) == two
    if two:
        assert (roles.producer_warps, roles.consumer_registers) == (1, 0)


@pytest.mark.parametrize(
    ("depth", "stages", "adds", "persistent"), [(64, 3, False, True), (32, 4, False, False), (64, 3, True, False)]
)
def test_two_ctas_of_a_tile_or_one_that_walks_over_tiles(
    to_gpu, depth: int, stages: int, adds: bool, persistent: bool
) -> None:
    """What a schedule that says nothing of it gets."""
    types = {**SIZES, "a_ptr": "*fp16:16", "b_ptr": "*fp16:16"}
    constants = {"BM": 128, "BN": 128, "BK": depth, "ADDS": adds}
    function = to_gpu(PRODUCT, types, constants, 8, num_stages=stages)
    (roles,) = [op for op in function.walk() if isinstance(op, Roles)]
    assert function.recipe.persistent == persistent
    assert roles.resident_ctas == (1 if persistent else 2)


@pytest.mark.parametrize(
    ("block", "warps", "options", "slots"),
    [
        ((128, 128, 64), 8, {"persistent": True}, 5),  # three, and one that each of two groups is at
        ((128, 128, 64), 8, {"persistent": True, "num_stages": 2}, 4),
        ((128, 128, 64), 8, {"persistent": True, "num_stages": 4}, 6),
        ((128, 128, 64), 8, {"persistent": True, "num_stages": 5}, 6),  # as 227 KiB hold, beside the results
        ((128, 128, 64), 4, {"persistent": True}, 3),  # one group waits for what it reads anyway
        ((128, 128, 32), 8, {"persistent": True}, 5),
        ((128, 256, 64), 8, {"persistent": True, "num_stages": 2}, 2),  # products of 1,024 cycles
        ((128, 128, 64), 8, {"persistent": False}, 3),  # two CTAs of an SM have 96 KiB each
        ((128, 64, 64), 8, {"persistent": False}, 4),
    ],
)
def test_rings_of_several_groups_have_slots_for_those_in_use(to_gpu, block, warps: int, options, slots: int) -> None:
    types = {**SIZES, **dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16:16")}
    sizes = dict(zip(("BM", "BN", "BK"), block, strict=True))
    assert to_gpu(PRODUCT, types, {**sizes, "ADDS": False}, warps, **options).num_slots == slots


@pytest.mark.parametrize(
    ("block", "stages", "slots", "ctas"),
    [
        ((128, 128, 64), 3, 3, 2),  # two CTAs of an SM have 96 KiB each
        ((128, 128, 64), 4, 3, 2),
        ((128, 128, 64), 6, 3, 2),
        ((64, 256, 64), 3, 2, 2),
        ((64, 128, 64), 5, 4, 2),
        ((128, 128, 128), 3, 3, 1),  # two slots are too many for two CTAs, too
        ((256, 128, 64), 4, 4, 1),  # and here registers are
    ],
)
def test_rings_of_one_group_leave_room_for_another_cta(to_gpu, block, stages: int, slots: int, ctas: int) -> None:
    """Where launches have programs for it."""
    types = {**SIZES, **dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16:16")}
    sizes = {**dict(zip(("BM", "BN", "BK"), block, strict=True)), "ADDS": False}
    options = {"persistent": False, "num_stages": stages}
    made = to_gpu(PRODUCT, types, sizes, 4, **options)
    limits = Target.parse("cuda:90a").limits
    assert limits.shared_bytes // (made.allocation.total + limits.reserved_bytes) == ctas
    assert made.num_slots == slots
    assert (ANOTHER_CTA in made.recipe.guards) == (slots < stages)
    launches = [programs_per_sm((programs, 1, 1), 132) for programs in (1, 128, 132, 133)]
    assert [ANOTHER_CTA.holds(programs) for programs in launches] == [False, False, False, True]
    few = to_gpu(PRODUCT, types, sizes, 4, **options, denied=frozenset({ANOTHER_CTA}))
    assert few.num_slots == stages and ANOTHER_CTA not in few.recipe.guards


def test_rings_that_no_producer_feeds_keep_their_slots(to_gpu) -> None:
    """Of rows that are gathered: threads copy them ahead of themselves."""
    types = {**SIZES, **dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16:16"), "i_ptr": "*i32:16"}
    text = PRODUCT.replace("(a_ptr,", "(i_ptr, a_ptr,").replace("a_ptr + rows * K", "a_ptr + tl.load(i_ptr + rows) * K")
    sizes = {"BM": 128, "BN": 128, "BK": 64, "ADDS": False}
    made, few = (
        to_gpu(text, types, sizes, 4, persistent=False, num_stages=6, denied=denied)
        for denied in (frozenset(), frozenset({ANOTHER_CTA}))
    )
    assert not list(made.ops_of(Roles)) and made.num_slots == few.num_slots
    assert ANOTHER_CTA not in made.recipe.guards


SCALED = """
def scaled(a_ptr, b_ptr, w_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.arange(0, BM)
    rows, columns = tl.program_id(0) * BM + i[:, None], tl.arange(0, BN)[None, :]
    w = tl.load(w_ptr + i)
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + rows * K + k + tl.arange(0, BK)[None, :]) * w[:, None]
        b = tl.load(b_ptr + (k + tl.arange(0, BK)[:, None]) * N + columns)
        sums = tl.dot(a, b, sums)
    tl.store(c_ptr + rows * N + columns, sums)
"""


@pytest.mark.parametrize(
    ("block", "more", "ctas"),
    [
        ((64, 64), "", 2),
        ((128, 64), "", 2),  # 32 accumulators a thread, and 80 registers for all else
        ((128, 128), "", 1),
        ((128, 64), "again = tl.zeros((BM, BN), tl.float32)", 2),  # of two loops one after the other the larger counts
    ],
)
def test_products_of_computed_operands_share_an_sm(to_gpu, block, more: str, ctas: int) -> None:
    head, loop = SCALED.split("    for k", 1)
    loop, store = loop.split("    tl.store", 1)
    text = f"{head}    for k{loop}    tl.store{store}"
    if more:
        text = f"{head}    {more}\n    for k{loop}    for k{loop.replace('sums', 'again')}    tl.store{store}".replace(
            "columns, sums)", "columns, sums + again)"
        )
    types = {**SIZES, **dict.fromkeys(("a_ptr", "b_ptr", "w_ptr"), "*fp16:16")}
    constants = {"BM": block[0], "BN": block[1], "BK": 64}
    function = to_gpu(text, types, constants, 8, persistent=False, num_stages=2)
    (roles,) = [op for op in function.walk() if isinstance(op, Roles)]
    assert roles.resident_ctas == ctas


def test_rings_of_computed_operands_have_no_more_slots(to_gpu) -> None:
    """Threads, not copies, are what the tensor cores wait for: one slot more, for the operand that they make."""
    types = {**SIZES, **dict.fromkeys(("a_ptr", "b_ptr", "w_ptr"), "*fp16:16")}
    text = SCALED.replace("* w[:, None]", "").replace("* N + columns)\n", "* N + columns) * w[0]\n", 1)
    text = text.replace("w = tl.load(w_ptr + i)", "w = [tl.load(w_ptr)]")
    assert to_gpu(text, types, {"BM": 128, "BN": 128, "BK": 64}, 8, persistent=True, num_stages=2).num_slots == 3


def test_short_products_of_computed_operands_do_not_walk(to_gpu) -> None:
    types = {**SIZES, **dict.fromkeys(("a_ptr", "b_ptr", "w_ptr"), "*fp16:16")}
    function = to_gpu(SCALED, types, {"BM": 64, "BN": 64, "BK": 32}, 8)
    (roles,) = [op for op in function.walk() if isinstance(op, Roles)]
    assert (function.recipe.persistent, roles.resident_ctas, roles.producer_warps) == (False, 2, 1)


@pytest.mark.parametrize(
    ("block", "persistent", "asked", "choice"),
    [
        ((128, 128), True, None, True),
        ((128, 128), True, True, False),  # the author says so
        ((128, 256), True, None, False),  # no room for two
        ((64, 64), False, None, False),  # 16 accumulators a thread: two in any case
    ],
)
def test_a_few_tiles_are_left_to_two_ctas(to_gpu, block, persistent: bool, asked: bool | None, choice: bool) -> None:
    types = {**SIZES, "a_ptr": "*fp16:16", "b_ptr": "*fp16:16"}
    constants = {"BM": block[0], "BN": block[1], "BK": 64, "ADDS": False}
    function = to_gpu(PRODUCT, types, constants, 8, persistent=asked)
    assert function.recipe.persistent == persistent
    assert (MANY_TILES in function.recipe.guards) == choice
    if choice:
        of_few = to_gpu(PRODUCT, types, constants, 8, denied=frozenset({MANY_TILES}))
        (roles,) = [op for op in of_few.walk() if isinstance(op, Roles)]
        assert (of_few.recipe.persistent, roles.resident_ctas) == (False, 2)
        assert MANY_TILES not in of_few.recipe.guards


CHAINED = """
def chained(
    q_ptr, k_ptr, v_ptr, out_ptr, N, CAUSAL: tl.constexpr, THIRD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    rows, dims = tl.program_id(0) * BM + tl.arange(0, BM)[:, None], tl.arange(0, 64)[None, :]
    q = tl.load(q_ptr + rows * 64 + dims)
    sums = tl.zeros((BM, 64), tl.float32)
    for n in range(0, (tl.program_id(0) + 1) * BM if CAUSAL else N, BN):
        columns = n + tl.arange(0, BN)[:, None]
        scores = tl.dot(q, tl.trans(tl.load(k_ptr + columns * 64 + dims)))
        sums = tl.dot(scores.to(tl.float16), tl.load(v_ptr + columns * 64 + dims), sums)
        if THIRD:
            sums = tl.dot(scores.to(tl.float16), tl.load(k_ptr + columns * 64 + dims), sums)
    tl.store(out_ptr + rows * 64 + dims, sums)
"""


@pytest.mark.parametrize(
    ("end", "warps", "third", "persistent"),
    [
        ("N", 8, False, True),
        ("N", 8, True, False),
        ("N", 4, False, False),
        ("(tl.program_id(0) + 1) * BM", 8, False, True),  # pairs from both ends take as long
        ("(tl.program_id(0) + 1) * BM", 8, True, True),
        ("(tl.program_id(1) + 1) * BM", 8, False, False),  # of the last an SM may be dealt more than others
        ("tl.load(out_ptr).to(tl.int32)", 8, False, False),
    ],
)
def test_programs_of_several_products_stay_where_all_take_as_long(
    to_gpu, end: str, warps: int, third: bool, persistent: bool
) -> None:
    types = {**dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), "*fp16:16"), "out_ptr": "*fp32:16", "N": "i32:16"}
    text = CHAINED.replace("(tl.program_id(0) + 1) * BM if CAUSAL else N", end)
    function = to_gpu(text, types, {"CAUSAL": False, "THIRD": third, "BM": 16 * warps, "BN": 64}, warps)
    assert function.recipe.persistent == persistent
    if persistent:
        outermost = next(op for op in function.walk() if isinstance(op, For))
        in_pairs = isinstance(outermost.step.op, Constant)  # else from program to program
        assert in_pairs == ("program_id" in end)


def chained(to_gpu, end: str, rows: int, **options):
    types = {**dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), "*fp16:16"), "out_ptr": "*fp32:16", "N": "i32:16"}
    text = CHAINED.replace("(tl.program_id(0) + 1) * BM if CAUSAL else N", end)
    return to_gpu(text, types, {"CAUSAL": False, "THIRD": False, "BM": rows, "BN": 64}, 8, **options)


@pytest.mark.parametrize("end", ["N", "(tl.program_id(0) + 1) * BM"])
def test_programs_of_several_products_stay_where_there_are_more_than_sms(to_gpu, end: str) -> None:
    """Pairs of few programs would leave half of the SMs idle."""
    assert SEVERAL_TILES in chained(to_gpu, end, 128).recipe.guards
    of_few = chained(to_gpu, end, 128, denied=frozenset({SEVERAL_TILES})).recipe
    assert not of_few.persistent and SEVERAL_TILES not in of_few.guards
    assert SEVERAL_TILES not in chained(to_gpu, end, 128, persistent=True).recipe.guards, "the author says so"


@pytest.mark.parametrize(("end", "persistent"), [("N", False), ("(tl.program_id(0) + 1) * BM", True)])
def test_warp_groups_that_share_rows_stay_for_pairs_alone(to_gpu, end: str, persistent: bool) -> None:
    assert chained(to_gpu, end, 64).recipe.persistent == persistent


def test_small_boxes_go_by_the_copy_engine_only_where_warp_groups_multiply(to_gpu) -> None:
    """A group of their own brings them there; elsewhere threads fetch a few bytes each themselves."""
    types = {**SIZES, "a_ptr": "*fp16:16", "b_ptr": "*fp16:16"}
    by_warps = to_gpu(PRODUCT, types, {"BM": 32, "BN": 32, "BK": 64, "ADDS": False})
    assert not {"a_ptr", "b_ptr"} & {tensor_map.base for tensor_map in by_warps.recipe.descriptors}
    types = {**dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), "*fp16:16"), "out_ptr": "*fp32:16", "N": "i32:16"}
    by_groups = to_gpu(CHAINED, types, {"CAUSAL": False, "THIRD": False, "BM": 128, "BN": 16}, 8)
    assert {"k_ptr", "v_ptr"} <= {tensor_map.base for tensor_map in by_groups.recipe.descriptors}
    assert any(isinstance(op, Roles) for op in by_groups.walk())


@pytest.mark.parametrize(
    "loops, fed",
    [
        ("for k in range(0, 2 * N, N):", False),
        ("for k in range(0, 3 * N, N):", True),
        ("for tile in range(K):\n      for k in range(0, 2 * N, N):", True),
    ],
    ids=["two", "three", "two for each tile"],
)
def test_two_iterations_need_no_producer(to_gpu, loops: str, fed: bool) -> None:
    """All of their copies are begun before the first product, if there are no further tiles."""
    body = "\n        ".join(BOTH)
    text = TWICE.format(body=body).replace("for k in range(0, K, N):", loops)
    function = to_gpu(text, TYPES, {"N": 64}, 4)
    assert bool(function.ops_of(Roles)) == fed
