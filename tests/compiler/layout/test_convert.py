"""Conversions on a simulated CTA: put every element's own number in place, run the plan, look where it went."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.compiler.layout import (
    Identity,
    LayoutError,
    LinearLayout,
    RegisterPermute,
    SharedMemory,
    WarpShuffle,
    bank_conflicts,
    blocked,
    coalesced,
    dot_operand,
    mma_accumulator,
    plan_conversion,
    plan_shared_access,
    remove_register_broadcast,
    share_out,
    shared_linear,
    slice_layout,
    wgmma_accumulator,
)
from deuteron.compiler.layout.shuffle import plan_shuffle
from deuteron.compiler.layout.swizzle import plan_shared_memory

quick = settings(deadline=None, max_examples=150)


def bases_xor(bases, index):
    value = 0
    for bit, basis in enumerate(bases):
        if index >> bit & 1:
            value ^= basis
    return value


def iota(layout):
    """{(warp, lane): [element number per register]}."""
    return {
        (warp, lane): [layout.apply_flat(r, lane, warp) for r in range(layout.registers)]
        for warp in range(layout.warps)
        for lane in range(layout.lanes)
    }


def exchange(steps, values, lane, warp):
    for step in steps:
        index = lane if step.dimension == "lane" else warp
        if index >> step.bit & 1:
            values = [values[i ^ step.flip] for i in range(len(values))]
    return values


def run_shuffle(plan, threads):
    units = {}
    for (warp, lane), values in threads.items():
        packed = [[values[r] for r in group] for group in plan.gather]
        for step, wanted in zip(plan.before, plan.wanted, strict=True):
            packed = [v if unit in wanted else None for unit, v in enumerate(exchange([step], packed, lane, warp))]
        units[warp, lane] = packed
    results = {}
    for warp, lane in threads:
        own = bases_xor(plan.lane, lane) ^ bases_xor(plan.warp, warp)
        received = [units[warp, own ^ step.lane_xor][step.source] for step in plan.rounds]
        received = exchange(plan.after, received, lane, warp)
        results[warp, lane] = [received[unit][slot] for unit, slot in plan.scatter]
    return results


def addresses(access, lane, warp, index):
    xor, immediate = access.split_offset(index)
    start = (bases_xor(access.lane, lane) ^ bases_xor(access.warp, warp) ^ xor) + immediate
    assert start % access.vector_bytes == 0
    return [start + i * access.element_bytes for i in range(access.vector)]


def run_shared(plan, threads):
    results = {key: {} for key in threads}
    writes = len(plan.write.offsets) // plan.rounds
    reads = len(plan.read.offsets) // plan.rounds
    assert writes * plan.rounds == len(plan.write.offsets)
    assert reads * plan.rounds == len(plan.read.offsets)
    for step in range(plan.rounds):
        memory = {}
        for (warp, lane), values in threads.items():
            for index in range(step * writes, (step + 1) * writes):
                places = addresses(plan.write, lane, warp, index)
                for place, register in zip(places, plan.write.registers[index], strict=True):
                    assert 0 <= place <= plan.bytes - plan.write.element_bytes
                    assert memory.setdefault(place, values[register]) == values[register]
        for warp, lane in threads:
            for index in range(step * reads, (step + 1) * reads):
                places = addresses(plan.read, lane, warp, index)
                for place, register in zip(places, plan.read.registers[index], strict=True):
                    results[warp, lane][register] = memory[place]
    return {key: [found[canonical] for canonical in plan.read.canonical] for key, found in results.items()}


def run(plan, threads):
    match plan:
        case Identity():
            return threads
        case RegisterPermute(indices):
            return {key: [values[i] for i in indices] for key, values in threads.items()}
        case WarpShuffle():
            return run_shuffle(plan, threads)
        case SharedMemory():
            return run_shared(plan, threads)


element_bits = st.sampled_from([1, 8, 16, 32, 64])


def test_any_layout_to_any_layout(layouts):
    @quick
    @given(layouts(), st.data(), element_bits, st.sampled_from([None, 64, 512]))
    def law(source, data, bits, limit):
        warps = len(source.flat_warp)
        result = data.draw(layouts(shape=source.shape, warps=warps))
        plan = plan_conversion(source, result, bits, limit)
        assert run(plan, iota(source)) == iota(result)

    law()


def test_shared_memory_serves_every_pair(layouts):
    @quick
    @given(layouts(), st.data(), element_bits, st.sampled_from([None, 64, 512]))
    def law(source, data, bits, limit):
        result = data.draw(layouts(shape=source.shape, warps=len(source.flat_warp)))
        plan = plan_shared_memory(source, result, bits, limit)
        assert run(plan, iota(source)) == iota(result)
        if limit is None:
            assert plan.rounds == 1
            assert plan.bytes == source.size * max(1, bits // 8)

    law()


def test_shuffles_serve_every_pair_inside_a_warp(layouts):
    served = 0

    @quick
    @given(layouts(), st.randoms(use_true_random=False), element_bits)
    def law(source, random, bits):
        nonlocal served
        # Mixing registers and lanes among themselves keeps the data in its warp.
        registers = len(source.flat_register)
        columns = [*source.flat_register, *source.flat_lane]
        for _ in range(random.choice([0, 1, 4])):
            i, j = random.randrange(len(columns)), random.randrange(len(columns))
            columns[i], columns[j] = columns[j], columns[i]
        for _ in range(random.choice([0, 0, 5])):
            i, j = random.randrange(len(columns)), random.randrange(len(columns))
            if i != j:
                columns[i] ^= columns[j]
        warp = tuple(flat ^ random.choice([0, *columns]) for flat in source.flat_warp)
        result = LinearLayout(source.shape, tuple(columns[:registers]), tuple(columns[registers:]), warp)
        plan = plan_shuffle(source, result, bits)
        if plan is not None:
            served += 1
            assert run(plan, iota(source)) == iota(result)
            # The plan does not touch the whole CTA's data where broadcasting makes it unnecessary.
            assert len(plan.rounds) <= remove_register_broadcast(result).registers
        else:
            assert not source.is_injective

    law()
    assert served > 100


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_copies_are_shared_out_in_place(bits):
    """Of 32 results that all lanes of a warp hold each lane takes one, by a tree of selects."""
    source = slice_layout(coalesced((128, 128), 4, 4), 1)
    plan = plan_conversion(source, share_out(source, 0), bits)
    assert isinstance(plan, WarpShuffle) and plan.shuffles == 0 and plan.selects == 31
    assert run(plan, iota(source)) == iota(share_out(source, 0))


def _dealt(columns):
    """A layout of 32 elements: two register bits, two lane bits, a warp bit."""
    return LinearLayout((4, 8), tuple(columns[:2]), tuple(columns[2:4]), (columns[4],))


def test_every_exchange_of_register_lane_and_warp_bits():
    source = _dealt([1, 2, 4, 8, 16])
    for columns in itertools.permutations([1, 2, 4, 8, 16]):
        for bits in (8, 32):
            result = _dealt(columns)
            assert run(plan_conversion(source, result, bits), iota(source)) == iota(result), columns


def test_every_sum_and_every_copy_of_one_bit():
    """Layouts that differ in one kind of bit only, by another bit added to it or by a broadcast."""
    plain = [1, 2, 4, 8, 16]
    source = _dealt(plain)
    for changed, other in itertools.product(range(5), repeat=2):
        columns = list(plain)
        columns[changed] = 0 if changed == other else columns[changed] ^ columns[other]
        result = _dealt(columns)
        assert run(plan_conversion(source, result, 32), iota(source)) == iota(result), columns
        if changed != other:
            assert run(plan_conversion(result, source, 32), iota(result)) == iota(source), columns


def counted_wavefronts(access):
    """Cycles of all accesses of one warp, counted bank by bank as the hardware serves them: 128 bytes at once."""
    cycles = 0
    together = max(1, min(32, 128 // max(4, access.vector_bytes)))
    for index in range(len(access.offsets)):
        starts = [addresses(access, lane, 0, index)[0] for lane in range(32)]
        for first in range(0, 32, together):
            words = {
                word
                for start in starts[first : first + together]
                for word in range(start // 4, (start + access.vector_bytes - 1) // 4 + 1)
            }
            banks = [word % 32 for word in words]
            cycles += max(banks.count(bank) for bank in set(banks))
    return cycles


def counted_cost(plan, bits):
    """A wavefront is 2, an instruction 1, a shuffle as both, a select 1 and a barrier's latency 32."""
    if isinstance(plan, SharedMemory):
        return sum(2 * counted_wavefronts(side) + len(side.offsets) for side in (plan.write, plan.read)) + 32
    lanes = [
        [bases_xor(plan.lane, lane) ^ step.lane_xor ^ bases_xor(plan.warp, warp) == lane for lane in range(32)]
        for step in plan.rounds
        for warp in range(1 << len(plan.warp))
    ]
    moving = sum(not all(stays) for stays in lanes) / (1 << len(plan.warp))
    if not plan.is_butterfly:
        moving = len(plan.rounds)
    selects = len(plan.before) * len(plan.gather) + len(plan.after) * len(plan.rounds)
    return (3 * moving + selects) * (2 if bits > 32 else 1)


