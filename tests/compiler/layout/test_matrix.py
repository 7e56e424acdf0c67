"""ldmatrix plans on a simulated warp that follows the PTX ISA's description of the instruction."""

import itertools

import pytest

from deuteron.compiler.layout import (
    LayoutError,
    bank_conflicts,
    coalesced,
    dot_operand,
    mma_accumulator,
    permute_layout,
    plan_matrix_access,
    plan_matrix_store,
    plan_shared_access,
    shared_linear,
    shared_swizzled,
    shared_tensor_core,
    transposing,
    wgmma_accumulator,
)
from deuteron.compiler.layout.access import wavefronts


def xor_of(bases, index):
    value = 0
    for bit, basis in enumerate(bases):
        if index >> bit & 1:
            value ^= basis
    return value


def ldmatrix(memory, rows, matrices, transposed):
    """Fragments of all lanes: memory maps byte addresses to (element, byte); rows are the lanes' addresses."""
    loaded = [[] for _ in range(32)]
    for matrix in range(matrices):
        matrix_rows = []
        for j in range(8):
            start = rows[8 * matrix + j]
            assert start % 16 == 0
            matrix_rows.append([memory[start + byte] for byte in range(16)])
        for lane in range(32):
            for half in (0, 1):
                if transposed:
                    row, column = 2 * (lane % 4) + half, lane // 4
                else:
                    row, column = lane // 4, 2 * (lane % 4) + half
                loaded[lane] += matrix_rows[row][2 * column : 2 * column + 2]
    return loaded


def check(layout, shared, bits):
    """Load with the plan and compare every register; returns the plan."""
    plan = plan_matrix_access(layout, shared, bits)
    size = bits // 8
    memory = {
        offset * size + byte: (shared.map(offset), byte)
        for offset in range(1 << len(shared.flat_offset))
        for byte in range(size)
    }
    for warp in range(layout.warps):
        found = {}
        for registers, constant in zip(plan.registers, plan.offsets, strict=True):
            rows = [xor_of(plan.lane, lane) ^ xor_of(plan.warp, warp) ^ constant for lane in range(32)]
            for lane, data in enumerate(ldmatrix(memory, rows, plan.matrices, plan.transposed)):
                elements = [data[i : i + size] for i in range(0, len(data), size)]
                assert len(elements) == len(registers)
                for register, element in zip(registers, elements, strict=True):
                    assert [byte for _, byte in element] == list(range(size))
                    found[register, lane] = element[0][0]
        for register in range(layout.registers):
            for lane in range(32):
                assert found[register, lane] == layout.apply_flat(register, lane, warp)
    return plan


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(("operand", "transposed"), [(0, False), (1, True)])
def test_16_bit_operands_from_row_major_tiles(swizzle, operand, transposed):
    layout = dot_operand((64, 64), operand, (2, 2), 16)
    plan = check(layout, shared_tensor_core((64, 64), 16, swizzle), 16)
    assert (plan.transposed, plan.matrices, len(plan.offsets)) == (transposed, 4, 8)


@pytest.mark.parametrize(("operand", "transposed"), [(0, True), (1, False)])
def test_16_bit_operands_from_column_major_tiles(operand, transposed):
    layout = dot_operand((64, 64), operand, (2, 2), 16)
    plan = check(layout, shared_tensor_core((64, 64), 16, 128, order=(0, 1)), 16)
    assert plan.transposed == transposed


@pytest.mark.parametrize(("bits", "k"), [(8, 64), (32, 32)])
def test_other_widths_need_k_contiguous(bits, k):
    a = dot_operand((64, k), 0, (4, 1), bits)
    b = dot_operand((k, 64), 1, (4, 1), bits)
    assert not check(a, shared_tensor_core((64, k), bits, 64), bits).transposed
    assert not check(b, shared_tensor_core((k, 64), bits, 64, order=(0, 1)), bits).transposed
    assert plan_matrix_access(b, shared_tensor_core((k, 64), bits, 64), bits) is None


def test_accumulators_can_be_stored_as_matrices():
    layout = wgmma_accumulator((64, 64), 4)
    assert check(layout, shared_tensor_core((64, 64), 16, 128), 16).matrices == 4
    flipped = permute_layout(mma_accumulator((32, 64), (1, 2)), (1, 0))
    assert check(flipped, shared_tensor_core((64, 32), 16, 64), 16).transposed


def test_small_fragments_use_fewer_matrices():
    plan = check(dot_operand((16, 8), 1, (1, 1), 16), shared_linear((16, 8)), 16)
    assert (plan.matrices, plan.transposed) == (2, True)


def test_rows_that_do_not_start_at_16_bytes_have_no_matrix_form():
    """A swizzle of 4-byte groups leaves eight elements of row 1 together, but moves them by 4 bytes."""
    layout = dot_operand((64, 64), 0, (2, 2), 16)
    for vector, phases in ((2, 2), (4, 2)):
        shared = shared_swizzled((64, 64), vector=vector, per_phase=1, max_phase=phases)
        start = shared.offset_of((1, 0))
        assert start % 8
        assert plan_matrix_access(layout, shared, 16) is None
    whole = shared_swizzled((64, 64), vector=8, per_phase=1, max_phase=8)
    assert check(layout, whole, 16).matrices == 4


