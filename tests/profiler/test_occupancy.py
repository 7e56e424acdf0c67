"""Blocks on a multiprocessor, against placing them one after another, and against figures that NVIDIA documents."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deuteron.compiler.target import ARCHITECTURES, LIMITS, Target
from deuteron.profiler.occupancy import Occupancy, occupancy


def placed(arch: str, threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks that fit, by giving each warp to the part of the multiprocessor with most registers left."""
    limits = LIMITS[arch]
    left = [limits.registers // 4] * 4
    shared, warps, blocks = limits.shared_bytes, limits.warps, 0
    of_a_warp = (registers * 32 + 255) // 256 * 256
    needed = (shared_bytes + limits.reserved_bytes + limits.shared_unit - 1) // limits.shared_unit * limits.shared_unit
    while blocks < limits.blocks and shared >= needed and warps >= (threads + 31) // 32:
        trial = list(left)
        for _ in range((threads + 31) // 32):
            part = trial.index(max(trial))
            if trial[part] < of_a_warp:
                return blocks
            trial[part] -= of_a_warp
        left, shared, warps, blocks = trial, shared - needed, warps - (threads + 31) // 32, blocks + 1
    return blocks


@given(
    st.sampled_from(sorted(LIMITS)), st.integers(1, 1024), st.integers(1, 255), st.integers(0, 230_000)
)  # a kernel that uses no register does not exist
def test_as_many_as_can_be_placed(arch: str, threads: int, registers: int, shared_bytes: int) -> None:
    found = occupancy(arch, threads=threads, registers=registers, shared_bytes=shared_bytes)
    expected = placed(arch, threads, registers, shared_bytes)
    assert (0 if found is None else found.blocks) == expected
    if found is not None:
        assert found.warps == expected * ((threads + 31) // 32) <= found.most_warps


def test_documented_figures() -> None:
    """64 registers a thread are what full multiprocessors of 1024 threads allow, 32 those of 2048; a block of Hopper
    may have 227 KB; a third of 100 KB leaves room for two blocks, since each takes 1 KB more."""
    assert occupancy("75", threads=256, registers=64, shared_bytes=0) == Occupancy(4, 32, 32, "threads")
    assert occupancy("90", threads=256, registers=32, shared_bytes=0) == Occupancy(8, 64, 64, "threads")
    assert occupancy("90", threads=256, registers=33, shared_bytes=0) == Occupancy(6, 48, 64, "registers")
    assert occupancy("90", threads=384, registers=168, shared_bytes=0) == Occupancy(1, 12, 64, "registers")
    assert occupancy("90", threads=128, registers=32, shared_bytes=227 * 1024) == Occupancy(1, 4, 64, "shared memory")
    assert occupancy("90", threads=128, registers=32, shared_bytes=228 * 1024) is None
    assert occupancy("86", threads=128, registers=32, shared_bytes=100 * 1024 // 3) == Occupancy(
        2, 8, 48, "shared memory"
    )
    assert occupancy("86", threads=32, registers=16, shared_bytes=0) == Occupancy(16, 16, 48, "blocks")


def test_nothing_is_said_of_unknown_devices() -> None:
    assert occupancy("35", threads=128, registers=32, shared_bytes=0) is None


def test_every_target_has_limits_and_a_block_may_use_all_but_what_is_reserved() -> None:
    for arch in ARCHITECTURES:
        target = Target.parse(f"cuda:{arch}")
        assert occupancy(str(target.capability), threads=32, registers=32, shared_bytes=target.shared_bytes) is not None
        assert occupancy(str(target.capability), threads=32, registers=32, shared_bytes=target.shared_bytes + 1) is None