def test_the_cheaper_of_shuffles_and_shared_memory_is_chosen(layouts):
    chosen = []

    @quick
    @given(st.integers(6, 11), st.randoms(use_true_random=False), st.sampled_from([8, 16, 32, 64]))
    def law(size, random, bits):
        columns = [1 << bit for bit in range(size)]
        source = LinearLayout((1 << size,), tuple(columns[5:]), tuple(columns[:5]), (0,))
        for _ in range(random.randrange(1, 8)):
            i, j = random.randrange(size), random.randrange(size)
            columns[i], columns[j] = columns[j], columns[i]
        result = LinearLayout((1 << size,), tuple(columns[5:]), tuple(columns[:5]), (0,))
        plan = plan_conversion(source, result, bits)
        shuffle = plan_shuffle(source, result, bits)
        if isinstance(plan, WarpShuffle | SharedMemory) and shuffle is not None:
            shared = plan_shared_memory(source, result, bits, None)
            costs = [counted_cost(shuffle, bits), counted_cost(shared, bits)]
            assert counted_cost(plan, bits) == min(costs)
            chosen.append(type(plan))

    law()
    assert chosen.count(WarpShuffle) > 10
    assert chosen.count(SharedMemory) > 10


def test_transposing_one_register_bit_with_a_lane_bit_shuffles_half():
    source = LinearLayout.from_bases((8, 32), register=[(1, 0), (2, 0), (4, 0)], lane=[(0, 1 << i) for i in range(5)])
    result = LinearLayout.from_bases(
        (8, 32),
        register=[(0, 1), (2, 0), (4, 0)],
        lane=[(1, 0), (0, 2), (0, 4), (0, 8), (0, 16)],
    )
    plan = plan_conversion(source, result, 32)
    assert isinstance(plan, WarpShuffle)
    assert plan.is_butterfly
    assert plan.shuffles == 4
    assert plan_conversion(source, result, 16).shuffles == 2
    assert run(plan, iota(source)) == iota(result)


