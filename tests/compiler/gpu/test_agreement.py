"""Threads take the same way whatever each of them reads while other programs write."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.gpu.ops import Agree
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target
from deuteron.compiler.targets.nvptx import lower_to_llvm
from simulator import simulate
from simulator.memory import SimulatedMemory

#: What decides, how it is read, and a way on either side that has barriers.
TURN = """
def turn(flags, out, N: tl.constexpr):
    {read}
    {control}
        sums = tl.cumsum(tl.arange(0, N), 0)
        tl.store(out + tl.arange(0, N), sums)
    tl.store(out + N + tl.arange(0, N), tl.cumsum(tl.arange(0, N), 0))
"""
SCALAR = "flag = tl.load(flags, volatile=True).to(tl.int32)"
TILE = "flag = tl.max(tl.load(flags + tl.arange(0, 2), volatile=True), 0).to(tl.int32)"
READS = {"a scalar": SCALAR, "a tile": TILE, "past caches": 'flag = tl.load(flags, cache_modifier=".cv").to(tl.int32)'}
BRANCH = "if flag % 2 == 0:"


def _agreements(function) -> int:
    return sum(isinstance(op, Agree) for op in function.walk())


@pytest.fixture
def unsteady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every load of global memory finds one more than the one before it."""
    load = SimulatedMemory.load

    def changing(self, addresses, dtype, count, align, active, threads):
        found = load(self, addresses, dtype, count, align, active, threads)
        if self.what == "global memory":
            self.bytes[np.unique(addresses[active]).astype(np.int64)] += 1
        return found

    monkeypatch.setattr(SimulatedMemory, "load", changing)


@pytest.mark.usefixtures("unsteady")
@pytest.mark.parametrize("type", ["i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("read", READS)
def test_all_threads_go_where_one_goes(to_gpu, type: str, read: str) -> None:
    function = to_gpu(
        TURN.format(read=READS[read], control=BRANCH), {"flags": f"*{type}:16", "out": "*i32:16"}, {"N": 256}
    )
    assert _agreements(function) == 1
    program = lower_to_llvm(function, Target.parse("cuda:90a"), Schedule(num_warps=4))
    flags, out = np.zeros(16, type.replace("i", "int")), np.full(512, -1, np.int32)
    simulate(program.llvm, (1,), [flags, out], 4, program.shared_bytes)
    sums = np.cumsum(np.arange(256))
    assert (out[:256] == -1).all() or (out[:256] == sums).all()
    np.testing.assert_array_equal(out[256:], sums)


@pytest.mark.parametrize("control", [BRANCH, "for _ in range(flag):", "for _ in range(0, N, flag):", "while flag > 2:"])
def test_branches_and_loops_are_agreed_on(to_gpu, control: str) -> None:
    types = {"flags": "*fp16:16", "out": "*i32:16"}
    assert _agreements(to_gpu(TURN.format(read=SCALAR, control=control), types, {"N": 256})) == 1


def test_what_nobody_changes_or_nothing_depends_on_is_read_by_each(to_gpu) -> None:
    plain = TURN.format(read="flag = tl.load(flags)", control="if flag % 2 == 0:")
    types = {"flags": "*i32:16", "out": "*i32:16"}
    assert _agreements(to_gpu(plain, types, {"N": 256})) == 0
    assert _agreements(to_gpu(TURN.format(read=SCALAR, control="if N > 1:"), types, {"N": 256})) == 0
    assert _agreements(to_gpu(TURN.format(read=SCALAR, control="if flag > 1:"), types, {"N": 256}, 1)) == 0
    changed = plain.replace("tl.load(flags)", "tl.load(flags)\n    tl.store(flags + 1, 1)")
    assert _agreements(to_gpu(changed, types, {"N": 256})) == 1
    distributed = "flag = tl.load(flags + tl.arange(0, 1024), volatile=True).to(tl.int32)\n    flag = tl.max(flag, 0)"
    assert _agreements(to_gpu(TURN.format(read=distributed, control="if flag > 1:"), types, {"N": 256})) == 0
