"""Loops whose last product is left for the next iteration, and where products in flight are waited for."""

from __future__ import annotations

import pytest

from deuteron.compiler.gpu.asynchronous import Await, Receive, Release, Roles, Wgmma
from deuteron.compiler.ir.core import Op
from deuteron.compiler.tile.control import For, If

CHAIN = """
def chain(q_ptr, k_ptr, v_ptr, out_ptr, count_ptr, N, B: tl.constexpr, H: tl.constexpr):
    rows, heads = tl.arange(0, B)[:, None], tl.arange(0, H)[None, :]
    q = tl.load(q_ptr + rows * H + heads)
    sums = tl.zeros((B, H), tl.float32)
    for i in range(0, N, B):
        k = tl.load(k_ptr + (i + rows) * H + heads)
        v = tl.load(v_ptr + (i + rows) * H + heads)
        {before}
        scores = tl.dot({q}, tl.trans(k))
        {between}
        sums = tl.dot(p.to(tl.float16), {v}, sums)
    tl.store(out_ptr + rows * H + heads, sums)
"""
TYPES = {
    **dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), "*fp16:16"),
    "out_ptr": "*fp32:16",
    "count_ptr": "*i32:16",
    "N": "i32:16",
}
EXPONENTS = "p = tl.exp2(scores - tl.max(scores, 1)[:, None])"


STORED = "tl.store(out_ptr + B * H + rows * H + heads, scores)"


def lines(*text: str) -> str:
    """Lines of the loop's body."""
    return "\n        ".join(text)


def source(between: str = EXPONENTS, v: str = "v", before: str = "pass", q: str = "q") -> str:
    """The kernel's text."""
    return CHAIN.format(before=before, between=between, v=v, q=q)


def chain(to_gpu, block: int = 64, **parts: str) -> list[Op]:
    """All operations of the kernel."""
    return list(to_gpu(source(**parts), TYPES, {"B": block, "H": 64}, num_stages=2).walk())


def loops_of_products(ops: list[Op]) -> list[For]:
    return [op for op in ops if isinstance(op, For) and any(isinstance(o, Wgmma) for o in op.body.ops)]


def test_both_products_run_while_exponents_are_computed(to_gpu) -> None:
    ops = chain(to_gpu)
    (loop,) = loops_of_products(ops)
    order = [op for op in loop.body.ops if isinstance(op, Wgmma | Await | Release)]
    assert [type(op) for op in order] == [Wgmma, Wgmma, Await, Release, Await, Release]
    first, last, wait_first, _, wait_last, _ = order
    assert isinstance(wait_first, Await) and isinstance(wait_last, Await)
    assert (wait_first.x.op, wait_first.pending) == (first, 1)
    assert (wait_last.x.op, wait_last.pending) == (last, 0)
    body = loop.body.ops
    assert any(op.mnemonic == "exp2" for op in body[body.index(wait_first) : body.index(wait_last)])


def test_the_first_iteration_stands_before_the_loop_if_there_is_one(to_gpu) -> None:
    ops = chain(to_gpu)
    (loop,) = loops_of_products(ops)
    (branch,) = [op for op in ops if isinstance(op, If) and loop in op.then.ops]
    products = [op for op in branch.then.ops if isinstance(op, Wgmma)]
    assert len(products) == 2 and len([op for op in ops if isinstance(op, Wgmma)]) == 4
    at = branch.then.ops.index(loop)
    assert [branch.then.ops.index(op) < at for op in products] == [True, False]