def test_registers_of_one_thread_are_permuted():
    source = blocked((32, 8), (1, 8), (32, 1), (1, 1), (1, 0))
    registers = tuple(reversed(source.flat_register))
    result = LinearLayout(source.shape, registers, source.flat_lane, source.flat_warp)
    assert plan_conversion(source, source, 16) == Identity()
    assert plan_conversion(source, result, 16) == RegisterPermute((0, 4, 2, 6, 1, 5, 3, 7))
    copies = LinearLayout(source.shape, (0, *registers), source.flat_lane, source.flat_warp)
    assert isinstance(plan_conversion(source, copies, 16), RegisterPermute)


def test_gathering_a_reduction_to_all_lanes_stays_in_the_warp():
    parent = coalesced((16, 128), warps=4, vector=4)
    source = remove_register_broadcast(slice_layout(parent, 1))
    result = LinearLayout(source.shape, (4, 8), (0, 0, 0, 1, 2), (0, 0))
    plan = plan_conversion(source, result, 32)
    assert run(plan, iota(source)) == iota(result)


STANDARD = [
    (blocked((64, 64), (1, 8), (4, 8), (4, 1)), dot_operand((64, 64), 0, (2, 2), 16), 16),
    (blocked((64, 64), (1, 8), (4, 8), (4, 1)), dot_operand((64, 64), 1, (2, 2), 16), 16),
    (blocked((64, 64), (1, 4), (4, 8), (4, 1)), dot_operand((64, 64), 0, (4, 1), 32), 32),
    (blocked((64, 64), (1, 16), (8, 4), (4, 1)), dot_operand((64, 64), 1, (4, 1), 8), 8),
    (coalesced((32, 32), 1, 4), coalesced((32, 32), 1, 4, (0, 1)), 32),
    (coalesced((32, 32), 1), coalesced((32, 32), 1, 1, (0, 1)), 32),
    (coalesced((64, 64), 4, 8), coalesced((64, 64), 4, 8, (0, 1)), 16),
    (coalesced((128, 64), 4, 16), coalesced((128, 64), 4, 16, (0, 1)), 8),
    (mma_accumulator((128, 128), (4, 2)), coalesced((128, 128), 8, 8), 16),
    (mma_accumulator((128, 64), (4, 1)), coalesced((128, 64), 4, 4), 32),
    (wgmma_accumulator((128, 128), 8), coalesced((128, 128), 8, 8), 16),
    (wgmma_accumulator((128, 256), 8), coalesced((128, 256), 8, 4), 32),
    (coalesced((64, 32), 4, 2), coalesced((64, 32), 4, 2, (0, 1)), 64),
]