def test_other_layouts_have_no_matrix_form():
    shared = shared_linear((64, 64))
    assert plan_matrix_access(coalesced((64, 64), 4, 8), shared, 16) is None
    assert plan_matrix_access(dot_operand((64, 64), 0, (2, 2), 16), shared, 32) is None
    with pytest.raises(LayoutError, match="differ"):
        plan_matrix_access(coalesced((64, 64), 4, 8), shared_linear((64, 32)), 16)


def stmatrix(plan, warp, held):
    """What all lanes of a warp leave in memory, by byte address; ``held(register, lane)`` is an element."""
    memory = {}
    size = plan.element_bytes
    for registers, constant in zip(plan.registers, plan.offsets, strict=True):
        rows = [xor_of(plan.lane, lane) ^ xor_of(plan.warp, warp) ^ constant for lane in range(32)]
        for lane in range(32):
            data = [(held(r, lane), byte) for r in registers for byte in range(size)]
            for matrix in range(plan.matrices):
                word = data[4 * matrix : 4 * matrix + 4]
                for half in (0, 1):
                    row, column = lane // 4, 2 * (lane % 4) + half
                    if plan.transposed:
                        row, column = column, row
                    for byte in (0, 1):
                        place = rows[8 * matrix + row] + 2 * column + byte
                        assert place not in memory
                        memory[place] = word[2 * half + byte]
    return memory


@pytest.mark.parametrize("k_axis", [0, 1])
@pytest.mark.parametrize(
    ("k", "other", "warps"), [(16, 64, 4), (32, 32, 4), (64, 128, 8), (128, 128, 4), (128, 16, 8), (256, 64, 16)]
)
def test_bytes_are_transposed_on_their_way_through_registers(k, other, warps, k_axis):
    """From rows along the other axis, whatever their swizzle, into the rows along K that wgmma reads."""
    shape = (k, other) if k_axis == 0 else (other, k)
    first, *_, last = layouts = transposing(shape, k_axis, warps, 8)
    for layout in layouts:
        assert layout.is_injective and layout.is_surjective and layout.warps == warps
    for before, after in itertools.pairwise(layouts):  # no lane needs what another one has
        for lane in range(32):
            held = [{layout.apply_flat(r, lane, 0) for r in range(layout.registers)} for layout in (before, after)]
            assert held[0] == held[1]
    for swizzle in (width for width in (0, 32, 64, 128) if width <= other):
        read = check(first, shared_tensor_core(shape, 8, swizzle, order=(1 - k_axis, k_axis)), 8)
        assert read.transposed and read.matrices == min(4, first.registers // 4)
        assert swizzle < min(other, 128) or wavefronts(read.lane[:3], 16) == 1
    for swizzle in (width for width in (0, 32, 64, 128) if width <= k):
        shared = shared_tensor_core(shape, 8, swizzle, order=(k_axis, 1 - k_axis))
        write = plan_matrix_store(last, shared, 8)
        assert not write.transposed
        assert swizzle < min(k, 128) or wavefronts(write.lane[:3], 16) == 1
        memory = {}
        for warp in range(warps):
            memory |= stmatrix(write, warp, lambda register, lane, warp=warp: last.apply_flat(register, lane, warp))
        assert memory == {offset: (shared.map(offset), 0) for offset in range(k * other)}


def test_few_bytes_are_not_transposed_so():
    assert transposing((16, 32), 0, 4, 8) is None
    assert transposing((8, 512), 0, 4, 8) is None and transposing((512, 8), 0, 4, 8) is None


@pytest.mark.parametrize("k_axis", [0, 1])
@pytest.mark.parametrize(("k", "other", "warps"), [(32, 128, 8), (32, 64, 4), (64, 128, 4), (128, 32, 8)])
def test_words_are_transposed_without_bank_conflicts(k, other, warps, k_axis):
    shape = (k, other) if k_axis == 0 else (other, k)
    (layout,) = transposing(shape, k_axis, warps, 32)
    assert layout.is_injective and layout.is_surjective and layout.warps == warps
    read = plan_shared_access(layout, shared_tensor_core(shape, 32, 128, order=(1 - k_axis, k_axis)), 32)
    write = plan_shared_access(layout, shared_tensor_core(shape, 32, 128, order=(k_axis, 1 - k_axis)), 32)
    assert (read.vector, bank_conflicts(read), bank_conflicts(write)) == (4, 0, 0)


def test_fragments_are_stored_whatever_the_order_of_registers_is():
    layout = wgmma_accumulator((64, 64), 4)
    shared = shared_tensor_core((64, 64), 16, 128)
    columns = layout.flat_register[::-1] + layout.columns[len(layout.flat_register) :]
    turned = layout.with_columns(layout.shape, columns)
    assert plan_matrix_access(turned, shared, 16) is None
    plan = plan_matrix_store(turned, shared, 16)
    for warp in range(4):
        memory = stmatrix(plan, warp, lambda register, lane, warp=warp: turned.apply_flat(register, lane, warp))
        assert all((shared.map(place // 2), place % 2) == found for place, found in memory.items())
        assert len(memory) == 64 * 64 * 2 // 4


def test_what_two_threads_hold_is_not_stored_by_matrices():
    layout = dot_operand((64, 64), 0, (2, 2), 16)
    shared = shared_tensor_core((64, 64), 16, 128)
    assert plan_matrix_access(layout, shared, 16) is not None and plan_matrix_store(layout, shared, 16) is None
