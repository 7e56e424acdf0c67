"""What consumers do with the slots that a producer fills: from when on they read them, and until when."""

from __future__ import annotations

import pytest

from deuteron.compiler.gpu.asynchronous import Await, Receive, Release, Roles, Wgmma, slot_of
from deuteron.compiler.ir.core import Op, Value
from deuteron.compiler.tile.control import For

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