@pytest.mark.parametrize(("source", "result", "bits"), STANDARD)
def test_standard_conversions_have_no_bank_conflicts(source, result, bits):
    plan = plan_shared_memory(source, result, bits, None)
    assert run(plan, iota(source)) == iota(result)
    assert bank_conflicts(plan.write) == 0
    assert bank_conflicts(plan.read) == 0
    widest = max(plan.write.vector_bytes, plan.read.vector_bytes)
    assert widest == 16 or plan.write.vector_bytes == plan.read.vector_bytes == 4


def test_the_chosen_swizzle_costs_at_most_what_plain_rows_cost(layouts):
    @quick
    @given(layouts(broadcast=False), st.data(), st.sampled_from([8, 16, 32, 64]))
    def law(source, data, bits):
        warps = len(source.flat_warp)
        result = data.draw(layouts(shape=source.shape, warps=warps, broadcast=False))
        plain = shared_linear(source.shape)
        sides = [plan_shared_access(layout, plain, bits) for layout in (source, result)]
        cost = 0
        for access in sides:
            needed = max(1, 32 * access.vector_bytes // 128)
            cost += len(access.offsets) * (2 * (needed + bank_conflicts(access)) + 1)
        assert plan_shared_memory(source, result, bits, None).cost <= cost

    law()


@pytest.mark.parametrize(
    ("source", "result", "expected"),
    [
        # Column bit 0 and row bit 3 are register bits on both sides and can separate four rounds.
        (wgmma_accumulator((128, 256), 8), coalesced((128, 256), 8, 4), (32 * 1024, 4)),
        (mma_accumulator((256, 64), (4, 1)), coalesced((256, 64), 4, 4), (32 * 1024, 2)),
    ],
)
def test_scratch_limit_makes_rounds(source, result, expected):
    plan = plan_conversion(source, result, 32, scratch_limit=32 * 1024)
    assert isinstance(plan, SharedMemory)
    assert (plan.bytes, plan.rounds) == expected
    assert run(plan, iota(source)) == iota(result)


def test_impossible_conversions_are_refused():
    a = coalesced((32, 32), 4)
    with pytest.raises(LayoutError, match="tile of"):
        plan_conversion(a, coalesced((32, 64), 4), 16)
    with pytest.raises(LayoutError, match="warps"):
        plan_conversion(a, coalesced((32, 32), 8), 16)
    clustered = LinearLayout(a.shape, a.flat_register, a.flat_lane, a.flat_warp, (1,))
    with pytest.raises(LayoutError, match="between blocks"):
        plan_conversion(a, clustered, 16)
    partial = LinearLayout(a.shape, (), a.flat_lane, a.flat_warp)
    with pytest.raises(LayoutError, match="no thread holds"):
        plan_conversion(partial, a, 16)
