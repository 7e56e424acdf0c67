"""Tensor core fragments against the index formulas printed in the PTX ISA.

The formulas below follow the tables of "Matrix Fragments for mma.m8n8k4, m16n8k4/k8/k16/k32" and of wgmma.mma_async,
with groupID = lane >> 2 and threadID_in_group = lane % 4, and do not use the library.
"""

import itertools

import pytest

from deuteron.compiler.layout import (
    LayoutError,
    bank_conflicts,
    dot_operand,
    double_accumulator,
    double_operand,
    mma_accumulator,
    plan_shared_access,
    shared_tensor_core,
    wgmma_accumulator,
    wgmma_warps,
)

LANES = range(32)


def accumulator(i, lane):
    row = lane >> 2 if i < 2 else (lane >> 2) + 8
    return row, (lane % 4) * 2 + (i & 1)


def a_16_bit(i, lane):
    row = lane >> 2 if i in (0, 1, 4, 5) else (lane >> 2) + 8
    col = (lane % 4) * 2 + (i & 1) + (8 if i >= 4 else 0)
    return row, col


def b_16_bit(i, lane):
    return (lane % 4) * 2 + (i & 1) + (8 if i >= 2 else 0), lane >> 2


def a_tf32(i, lane):
    return (lane >> 2) + (8 if i in (1, 3) else 0), lane % 4 + (4 if i >= 2 else 0)


def b_tf32(i, lane):
    return lane % 4 + (4 if i == 1 else 0), lane >> 2


def a_8_bit(i, lane):
    row = lane >> 2 if 0 <= i < 4 or 8 <= i < 12 else (lane >> 2) + 8
    return row, (lane % 4) * 4 + (i & 3) + (16 if i >= 8 else 0)


def b_8_bit(i, lane):
    return (lane % 4) * 4 + (i & 3) + (16 if i >= 4 else 0), lane >> 2


