"""Two groups of warps in one rotated loop: turns at the tensor cores, and waits that stay behind the exponents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Await, PassTurn, Receive, Roles, TakeTurn, Wgmma
from deuteron.compiler.gpu.memory.scratch import GpuFunction
from deuteron.compiler.ir.core import Op
from deuteron.compiler.target import Target
from deuteron.compiler.targets.nvptx import lower_to_llvm
from deuteron.compiler.tile.control import For
from simulator.values import SimulationError

#: As attention has it, without the division; a program for each of the rows' tiles of each head.
CHAIN = """
def chain(q_ptr, k_ptr, v_ptr, out_ptr, N, M: tl.constexpr, B: tl.constexpr, H: tl.constexpr):
    program = tl.program_id(0)
    m, n, h = tl.arange(0, M)[:, None], tl.arange(0, B)[:, None], tl.arange(0, H)[None, :]
    q = tl.load(q_ptr + (program * M + m) * H + h)
    sums = tl.zeros((M, H), tl.float32)
    peak = tl.full((M,), -1e30, tl.float32)
    for i in range(0, N, B):
        k = tl.load(k_ptr + (i + n) * H + h)
        v = tl.load(v_ptr + (i + n) * H + h)
        scores = tl.dot(q, tl.trans(k))
        above = tl.maximum(peak, tl.max(scores, 1))
        p = tl.exp2(scores - above[:, None])
        sums = sums * tl.exp2(peak - above)[:, None]
        {more}
        sums = tl.dot(p.to(tl.float16), v, sums)
        peak = above
    tl.store(out_ptr + (program * M + m) * H + h, sums)
"""
TYPES = {**dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), "*fp16:16"), "out_ptr": "*fp32:16", "N": "i32:16"}


def source(more: str = "pass") -> str:
    return CHAIN.format(more=more)


def sizes(head: int, block: int = 128) -> dict[str, object]:
    return {"M": 128, "B": block, "H": head}


def wanted_of(q: np.ndarray, k: np.ndarray, v: np.ndarray, n: int) -> np.ndarray:
    """In double precision, with the largest score of all keys taken off."""
    scores = q.astype(np.float64) @ k[:n].astype(np.float64).T
    return np.exp2(scores - scores.max(1, keepdims=True)) @ v[:n] if n else np.zeros(q.shape)


def bodies(function: GpuFunction) -> list[list[Op]]:
    """Those of loops with products."""
    return [o.body.ops for o in function.ops_of(For) if any(isinstance(p, Wgmma) for p in o.body.ops)]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("head", "by_turns"), [(128, True), (64, False)])
def test_results_are_right_however_often_the_loop_comes_round(
    from_text: Callable[..., Any], simulated: Callable[..., Any], head: int, by_turns: bool, persistent: bool
) -> None:
    made = from_text(source(), TYPES, sizes(head), 8, persistent=persistent, num_stages=2)
    (body,) = bodies(made.gpu())
    assert any(isinstance(op, TakeTurn) for op in body) == by_turns
    rng = np.random.default_rng(head)
    programs = 3
    q = rng.standard_normal((programs * 128, head)).astype(np.float16)
    k, v = (rng.standard_normal((384, head)).astype(np.float16) for _ in range(2))
    for n in (0, 128, 256, 384):
        out = np.full(q.shape, 77, np.float32)
        simulated(made, (programs,), [q, k, v, out, n])
        np.testing.assert_allclose(out, wanted_of(q, k, v, n), rtol=0, atol=4e-2)


def test_a_group_takes_its_turn_before_both_products_and_passes_it_behind_them(from_text: Callable[..., Any]) -> None:
    function = from_text(source(), TYPES, sizes(128), 8, num_stages=2).gpu()
    (body,) = bodies(function)
    order = [type(op) for op in body if isinstance(op, TakeTurn | PassTurn | Wgmma | Await)]
    assert order == [TakeTurn, Wgmma, Wgmma, PassTurn, Await, Await]
    (roles,) = function.ops_of(Roles)
    turns = [op for op in roles.consumer.ops if isinstance(op, TakeTurn | PassTurn)]
    assert [(type(op), op.group) for op in turns] == [(PassTurn, 1), (TakeTurn, 0)]


def test_short_products_keep_their_wait_behind_the_exponents(from_text: Callable[..., Any]) -> None:
    function = from_text(source(), TYPES, sizes(64), 8, num_stages=2).gpu()
    (body,) = bodies(function)
    kept = body[body.index([op for op in body if isinstance(op, Await)][1]) - 1]
    received = [op for op in body if isinstance(op, Receive)]
    assert kept is received[-1] and [op.pipe for op in received].count(kept.pipe) == 2
    assert not function.ops_of(TakeTurn) and not function.ops_of(PassTurn)


@pytest.mark.parametrize(
    ("warps", "constexprs", "more", "why"),
    [
        (4, {"M": 64, "B": 64, "H": 128}, "pass", "there is one group"),
        (8, sizes(128), "tl.debug_barrier()", "the groups meet in the loop"),
        (8, sizes(128), "p += tl.sum(p, 0)[None, :]", "a sum of both groups' rows goes through shared memory"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_other_loops_have_no_turns(
    from_text: Callable[..., Any], warps: int, constexprs: dict[str, object], more: str, why: str
) -> None:
    function = from_text(source(more), TYPES, constexprs, warps, num_stages=2).gpu()
    assert bodies(function)
    for body in bodies(function):
        received = [op.pipe for op in body if isinstance(op, Receive)]
        assert len(received) == len(set(received)), why
    assert not function.ops_of(TakeTurn) and not function.ops_of(PassTurn), why


@pytest.mark.parametrize("mistake", ["no turn is passed", "nobody has the first turn", "the second group begins"])
def test_a_turn_that_nobody_passes_is_a_deadlock(
    from_text: Callable[..., Any], simulated: Callable[..., Any], mistake: str
) -> None:
    """So that the tests above would see it."""
    made = from_text(source(), TYPES, sizes(128), 8, num_stages=2)
    function = made.gpu()
    (roles,) = function.ops_of(Roles)
    (body,) = bodies(function)
    match mistake:
        case "no turn is passed":
            body[:] = [op for op in body if not isinstance(op, PassTurn)]
        case "nobody has the first turn":
            roles.consumer.ops = [op for op in roles.consumer.ops if not isinstance(op, PassTurn)]
        case _:
            (first,) = [op for op in roles.consumer.ops if isinstance(op, PassTurn)]
            first.group = 0
    program = lower_to_llvm(function, Target.parse("cuda:90a"), made.schedule)
    q, k, v = (np.zeros((384, 128), np.float16) for _ in range(3))
    with pytest.raises(SimulationError, match=r"barrier 1[45]"):
        simulated(program, (1,), [q[:128], k, v, np.zeros((128, 128), np.float32), 384])
