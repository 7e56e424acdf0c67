"""How warps bring together what each of them has of a reduction: where it lies in shared memory, and who adds it up.

Either each thread reads all partials of its results, or threads share out the results, tell them to all, and wait for
each other once more: with 16 warps that have four results each in every thread, 64 values to read and to add up become
two and three shuffles. Partials of one element lie next to each other, which one vector then reads, or those of one
warp, which its threads write in vectors; :func:`plan_exchange` takes what keeps shared memory and threads busy least.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...hardware import BANK_BYTES, LANE_BITS, LANES, VECTOR_BYTES
from ...layout.access import wavefronts
from ...layout.f2 import combine
from .reduction import ReductionPlan, scratch_bytes

#: Cycles that all warps wait for each other and for what they read afterwards.
BARRIER_CYCLES = 40
#: Slots of one operand, from which on results lie where partials lay: shared memory is worth more than a barrier.
MANY_SLOTS = 4096
#: Instructions that an SM begins in a cycle.
ISSUED = 4
#: What a shuffle and the operation behind it take of a warp's time to begin instructions.
SHUFFLED = 3


@dataclass(frozen=True, slots=True)
class WarpExchange:
    """Slots of one element each; the slot of a partial is the XOR of ``elements`` at the bits of its result's index and
    of ``partials`` at the bits of its number.

    ``shared_out``: threads share out the results; otherwise each reads the partials of its own, but for what the lanes
    of ``sharing`` read of the same result. A lane reads ``each`` partials of a result; accesses move ``vector``
    elements at most.
    """

    plan: ReductionPlan
    elements: tuple[int, ...]
    partials: tuple[int, ...]
    shared_out: bool
    each: int
    vector: int
    sharing: tuple[int, ...] = ()

    @property
    def slots(self) -> int:
        """All slots of one operand."""
        return 1 << len(self.elements) + len(self.partials)

    @property
    def neighbours(self) -> int:
        """How many partials of an element lie next to each other, of those that a lane reads."""
        count = 1
        while count < self.each and self.partials[count.bit_length() - 1] == count:
            count *= 2
        return count

    @property
    def run(self) -> int:
        """How many of a thread's results, from each multiple of it on, have partials that lie next to each other."""
        return min(_run(self.plan, self.elements), self.vector)

    @property
    def told_run(self) -> int:
        """The same, where they lie in the order of their indices."""
        return min(_run(self.plan, [1 << bit for bit in range(len(self.elements))]), self.vector)

    @property
    def in_place(self) -> bool:
        """Whether threads tell each other results where partials lay, for which they wait once more."""
        return self.shared_out and self.slots >= MANY_SLOTS

    @property
    def readers(self) -> int:
        """Lanes that add up one element's partials, where results are shared out."""
        return self.plan.partials // self.each

    def place(self, element: int, partial: int = 0) -> int:
        """The slot of a partial."""
        return combine(self.elements, element) ^ combine(self.partials, partial)

    def written(self) -> tuple[list[int], list[int]]:
        """Slot bits of a thread's lane and warp, where it writes its partials."""
        lane = [self.place(flat) for flat in self.plan.result.flat_lane]
        warp = [self.place(flat) for flat in self.plan.result.flat_warp]
        for number, bit in enumerate(self.plan.warp_bits):
            warp[bit] ^= self.partials[number]
        return lane, warp

    def read(self) -> tuple[list[int], list[int]]:
        """The same, where it reads some."""
        if self.shared_out:
            first = self.each.bit_length() - 1
            bits = [*self.partials[first:], *self.elements]
            return _by_thread(bits, len(self.plan.result.flat_warp))
        lane = [self.place(flat) for flat in self.plan.result.flat_lane]
        for number, bit in enumerate(self.sharing):
            lane[bit] ^= combine(self.partials, self.each << number)
        return lane, [self.place(flat) for flat in self.plan.result.flat_warp]

    def told(self) -> tuple[list[int], list[int]]:
        """Bits of the index of the result that a thread tells, where they are shared out."""
        bits = [0] * (self.readers.bit_length() - 1) + [1 << bit for bit in range(len(self.elements))]
        return _by_thread(bits, len(self.plan.result.flat_warp))

    def cycles(self, element_bytes: int) -> float:
        """About how long shared memory and the threads of a CTA are busy with one operand."""
        groups, warps = len(self.plan.groups), 1 << len(self.plan.result.flat_warp)
        busy = _cost(self.written()[0], groups, self.run, element_bytes)
        held = 1 if self.shared_out else groups
        run = self.run if not self.shared_out and self.neighbours == 1 else min(self.neighbours, self.vector)
        busy += _cost(self.read()[0], held * self.each, run, element_bytes)
        lanes = self.readers.bit_length() - 1 if self.shared_out else len(self.sharing)
        busy += held * (self.each - 1 + SHUFFLED * lanes) / ISSUED
        if self.shared_out:
            busy += _cost(self.told()[0], 1, 1, element_bytes)
            busy += _cost(self.plan.result.flat_lane, groups, self.told_run, element_bytes)
        return warps * busy + BARRIER_CYCLES * (self.shared_out + self.in_place)


