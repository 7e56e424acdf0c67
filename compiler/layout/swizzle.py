"""The shared memory layout for one conversion: vectors on both sides, without bank conflicts where possible.

The tile's index space is cut into vector bits V, bank bits B and segment bits S (offset = V | B | S, lowest first).
Lanes that access memory together conflict when they differ by an element of span(S), so S must meet the span of
the lanes of the writing side only in 0, and the same for the reading side. Two subspaces of F2^n with spans A
and B have such a common S: the complement of A + B and the sums a_i ^ b_i of independent parts; these sums are
the XOR of a swizzle. (Linear Layouts, arXiv 2505.23819, section on optimal swizzling.)

V holds register bases common to both sides, then, up to 16 bytes, those of one side ("wide"). The other side
moves narrower vectors; its lanes also spread over the bank bits inside a wide vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..hardware import BANK_BYTES, VECTOR_BYTES
from .access import (
    SharedAccess,
    build_access,
    element_bytes_of,
    needed_wavefronts,
    wave_lane_bits,
    wavefronts,
)
from .f2 import Echelon, independent, intersection
from .linear import LinearLayout


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """A conversion through shared memory, ``bytes`` of scratch (16-byte aligned), in ``rounds`` rounds.

    The accesses of ``write`` and ``read`` are ``rounds`` equal groups in order. Round i: (barrier when i > 0,) the
    stores of group i of ``write``, barrier, the loads of group i of ``read``; one more barrier is needed before
    the scratch is used again. Threads that hold copies store the same value to the same place, which is
    harmless; after the loads register r is a copy of register ``read.canonical[r]``.
    """

    write: SharedAccess
    read: SharedAccess
    bytes: int
    rounds: int

    @property
    def cost(self) -> int:
        """Twice the shared memory cycles of a warp plus its instructions."""
        return self.write.cost + self.read.cost


def plan_shared_memory(
    source: LinearLayout, result: LinearLayout, element_bits: int, scratch_limit: int | None
) -> SharedMemory:
    """The cheapest of a few cuts; ``scratch_limit`` (bytes) asks for rounds where the layouts allow them.

    The caller has checked that both layouts hold the same elements within every block.
    """
    element_bytes = element_bytes_of(element_bits)
    common = _common_vector(source, result, element_bytes)
    limit = scratch_limit or 0
    cuts: list[_Cut] = []
    # Bits inside a vector cannot separate rounds, so shorter vectors may allow more rounds.
    for kept in range(len(common), -1, -1):
        cuts += _cuts(source, result, common[:kept], element_bytes, scratch_limit)
        if scratch_limit is None or min(cut.bytes for cut in cuts) <= limit:
            break
    return min(cuts, key=lambda cut: (max(cut.bytes, limit), cut.cost)).plan()


@dataclass(frozen=True, slots=True)
class _Side:
    """Element offsets per hardware bit of one side, and the elements that one access moves."""

    register: list[int]
    lane: list[int]
    warp: list[int]
    vector: int
    element_bytes: int

    @property
    def wavefronts(self) -> int:
        offsets = [offset * self.element_bytes for offset in self.lane]
        return wavefronts(offsets, self.vector * self.element_bytes)

    @property
    def accesses(self) -> int:
        return (1 << len(Echelon(self.register))) // self.vector

    def plan(self, round_bytes: int) -> SharedAccess:
        access = build_access(self.register, self.lane, self.warp, self.element_bytes)
        return _by_round(access, round_bytes)


@dataclass(frozen=True, slots=True)
class _Cut:
    """One choice of vectors, banks and segments."""

    write: _Side
    read: _Side
    bytes: int
    rounds: int

    @property
    def has_conflicts(self) -> bool:
        return any(
            side.wavefronts > needed_wavefronts(len(side.lane), side.vector * side.element_bytes)
            for side in (self.write, self.read)
        )

    @property
    def cost(self) -> int:
        sides = (self.write, self.read)
        return sum(side.accesses * (2 * side.wavefronts + 1) for side in sides)

    def plan(self) -> SharedMemory:
        write, read = self.write.plan(self.bytes), self.read.plan(self.bytes)
        return SharedMemory(write, read, self.bytes, self.rounds)


def _cuts(
    source: LinearLayout,
    result: LinearLayout,
    common: list[int],
    element_bytes: int,
    scratch_limit: int | None,
) -> list[_Cut]:
    """Cuts with wide vectors on the reading or the writing side; the second and shorter ones on conflicts."""
    cuts = []
    for wide_bytes in (VECTOR_BYTES, VECTOR_BYTES // 2, BANK_BYTES, 0):
        read = _wide_vector(result, source, common, element_bytes, wide_bytes)
        write = _wide_vector(source, result, common, element_bytes, wide_bytes)
        # The side that saves more instructions comes first: without conflicts there is nothing better.
        saved_by_read = result.registers - (result.registers >> len(read))
        saved_by_write = source.registers - (source.registers >> len(write))
        choices = [(read, True), (write, False)] if write else [(read, True)]
        if saved_by_write > saved_by_read:
            choices.reverse()
        for extra, wide_reads in choices:
            cut = _cut(source, result, common, extra, wide_reads, element_bytes, scratch_limit)
            cuts.append(cut)
            if not cut.has_conflicts and (scratch_limit is None or cut.bytes <= scratch_limit):
                return cuts
        if not (read or write):
            break
    return cuts


def _threads(layout: LinearLayout) -> tuple[int, ...]:
    return layout.flat_lane + layout.flat_warp


def _common_vector(source: LinearLayout, result: LinearLayout, element_bytes: int) -> list[int]:
    """Register combinations of both sides that no thread bit of either side disturbs, up to 16 bytes."""
    space = Echelon((*_threads(source), *_threads(result)))
    plain = [flat for flat in source.flat_register if flat in result.flat_register]
    mixed = intersection(source.flat_register, result.flat_register)
    chosen: list[int] = []
    for flat in (*plain, *mixed):
        if element_bytes << len(chosen) < VECTOR_BYTES and space.add(flat):
            chosen.append(flat)
    return chosen


def _wide_vector(
    wide: LinearLayout,
    narrow: LinearLayout,
    common: Sequence[int],
    element_bytes: int,
    limit_bytes: int,
) -> list[int]:
    """Further registers of the wide side, as long as ``common`` stays aligned for both sides."""
    own = Echelon((*common, *_threads(wide)))
    both = Echelon((*_threads(wide), *_threads(narrow)))
    everything = Echelon((*common, *_threads(wide), *_threads(narrow)))
    chosen: list[int] = []
    for flat in wide.flat_register:
        if element_bytes << (len(common) + len(chosen)) >= limit_bytes:
            break
        if flat in own or (flat in everything and flat not in both):
            continue
        chosen.append(flat)
        for space in (own, both, everything):
            space.add(flat)
    return chosen


def _cut(
    source: LinearLayout,
    result: LinearLayout,
    common: list[int],
    extra: list[int],
    wide_reads: bool,
    element_bytes: int,
    scratch_limit: int | None,
) -> _Cut:
    wide, narrow = (result, source) if wide_reads else (source, result)
    vector = common + extra
    wide_wave = wide.flat_lane[: wave_lane_bits(element_bytes << len(vector))]
    narrow_wave = narrow.flat_lane[: wave_lane_bits(element_bytes << len(common))]
    word_bits = max(0, (BANK_BYTES // element_bytes).bit_length() - 1)

    # Coordinates: vector bits, then bits that threads use, then bits that only registers use.
    space = Echelon(vector)
    inside = [flat for flat in narrow_wave if flat in space]
    spare = independent(extra[max(0, word_bits - len(common)) :], inside)
    threads = [flat for flat in _threads(wide) if space.add(flat)]
    for flat in narrow_wave:
        if flat not in space:
            # Banks inside a wide vector are free for lanes of the narrow side: pair them up.
            threads.append(flat ^ (spare.pop() if spare else 0))
            space.add(threads[-1])
    threads += [flat for flat in _threads(narrow) if space.add(flat)]
    rest = [flat for flat in source.flat_register if space.add(flat)]
    basis = Echelon((*vector, *threads, *rest))

    def coordinates(flats: Sequence[int]) -> list[int]:
        return [basis.solve(flat) or 0 for flat in flats]

    total = len(basis)
    rounds = _rounds(element_bytes << total, scratch_limit, len(rest))
    in_round = total - rounds
    aligned = _aligned_part(coordinates(narrow_wave), len(common), len(vector), word_bits)
    offset = _swizzle(coordinates(wide_wave), aligned, len(vector), in_round, element_bytes)
    columns = Echelon((*offset, *(1 << bit for bit in range(in_round, total))))

    def side(layout: LinearLayout) -> _Side:
        register, lane, warp = (
            [columns.solve(place) or 0 for place in coordinates(flats)]
            for flats in (layout.flat_register, layout.flat_lane, layout.flat_warp)
        )
        length = len(vector) if layout is wide else len(common)
        return _Side(register, lane, warp, 1 << length, element_bytes)

    return _Cut(side(source), side(result), element_bytes << in_round, 1 << rounds)


def _rounds(total_bytes: int, limit: int | None, available: int) -> int:
    """log2 of the number of rounds."""
    rounds = 0
    while limit is not None and total_bytes >> rounds > limit and rounds < available:
        rounds += 1
    return rounds


def _aligned_part(lanes: list[int], common: int, vector: int, word_bits: int) -> list[int]:
    """The combinations of narrow lanes that stay in the same word of the wide vectors they touch."""
    word_start = max(common, word_bits)
    inside_word = (1 << word_start) - 1
    wide_words = (1 << vector) - 1 & ~inside_word
    pivots: dict[int, int] = {}
    aligned = []
    for lane in lanes:
        lane &= ~((1 << min(word_start, vector)) - 1)
        while (word := lane & wide_words) and word.bit_length() in pivots:
            lane ^= pivots[word.bit_length()]
        if word:
            pivots[word.bit_length()] = lane
        else:
            aligned.append(lane)
    return aligned


def _swizzle(wide: list[int], narrow: list[int], vector: int, total: int, element_bytes: int) -> list[int]:
    """Coordinates of every offset bit of a round, for lanes given by coordinates."""
    vector_bytes = element_bytes << vector
    fill = max(0, (BANK_BYTES // vector_bytes).bit_length() - 1)
    banks = wave_lane_bits(vector_bytes)
    units = [1 << bit for bit in range(vector, total)]
    low = [1 << bit for bit in range(vector)]
    # A vector of less than a bank is filled up with lanes, which then share words instead of banks.
    word = independent([*intersection(wide, narrow), *wide, *narrow, *units])[:fill]
    shared = independent(intersection([*wide, *word], [*narrow, *word]), word)
    only_wide = independent(wide, [*word, *shared])
    only_narrow = independent(narrow, [*word, *shared])
    pairs = [a ^ b for a, b in zip(only_wide, only_narrow, strict=False)]
    lanes = shared + (only_wide if len(only_wide) >= len(only_narrow) else only_narrow)
    free = independent(units, [*word, *lanes, *pairs])
    ordered = [*lanes, *free, *pairs]
    return [*low, *word, *ordered[:banks], *ordered[banks:]]


def _by_round(access: SharedAccess, round_bytes: int) -> SharedAccess:
    """Group the accesses by the offset bits beyond a round, and drop these bits."""
    order = sorted(range(len(access.offsets)), key=lambda i: access.offsets[i] // round_bytes)
    return replace(
        access,
        registers=tuple(access.registers[i] for i in order),
        offsets=tuple(access.offsets[i] % round_bytes for i in order),
    )