def a_f64(i, lane, rows):
    step, below = divmod(i, rows // 8)
    return (lane >> 2) + 8 * below, lane % 4 + 4 * step


def b_f64(i, lane):
    return lane % 4 + 4 * i, lane >> 2


def wgmma_d(i, thread):
    """Thread of the warp group, i-th of N/2 registers: the table of D fragments of wgmma m64nNk16."""
    row = 16 * (thread // 32) + (thread % 32) // 4 + 8 * ((i // 2) % 2)
    return row, 8 * (i // 4) + 2 * (thread % 4) + i % 2


OPERANDS = [
    (0, 16, (16, 16), a_16_bit),
    (1, 16, (16, 8), b_16_bit),
    (0, 32, (16, 8), a_tf32),
    (1, 32, (8, 8), b_tf32),
    (0, 8, (16, 32), a_8_bit),
    (1, 8, (32, 8), b_8_bit),
]


@pytest.mark.parametrize(("operand", "bits", "tile", "formula"), OPERANDS)
def test_one_operand_fragment(operand, bits, tile, formula):
    layout = dot_operand(tile, operand, (1, 1), bits)
    assert layout.registers * 32 == tile[0] * tile[1]
    for lane, i in itertools.product(LANES, range(layout.registers)):
        assert layout.apply(i, lane) == formula(i, lane)


@pytest.mark.parametrize(("operand", "bits", "tile", "formula"), OPERANDS)
def test_fragments_repeat_along_k_then_along_the_other_axis(operand, bits, tile, formula):
    """2 x 2 warps; the tile holds 2 instructions along K and 2 per warp along M or N."""
    k_axis = 1 - operand
    shape = [4 * tile[0], 4 * tile[1]]
    shape[k_axis] = 2 * tile[k_axis]
    layout = dot_operand(shape, operand, (2, 2), bits)
    per_fragment = tile[0] * tile[1] // 32
    assert layout.registers == 4 * per_fragment
    for warp, lane, register in itertools.product(range(4), LANES, range(layout.registers)):
        fragment, i = divmod(register, per_fragment)
        step_k, step_outer = fragment % 2, fragment // 2
        own = (warp % 2, warp // 2)[operand]
        base = formula(i, lane)
        expected = [base[0], base[1]]
        expected[k_axis] += step_k * tile[k_axis]
        expected[operand] += (own + 2 * step_outer) * tile[operand]
        assert layout.apply(register, lane, warp) == tuple(expected)


def test_accumulator_of_several_warps_and_instructions():
    layout = mma_accumulator((64, 32), (2, 2))
    assert layout.registers == 16
    for warp, lane, register in itertools.product(range(4), LANES, range(16)):
        instruction, i = divmod(register, 4)
        row, col = accumulator(i, lane)
        along_n, along_m = instruction % 2, instruction // 2
        row += 16 * (warp % 2) + 32 * along_m
        col += 8 * (warp // 2) + 16 * along_n
        assert layout.apply(register, lane, warp) == (row, col)


def test_accumulator_and_operands_agree_on_rows_and_columns():
    warps = (4, 2)
    accumulated = mma_accumulator((128, 64), warps)
    a = dot_operand((128, 32), 0, warps, 16)
    b = dot_operand((32, 64), 1, warps, 16)
    for warp in range(8):
        rows = {accumulated.apply(r, lane, warp)[0] for r in range(64) for lane in LANES}
        columns = {accumulated.apply(r, lane, warp)[1] for r in range(64) for lane in LANES}
        assert rows == {a.apply(r, n, warp)[0] for r in range(a.registers) for n in LANES}
        assert columns == {b.apply(r, n, warp)[1] for r in range(b.registers) for n in LANES}
        assert {a.apply(r, n, warp)[1] for r in range(a.registers) for n in LANES} == set(range(32))


def exchanged(x, size):
    """``x`` with its bits of 2 and 4 exchanged, along an axis that has both."""
    return x & ~6 | (x & 2) << 1 | (x & 4) >> 1 if size >= 8 else x


@pytest.mark.parametrize("rows", [8, 16])
@pytest.mark.parametrize("k", [4, 8, 16])
def test_one_fragment_of_f64(rows, k):
    """Those of PTX, with rows, columns and k exchanged alike: the sum over k is the same."""
    layouts = double_operand((rows, k), 0, (1, 1), rows), double_operand((k, 8), 1, (1, 1), rows)
    d = double_accumulator((rows, 8), (1, 1), rows)
    assert [layout.registers for layout in (*layouts, d)] == [rows * k // 32, k // 4, rows // 4]
    formulas = (lambda i, lane: a_f64(i, lane, rows)), b_f64, accumulator
    for layout, formula in zip((*layouts, d), formulas, strict=True):
        for lane, i in itertools.product(LANES, range(layout.registers)):
            place = zip(formula(i, lane), layout.shape, strict=True)
            assert layout.apply(i, lane) == tuple(exchanged(x, size) for x, size in place)


@pytest.mark.parametrize("rows", [8, 16])
def test_fragments_of_f64_repeat_along_k_then_along_the_other_axis(rows):
    """2 x 2 warps; 2 instructions of 16 along K, 2 per warp along M and N."""
    a = double_operand((4 * rows, 32), 0, (2, 2), rows)
    b = double_operand((32, 32), 1, (2, 2), rows)
    d = double_accumulator((4 * rows, 32), (2, 2), rows)
    first, of_a = double_operand((rows, 16), 0, (1, 1), rows), rows // 2
    for warp, lane, register in itertools.product(range(4), LANES, range(a.registers)):
        fragment, i = divmod(register, of_a)
        row, k = first.apply(i, lane)
        assert a.apply(register, lane, warp) == (
            row + rows * (warp % 2) + 2 * rows * (fragment // 2),
            k + 16 * (fragment % 2),
        )
    second = double_operand((16, 8), 1, (1, 1), rows)
    for warp, lane, register in itertools.product(range(4), LANES, range(b.registers)):
        fragment, i = divmod(register, 4)
        k, column = second.apply(i, lane)
        assert b.apply(register, lane, warp) == (
            k + 16 * (fragment % 2),
            column + 8 * (warp // 2) + 16 * (fragment // 2),
        )
    one = double_accumulator((rows, 8), (1, 1), rows)
    for warp, lane, register in itertools.product(range(4), LANES, range(d.registers)):
        instruction, i = divmod(register, rows // 4)
        row, column = one.apply(i, lane)
        row += rows * (warp % 2) + 2 * rows * (instruction // 2)
        assert d.apply(register, lane, warp) == (row, column + 8 * (warp // 2) + 16 * (instruction % 2))


@pytest.mark.parametrize("rows", [8, 16])
@pytest.mark.parametrize("k", [16, 32])
@pytest.mark.parametrize("fast", [0, 1])
def test_fragments_of_f64_are_read_without_bank_conflicts(rows, k, fast):
    """In rows of 128 bytes as the copy engine writes them, along K and along the other axis."""
    for operand, shape in enumerate(((64, k), (k, 64))):
        shared = shared_tensor_core(shape, 64, 128, (fast, 1 - fast))
        layout = double_operand(shape, operand, (2, 2), rows)
        assert bank_conflicts(plan_shared_access(layout, shared, 64)) == 0


def test_batch_dimension_takes_warps_and_registers_last():
    layout = mma_accumulator((4, 16, 8), (2, 1, 1))
    assert layout.warp == ((1, 0, 0),)
    assert layout.register[-1] == (2, 0, 0)
    operand = dot_operand((4, 16, 16), 0, (2, 1, 1), 16)
    assert operand.warp == ((1, 0, 0),)
    assert operand.register[-1] == (2, 0, 0)


@pytest.mark.parametrize("n", [8, 32, 256])
def test_one_wgmma_accumulator(n):
    layout = wgmma_accumulator((64, n), 4)
    assert layout.registers == n // 2
    for thread, register in itertools.product(range(128), range(n // 2)):
        assert layout.apply(register, thread % 32, thread // 32) == wgmma_d(register, thread)


def test_wgmma_groups_go_along_m_then_n():
    assert wgmma_warps((128, 256), 8) == (8, 1)
    assert wgmma_warps((64, 256), 8) == (4, 2)
    layout = wgmma_accumulator((64, 256), 8)
    for thread, register in itertools.product(range(256), range(64)):
        row, col = wgmma_d(register, thread % 128)
        expected = row, col + 128 * (thread // 128)
        assert layout.apply(register, thread % 32, thread // 32) == expected


def test_wgmma_repeats_instructions_along_n_then_m():
    layout = wgmma_accumulator((256, 256), (8, 1), instruction_n=128)
    for thread, register in itertools.product(range(0, 256, 7), range(256)):
        instruction, i = divmod(register, 64)
        row, col = wgmma_d(i, thread % 128)
        row += 64 * (thread // 128) + 128 * (instruction // 2)
        col += 128 * (instruction % 2)
        assert layout.apply(register, thread % 32, thread // 32) == (row, col)


def test_a_of_wgmma_from_registers_is_the_mma_operand():
    """PTX ISA, wgmma register fragment of A, m64k16: row 16 * warp + lane/4 (+8), columns as mma.m16n8k16."""
    layout = dot_operand((64, 16), 0, (4, 1), 16)
    for warp, lane, i in itertools.product(range(4), LANES, range(8)):
        row, col = a_16_bit(i, lane)
        assert layout.apply(i, lane, warp) == (16 * warp + row, col)


def test_more_warps_than_rows_hold_copies():
    layout = mma_accumulator((16, 32), (4, 1))
    assert layout.free_bits("warp") == 0b11
    assert layout.is_surjective


@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (4, 8), (8, 2), (16, 4), (32, 2), (2, 4)])
def test_fragments_of_few_rows_or_columns_are_those_of_the_instruction_modulo_the_tile(rows, columns):
    """Two instructions along K. Of fewer than 16 rows there are none from the eighth on, nor registers for them."""
    whole = [i for i in range(4) if rows >= 16 or i < 2]
    made = mma_accumulator((rows, columns), (1, 1))
    for lane, (number, i) in itertools.product(LANES, enumerate(whole)):
        row, col = accumulator(i, lane)
        assert made.apply(number, lane) == (row % rows, col % columns)
    a, b = dot_operand((rows, 32), 0, (1, 1), 16), dot_operand((32, columns), 1, (1, 1), 16)
    of_a = [i for i in range(8) if rows >= 16 or i in (0, 1, 4, 5)]
    for lane, step in itertools.product(LANES, range(2)):
        for number, i in enumerate(of_a):
            row, k = a_16_bit(i, lane)
            assert a.apply(step * len(of_a) + number, lane) == (row % rows, 16 * step + k)
        for i in range(4):
            k, col = b_16_bit(i, lane)
            assert b.apply(step * 4 + i, lane) == (16 * step + k, col % columns)


def test_tiles_that_no_instruction_fits_are_refused():
    with pytest.raises(LayoutError, match="1x2"):
        mma_accumulator((16, 1), (1, 1))
    with pytest.raises(LayoutError, match="1x16"):
        dot_operand((16, 8), 0, (1, 1), 16)
    with pytest.raises(LayoutError, match="64-bit"):
        dot_operand((64, 64), 0, (1, 1), 64)
    with pytest.raises(LayoutError, match="16x4"):
        double_operand((8, 16), 0, (1, 1), 16)
    with pytest.raises(LayoutError, match="4x8"):
        double_operand((2, 8), 1, (1, 1), 8)
    with pytest.raises(LayoutError, match="8x8"):
        double_accumulator((4, 8), (1, 1), 8)
    with pytest.raises(LayoutError, match="rank"):
        mma_accumulator((64, 64), (4,))
    with pytest.raises(LayoutError, match="warp group"):
        wgmma_accumulator((64, 64), 2)
    with pytest.raises(LayoutError, match="multiple of 4"):
        wgmma_accumulator((64, 64), (2, 2))
    with pytest.raises(LayoutError, match="n512"):
        wgmma_accumulator((64, 512), 4, instruction_n=512)