@lru_cache(maxsize=2048)
def plan_exchange(plan: ReductionPlan, element_bytes: int) -> WarpExchange:
    """The exchange that takes the fewest cycles, for operands of at most ``element_bytes``."""
    return min(_candidates(plan, element_bytes), key=lambda exchange: exchange.cycles(element_bytes))


def exchange_bytes(exchange: WarpExchange, element_bytes: int) -> tuple[int, int]:
    """Shared memory for one operand: its partials, and beside them the results that threads tell each other; each is
    whole vectors."""
    told = 1 << len(exchange.elements) if exchange.shared_out and not exchange.in_place else 0
    return scratch_bytes(exchange.slots, 8 * element_bytes), scratch_bytes(told, 8 * element_bytes)


def _candidates(plan: ReductionPlan, element_bytes: int) -> Iterator[WarpExchange]:
    size, count = plan.result.size, plan.partials
    element_bits, partial_bits = size.bit_length() - 1, count.bit_length() - 1
    each, sharing = plan.share_of(element_bytes)
    threads = LANES << len(plan.result.flat_warp)
    fewest = max(1, size * count // threads, count // LANES)
    ways = [(False, each, sharing)]
    if fewest <= count:
        ways.append((True, fewest, ()))
    vector = VECTOR_BYTES // element_bytes
    beside = tuple(count << bit for bit in range(element_bits)), tuple(1 << bit for bit in range(partial_bits))
    for shared_out, each, sharing in ways:
        yield WarpExchange(plan, *beside, shared_out, each, vector, sharing)
        # Partials that lanes read at the same time begin in other banks.
        turns = [vector << bit >> each.bit_length() - 1 for bit in range(partial_bits)]
        turned = [size << bit ^ (turn if vector <= turn < size else 0) for bit, turn in enumerate(turns)]
        far = tuple(1 << bit for bit in range(element_bits)), tuple(turned)
        yield WarpExchange(plan, *far, shared_out, each, vector, sharing)


def _run(plan: ReductionPlan, elements: Sequence[int]) -> int:
    """How many results of a thread lie next to each other, where their indices' bits are at ``elements``."""
    positions = plan.positions
    run = 1
    while run < len(positions):
        double = [combine(elements, position ^ positions[0]) for position in positions[: 2 * run]]
        if double != list(range(2 * run)):
            break
        run *= 2
    return run


def _by_thread(bits: Sequence[int], warp_bits: int) -> tuple[list[int], list[int]]:
    """Bases for the bits of a thread's number; threads beyond them do what others do."""
    bases = [*bits, *[0] * (LANE_BITS + warp_bits)][: LANE_BITS + warp_bits]
    return bases[:LANE_BITS], bases[LANE_BITS:]


def _cost(lane: Sequence[int], count: int, vector: int, element_bytes: int) -> float:
    """Cycles of one warp that accesses ``count`` elements in vectors."""
    accesses = count / vector
    busy = wavefronts([slot * element_bytes for slot in lane], max(vector * element_bytes, BANK_BYTES))
    return accesses * (busy + 1 / ISSUED)
