"""What instructions compute where LLVM leaves it open and PTX does not."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import simulate

AMOUNTS = np.array([0, 1, 31, 32, 33, 40, 64, -1], np.int32)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("shl", [-6, -12, 0, 0, 0, 0, 0, 0]),
        ("ashr", [-6, -3, -1, -1, -1, -1, -1, -1]),
        ("lshr", [-6, 2**31 - 3, 1, 0, 0, 0, 0, 0]),
    ],
)
def test_shifts_by_the_width_or_more_shift_everything_out(text, operation, expected):
    k = text("ptr addrspace(1) %amounts", "ptr addrspace(1) %out")
    thread = k.thread()
    inside = k.op(f"icmp ult i32 {thread}, {len(AMOUNTS)}")

    def body() -> None:
        amount = k.op(f"load i32, {k.at('%amounts', thread)}, align 4")
        k.do(f"store i32 {k.i32(operation, -6, amount)}, {k.at('%out', thread)}, align 4")

    k.only(inside, "shift", body)
    out = np.zeros(len(AMOUNTS), np.int32)
    simulate(str(k), (1,), [AMOUNTS.copy(), out], num_warps=1)
    assert out.tolist() == expected
