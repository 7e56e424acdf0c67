"""Rings of one slot, for tiles of which no two fit, on the simulator: copies and products take turns."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from deuteron.compiler.gpu import pipeline
from deuteron.compiler.gpu.asynchronous import Roles
from deuteron.compiler.gpu.attempts import AttemptLimits

SIZES = {"K": "i32:16", "s": "i32:16"}


@pytest.mark.parametrize(
    ("target", "warps", "depth"),
    [("cuda:80", 4, 96), ("cuda:90a", 4, 128), ("cuda:90a", 4, 0), ("cuda:90a", 2, 128), ("cuda:120", 4, 0)],
)
def test_loops_that_follow_each_other_and_come_round(
    from_text, run_function, ring_kernel, monkeypatch, target: str, warps: int, depth: int
) -> None:
    """Two warps of sm_90 are no warp group: they wait for the copy engine themselves."""
    monkeypatch.setattr(pipeline, "AttemptLimits", partial(AttemptLimits, slots=1))
    signature = {**dict.fromkeys(("a", "b", "c"), "*fp16:16"), "d": "*fp32:16", **SIZES, "n": "i32"}
    made = from_text(ring_kernel("in_a_loop"), signature, warps=warps)
    function = made.gpu(target)
    assert function.num_slots == 1
    assert any(isinstance(op, Roles) for op in function.walk()) == (target == "cuda:90a" and warps == 4)
    rng = np.random.default_rng(depth)
    a, b = (rng.integers(-3, 4, (rows, 192)).astype(np.float16) for rows in (64, max(depth, 1)))
    wanted = a[:, :depth].astype(np.float64) @ b[:depth, :64].astype(np.float64)
    c, d = np.full((128, 192), 77, np.float16), np.full((2, 64), 77, np.float32)
    run_function(made.tile(), (1,), [a, b, c, d, depth, 192, 2], warps, target)
    np.testing.assert_array_equal(c[:, :64], np.tile(wanted, (2, 1)))
    np.testing.assert_array_equal(d, np.tile(wanted.sum(0), (2, 1)))
