"""Tensor core operands through shared memory: bank conflicts counted bank by bank, on both sides."""

from __future__ import annotations

import pytest

from deuteron.compiler.gpu.layouts.operands import OperandPlan, plan_operand
from deuteron.compiler.layout import coalesced, dot_operand, mma_accumulator


def _xor(bases: tuple[int, ...], index: int) -> int:
    value = 0
    for bit, basis in enumerate(bases):
        if index >> bit & 1:
            value ^= basis
    return value


def _cycles(starts: list[int], size: int) -> int:
    """Cycles that the banks need for lanes that are served together: a bank gives one 4-byte word a cycle."""
    words = {word for start in starts for word in range(start // 4, (start + size - 1) // 4 + 1)}
    banks = [word % 32 for word in words]
    return max(banks.count(bank) for bank in set(banks))


def _write_conflicts(plan: OperandPlan, warp: int) -> int:
    size, worst = plan.write.vector * plan.write.element_bytes, 0
    together = min(32, 128 // max(4, size))
    for constant in plan.write.offsets:
        starts = [_xor(plan.write.lane, lane) ^ _xor(plan.write.warp, warp) ^ constant for lane in range(32)]
        for first in range(0, 32, together):
            worst = max(worst, _cycles(starts[first : first + together], size) - 1)
    return worst


def _read_conflicts(plan: OperandPlan, warp: int) -> int:
    """ldmatrix reads a matrix at a time: eight rows of 16 bytes, at the addresses of eight lanes."""
    worst = 0
    for constant in plan.read.offsets:
        rows = [_xor(plan.read.lane, lane) ^ _xor(plan.read.warp, warp) ^ constant for lane in range(32)]
        for matrix in range(plan.read.matrices):
            worst = max(worst, _cycles(rows[8 * matrix : 8 * matrix + 8], 16) - 1)
    return worst


@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("shape", [(64, 64), (128, 32), (32, 128), (64, 16), (16, 64), (256, 64)])
def test_half_operands_have_no_bank_conflicts(shape, order, operand) -> None:
    source = coalesced(shape, 4, 8, order)
    result = dot_operand(shape, operand, (2, 2), 16)
    plan = plan_operand(source, result, 16)
    assert plan is not None
    assert plan.write.vector == 8
    assert plan.bytes == shape[0] * shape[1] * 2
    for warp in range(4):
        assert _write_conflicts(plan, warp) == 0
        assert _read_conflicts(plan, warp) == 0


@pytest.mark.parametrize("bits, k", [(32, 64), (8, 64)])
def test_rows_along_k_of_other_sizes_have_none_either(bits, k) -> None:
    source = coalesced((64, k), 4, 128 // bits)
    plan = plan_operand(source, dot_operand((64, k), 0, (4, 1), bits), bits)
    assert plan is not None
    assert not plan.read.transposed
    for warp in range(4):
        assert _write_conflicts(plan, warp) == _read_conflicts(plan, warp) == 0


def test_a_result_of_one_product_becomes_an_operand_of_the_next() -> None:
    """Accumulators hold pairs along rows: rows are swizzled so that ldmatrix still has no conflict."""
    plan = plan_operand(mma_accumulator((64, 64), (2, 2)), dot_operand((64, 64), 0, (2, 2), 16), 16)
    assert plan is not None
    assert all(_read_conflicts(plan, warp) == 0 for warp in range(4))
    assert all(_write_conflicts(plan, warp) == 0 for warp in range(4))


def test_short_rows_and_tiles_of_other_ranks_are_left_to_plain_conversions() -> None:
    assert plan_operand(coalesced((64,), 1), coalesced((64,), 1, 2), 16) is None
    assert plan_operand(coalesced((64, 4), 4), coalesced((64, 4), 4, 1, (0, 1)), 16) is None