def test_slots_of_the_last_product_go_with_it_wherever_they_were_received(to_gpu) -> None:
    """A view before the first product receives the slot there."""
    text = source(v="w").replace(
        "v = tl.load(v_ptr + (i + rows) * H + heads)",
        "w = tl.trans(tl.load(v_ptr + (i + tl.arange(0, B)[None, :]) * H + tl.arange(0, H)[:, None]))",
    )
    ops = list(to_gpu(text, TYPES, {"B": 64, "H": 64}, num_stages=2).walk())
    (loop,) = loops_of_products(ops)
    for kind in (Receive, Release):
        pipes = [op.pipe for op in loop.body.ops if isinstance(op, kind)]
        assert len(pipes) == len(set(pipes)) == 2
    kinds = [type(op) for op in loop.body.ops if isinstance(op, Wgmma | Receive)]
    assert kinds == [Receive, Wgmma, Receive, Wgmma]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"between": lines("p = tl.exp2(k.to(tl.float32))", STORED)}, "the last product does not wait for the first"),
        ({"v": "k"}, "its slot is read by the first product, too"),
        ({"between": lines(EXPONENTS, "q = q + 1")}, "the first product needs what the iteration before left"),
        ({"before": "tl.store(out_ptr + i, 1.0)"}, "the first product would be done before what is stored"),
        (
            {"before": lines("w = q", "if i > 64:", "    w = (q + sums).to(tl.float16)"), "q": "w"},
            "a branch that the first product needs reads what the iteration before left",
        ),
        (
            {
                "before": lines("was = tl.load(count_ptr)", "now = tl.atomic_add(count_ptr, 1)"),
                "q": "(q + now).to(tl.float16)",
                "between": lines(EXPONENTS, "sums = sums + was"),
            },
            "an effect that the first product needs would overtake a load",
        ),
        ({"block": 256}, "accumulators and operands do not fit the registers"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_other_loops_stay(to_gpu, change: dict, why: str) -> None:
    ops = chain(to_gpu, **change)
    assert loops_of_products(ops)
    for loop in loops_of_products(ops):
        assert len([op for op in loop.body.ops if isinstance(op, Wgmma)]) == 2
        assert not any(isinstance(op, If) and loop in op.then.ops for op in ops), why


def test_every_product_is_waited_for_before_its_block_ends(to_gpu) -> None:
    function = to_gpu(source(), TYPES, {"B": 64, "H": 64}, num_stages=2)
    for block in function.body.nest():
        flying = {op.result for op in block.ops if isinstance(op, Wgmma) and not op.waits}
        assert flying == {op.x for op in block.ops if isinstance(op, Await)}


def test_memory_is_not_written_under_a_product_that_may_read_it(to_gpu) -> None:
    """A computed right operand goes to shared memory, and the product that was begun before it is waited for."""
    ops = chain(
        to_gpu,
        between=lines(
            "w = tl.exp2(v.to(tl.float32)).to(tl.float16)",
            "more = tl.dot(q, tl.trans(w))",
            "p = tl.exp2(scores * more)",
        ),
    )
    (body,) = [loop.body.ops for loop in loops_of_products(ops)]
    converts = [op for op in body if op.mnemonic == "gpu.convert" and op.result.type.shared is not None]
    assert any(isinstance(op, Wgmma) for op in body[: body.index(converts[-1])])
    flying = 0
    for op in body:
        if isinstance(op, Wgmma):
            flying += not op.waits
        elif isinstance(op, Await):
            flying = op.pending
        assert op not in converts or not flying


@pytest.mark.parametrize(
    ("bounds", "turned"),
    [
        ("N // B * B, N, B", False),
        ("tl.minimum(first, N) // B * B, tl.minimum(first + 2 * B, N), B", False),
        ("first, first + 3 * B, B", False),
        ("tl.multiple_of(first, B), (tl.program_id(0) + 1) * 2 * B, B", False),
        ("first, first + 4 * B, B", True),
        ("tl.minimum(first, N) // B * B, N, B", True),
        ("0, tl.minimum(first + 2 * B, N), B", True),
        ("first, tl.minimum(N, 2 * first), B", True),
    ],
)
def test_loops_that_cannot_run_long_stay(to_gpu, bounds: str, turned: bool) -> None:
    """Turned, a loop has its products twice; where it runs three times at most, as over attention's diagonal, hardly
    anything overlaps."""
    text = source().replace("0, N, B", bounds)
    text = text.replace("    sums = tl.zeros", "    first = tl.program_id(0) * 2 * B\n    sums = tl.zeros")
    function = to_gpu(text, TYPES, {"B": 64, "H": 64}, num_stages=2)
    assert len([op for op in function.walk() if isinstance(op, Wgmma)]) == (4 if turned else 2)


@pytest.mark.parametrize(
    ("block", "warps", "maxnreg", "turned"),
    [
        (64, 4, None, True),
        # 32 registers for each accumulator, 16 for each of two operands, and 40 for the rest
        (64, 4, 136, True),
        (64, 4, 135, False),
        # 32 for the sums, 64 for the scores, 32 for each operand: of 240, and of the 112 that consumers get here
        (128, 8, None, True),
        (128, 16, None, False),
    ],
)
def test_loops_are_turned_where_both_accumulators_and_operands_fit(
    to_gpu, block: int, warps: int, maxnreg: int | None, turned: bool
) -> None:
    function = to_gpu(source(), TYPES, {"B": block, "H": 64}, warps, num_stages=2, maxnreg=maxnreg)
    assert any(isinstance(op, Roles) for op in function.walk())
    turns = any(isinstance(op, If) for op in function.walk())
    assert turns == turned


@pytest.mark.parametrize(("rows", "turned"), [(64, True), (128, False)])
def test_operands_of_8_bits_are_taken_along_in_small_tiles_only(to_gpu, rows: int, turned: bool) -> None:
    """They are shuffled between the products: 64 registers of sums and scores and 16 of operands, or twice as many."""
    text = source().replace("p.to(tl.float16)", "p.to(tl.float8e5)")
    text = text.replace("(i + rows) * H + heads)\n        pass", "(i + rows) + heads * 4096)\n        pass")
    text = text.replace(
        "q = tl.load(q_ptr + rows * H", f"more = tl.arange(0, {rows})[:, None]\n    q = tl.load(q_ptr + more * H"
    )
    text = text.replace("tl.zeros((B, H)", f"tl.zeros(({rows}, H)").replace("out_ptr + rows * H", "out_ptr + more * H")
    types = TYPES | dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), "*fp8e5:16")
    function = to_gpu(text, types, {"B": 64, "H": 64}, num_stages=2)
    assert any(isinstance(op, Wgmma) and op.a.type.elem.bits == 8 for op in function.walk())
    assert any(isinstance(op, If) for op in function.walk()) == turned


