"""Shared memory layouts against address arithmetic, access plans and conflict counts against brute force."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.compiler.layout import (
    LayoutError,
    bank_conflicts,
    blocked,
    coalesced,
    dot_operand,
    plan_shared_access,
    shared_linear,
    shared_swizzled,
    shared_tensor_core,
    shift_terms,
)
from deuteron.compiler.layout.access import SharedAccess

quick = settings(deadline=None, max_examples=60)


def xor_of(bases, index):
    value = 0
    for bit, basis in enumerate(bases):
        if index >> bit & 1:
            value ^= basis
    return value


def count_conflicts(access, warp, index):
    """Extra cycles of one access: per group of lanes, the most distinct words in one bank, less one."""
    group = min(32, 128 // max(4, access.vector_bytes))
    extra = 0
    for start in range(0, 32, group):
        words = set()
        for lane in range(start, start + group):
            first = xor_of(access.lane, lane) ^ xor_of(access.warp, warp) ^ access.offsets[index]
            words |= {byte // 4 for byte in range(first, first + access.vector_bytes)}
        banks = [word % 32 for word in words]
        extra += max(banks.count(bank) for bank in banks) - 1
    return extra


def test_unswizzled_offsets_follow_the_order():
    row_major = shared_linear((4, 8))
    column_major = shared_linear((4, 8), (0, 1))
    for row, column in itertools.product(range(4), range(8)):
        assert row_major.offset_of((row, column)) == row * 8 + column
        assert column_major.offset_of((row, column)) == column * 4 + row
        assert row_major.apply(row * 8 + column) == (row, column)
    assert shared_linear((2, 4, 8), (1, 2, 0)).offset_of((1, 2, 3)) == 1 * 32 + 3 * 4 + 2


@pytest.mark.parametrize(("vector", "per_phase", "max_phase"), [(8, 1, 8), (4, 2, 4), (1, 1, 16), (8, 4, 2)])
def test_xor_swizzle(vector, per_phase, max_phase):
    layout = shared_swizzled((32, 64), vector=vector, per_phase=per_phase, max_phase=max_phase)
    for row, column in itertools.product(range(32), range(64)):
        phase = (row // per_phase) % max_phase
        swizzled = ((column // vector) ^ phase) * vector + column % vector
        assert layout.offset_of((row, column)) == row * 64 + swizzled


@pytest.mark.parametrize("span", [32, 64, 128])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_tensor_core_swizzle_is_the_address_xor(span, bits):
    """CUDA driver API, CU_TENSOR_MAP_SWIZZLE_32B/64B/128B: 16-byte chunks XOR the 128-byte line number."""
    element_bytes = bits // 8
    rows, columns = 64, 256
    panel = span // element_bytes
    layout = shared_tensor_core((rows, columns), bits, span)
    for row, column in itertools.product(range(rows), range(columns)):
        address = (column // panel) * rows * span + row * span + (column % panel) * element_bytes
        line = address // 128
        address ^= (line % (span // 16)) * 16
        assert layout.offset_of((row, column)) * element_bytes == address


def test_transposed_and_unswizzled_tensor_core_layouts():
    transposed = shared_tensor_core((64, 32), 16, 128, order=(0, 1))
    assert transposed == shared_tensor_core((32, 64), 16, 128).permute((1, 0))
    assert shared_tensor_core((64, 32), 16, 0) == shared_linear((64, 32))
    assert shared_linear((4, 8)).reshape((2, 16)).offset_of((1, 3)) == 19


def test_access_plan_reaches_every_element(layouts):
    @quick
    @given(layouts(), st.data(), st.sampled_from([1, 8, 16, 32, 64]))
    def law(layout, data, bits):
        order = tuple(data.draw(st.permutations(range(layout.rank))))
        shared = shared_linear(layout.shape, order)
        if layout.rank > 1 and layout.shape[order[0]] >= 4:
            phases = data.draw(st.sampled_from([1, 2, 4]))
            shared = shared_swizzled(layout.shape, order, vector=1, per_phase=1, max_phase=phases)
        access = plan_shared_access(layout, shared, bits)
        assert access.vector_bytes <= 16
        for lane, warp in itertools.product(range(0, 32, 5), range(layout.warps)):
            found = {}
            for index, group in enumerate(access.registers):
                start = access.offsets[index] ^ xor_of(access.lane, lane)
                start ^= xor_of(access.warp, warp)
                assert start % access.vector_bytes == 0
                for position, register in enumerate(group):
                    found[register] = start // access.element_bytes + position
            for register in range(layout.registers):
                coordinates = layout.apply(register, lane, warp)
                assert found[access.canonical[register]] == shared.offset_of(coordinates)

    law()


def test_vector_width():
    rows = coalesced((64, 64), 4, 8)
    assert plan_shared_access(rows, shared_linear((64, 64)), 16).vector == 8
    assert plan_shared_access(rows, shared_linear((64, 64)), 32).vector == 4
    assert plan_shared_access(rows, shared_linear((64, 64), (0, 1)), 16).vector == 1
    swizzled = shared_swizzled((64, 64), vector=4, per_phase=1, max_phase=8)
    assert plan_shared_access(rows, swizzled, 16).vector == 4


def test_conflict_count_is_that_of_the_hardware(layouts):
    @quick
    @given(layouts(), st.sampled_from([8, 16, 32, 64]), st.randoms(use_true_random=False))
    def law(layout, bits, random):
        access = plan_shared_access(layout, shared_linear(layout.shape), bits)
        for index in (0, len(access.offsets) - 1):
            for warp in (0, layout.warps - 1):
                assert bank_conflicts(access) == count_conflicts(access, warp, index)

    law()


def test_known_conflict_counts():
    columns = blocked((32, 32), (1, 1), (32, 1), (1, 32))
    assert bank_conflicts(plan_shared_access(columns, shared_linear((32, 32)), 32)) == 31
    swizzled = shared_swizzled((32, 32), vector=1, per_phase=1, max_phase=32)
    assert bank_conflicts(plan_shared_access(columns, swizzled, 32)) == 0
    fragment = dot_operand((64, 64), 0, (4, 1), 16)
    assert bank_conflicts(plan_shared_access(fragment, shared_linear((64, 64)), 16)) == 7
    for_tensor_cores = shared_tensor_core((64, 64), 16, 128)
    assert bank_conflicts(plan_shared_access(fragment, for_tensor_cores, 16)) == 0


def test_split_offset_separates_what_can_be_added():
    access = SharedAccess(1, 4, ((0,), (1,)), (0, 0b1100100), (0b100,), (0b1000,), (0, 1))
    assert access.thread_mask == 0b1100
    assert access.split_offset(1) == (0b100, 0b1100000)


@given(st.lists(st.integers(0, 2**12 - 1), max_size=6))
def test_shift_terms_are_the_linear_function(bases):
    terms = shift_terms(tuple(bases))
    for value in range(1 << len(bases)):
        total = 0
        for term in terms:
            part = value & term.mask
            total ^= part << term.shift if term.shift >= 0 else part >> -term.shift
        assert total == xor_of(bases, value)


def test_impossible_layouts_are_refused():
    with pytest.raises(LayoutError, match="does not fit a row"):
        shared_swizzled((8, 8), vector=8, per_phase=1, max_phase=2)
    with pytest.raises(LayoutError, match="no 48-byte"):
        shared_tensor_core((64, 64), 16, 48)
    with pytest.raises(LayoutError, match="shorter than"):
        shared_tensor_core((64, 32), 16, 128)
    with pytest.raises(LayoutError, match="order"):
        shared_linear((4, 4), (0, 0))
    with pytest.raises(LayoutError, match="differ"):
        plan_shared_access(coalesced((4, 64), 1), shared_linear((64, 4)), 16)