IN_A_BRANCH = lines("p = tl.exp2(scores)", "if i > 64:", "    p = tl.exp2(scores + tl.load(count_ptr + i))")


def test_a_branch_between_the_products_may_make_the_last_one_depend_on_the_first(to_gpu) -> None:
    ops = chain(to_gpu, between=IN_A_BRANCH)
    (loop,) = loops_of_products(ops)
    assert len([op for op in ops if isinstance(op, Wgmma)]) == 4
    first, _ = (op for op in loop.body.ops if isinstance(op, Wgmma))
    waits = [op for op in loop.body.ops if isinstance(op, Await) and op.x is first.result]
    (branch,) = [op for op in loop.body.ops if isinstance(op, If)]
    assert loop.body.ops.index(waits[0]) < loop.body.ops.index(branch)
    assert waits[0].result in branch.reads and first.result not in branch.reads


@pytest.mark.parametrize("order", ["most, sums", "sums, most"])
def test_what_a_loop_carries_beside_the_sums_may_stand_before_them(to_gpu, order: str) -> None:
    """Attention carries its running maximum, too: the sums are not always the first."""
    first, second = ("    most = tl.full((B,), -1e30, tl.float32)\n", "    sums = tl.zeros((B, H), tl.float32)\n")
    text = source(between=lines("most = tl.maximum(most, tl.max(scores, 1))", "p = tl.exp2(scores - most[:, None])"))
    text = text.replace(second, first + second if order == "most, sums" else second + first)
    text += "    tl.store(count_ptr + tl.arange(0, B), most.to(tl.int32))\n"
    ops = list(to_gpu(text, TYPES, {"B": 64, "H": 64}, num_stages=2).walk())
    (loop,) = loops_of_products(ops)
    products = [op for op in loop.body.ops if isinstance(op, Wgmma)]
    assert len(products) == 2
    places = [place for place, value in enumerate(loop.body.args[1:]) if value is products[1].acc]
    assert places == [order.split(", ").index("sums")]
