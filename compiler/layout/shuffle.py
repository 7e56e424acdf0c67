"""Conversions inside a warp: every result register from one shuffle of one source register.

With dst place (register r, lane l, warp w) and source place (X, L) linear in it,

    L = Al*l + Ar*r + Aw*w        X = Bl*l + Br*r + Bw*w       (over F2)

a shuffle works when the register that a source lane must offer depends on that lane only. So round i serves
result register r = i + C*l, with C chosen to make A = Al + Ar*C invertible: then each lane is read by exactly one
other, offers register M*L + const with M = (Bl + Br*C)*A^-1, and C and M become selects around the shuffle.
A transposition of m register bits with m lane bits so costs (1 - 2^-m) of the registers in shuffles, because
the rounds whose lane function is the identity need none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .f2 import Echelon, combine, span_of
from .linear import LinearLayout
from .transform import remove_register_broadcast, unique_registers

SHUFFLE_BITS = 32


@dataclass(frozen=True, slots=True)
class Exchange:
    """Where bit ``bit`` of the lane or warp index is set, value i becomes value ``i ^ flip``."""

    dimension: Literal["lane", "warp"]
    bit: int
    flip: int


@dataclass(frozen=True, slots=True)
class ShuffleRound:
    """Result unit i takes unit ``source`` of the lane ``lane_xor ^ lane bases ^ warp bases``."""

    source: int
    lane_xor: int


@dataclass(frozen=True, slots=True)
class WarpShuffle:
    """A conversion inside each warp. An emitter does, in this order:

    1. ``unit[u] = pack(source registers gather[u])``: up to 32 bits of elements, lowest first (64-bit elements
       are one unit that takes two shuffles);
    2. for each exchange of ``before``: ``unit[u] = unit[u ^ flip] if bit else unit[u]``, all ``wanted`` u at once;
    3. ``result[i] = shuffle(unit[rounds[i].source], source_lane)`` with source_lane = ``rounds[i].lane_xor`` XOR
       ``lane[b]`` over the set bits of the lane index XOR ``warp[b]`` over those of the warp index. When
       ``is_butterfly``, source_lane is lane ^ lane_xor, and round i is a plain copy where lane_xor is 0;
    4. for each exchange of ``after``: the same as 2 on ``result``;
    5. destination register r = element ``scatter[r][1]`` of ``result[scatter[r][0]]``.
    """

    gather: tuple[tuple[int, ...], ...]
    before: tuple[Exchange, ...]
    rounds: tuple[ShuffleRound, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]
    after: tuple[Exchange, ...]
    scatter: tuple[tuple[int, int], ...]

    @property
    def is_butterfly(self) -> bool:
        """Whether every source lane is the own lane XOR a constant."""
        return not any(self.warp) and self.lane == tuple(1 << bit for bit in range(len(self.lane)))

    @property
    def shuffles(self) -> int:
        """Rounds that need a shuffle instruction."""
        if not self.is_butterfly:
            return len(self.rounds)
        return sum(step.lane_xor != 0 for step in self.rounds)

    @property
    def wanted(self) -> tuple[frozenset[int], ...]:
        """The units that are needed after each exchange of ``before``."""
        units = frozenset(step.source for step in self.rounds)
        found = []
        for exchange in reversed(self.before):
            found.append(units)
            units |= {unit ^ exchange.flip for unit in units}
        return tuple(reversed(found))

    @property
    def selects(self) -> int:
        """Select instructions of both exchange steps."""
        return sum(map(len, self.wanted)) + len(self.after) * len(self.rounds)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Flat bases of one side, without register copies and packed bits."""

    register: Sequence[int]
    lane: Sequence[int]
    warp: Sequence[int]


def plan_shuffle(source: LinearLayout, result: LinearLayout, element_bits: int) -> WarpShuffle | None:
    """The shuffle form of a conversion, or None when data must cross warps (or no such form exists)."""
    compact = remove_register_broadcast(source)
    target = remove_register_broadcast(result)
    packed = _packable(compact.flat_register, target.flat_register, element_bits)
    for count in range(len(packed), -1, -1):
        bits = packed[:count]
        core = _solve(
            _Columns(_without(compact.flat_register, bits), source.flat_lane, source.flat_warp),
            _Columns(_without(target.flat_register, bits), result.flat_lane, result.flat_warp),
        )
        if core is not None:
            return _unpack(core, source, result, bits)
    return None


def _packable(left: Sequence[int], right: Sequence[int], element_bits: int) -> list[int]:
    """Register bases that both sides share, as many as fit a 32-bit shuffle."""
    room = (SHUFFLE_BITS // max(8, element_bits)).bit_length() - 1
    return [basis for basis in left if basis in right][: max(0, room)]


def _without(bases: Sequence[int], removed: Sequence[int]) -> list[int]:
    return [basis for basis in bases if basis not in removed]


@dataclass(frozen=True, slots=True)
class _Core:
    before: tuple[Exchange, ...]
    rounds: tuple[ShuffleRound, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]
    after: tuple[Exchange, ...]


def _solve(source: _Columns, result: _Columns) -> _Core | None:
    registers = len(source.register)
    space = Echelon([*source.register, *source.lane])
    # The own lane is the first guess; only the difference to it has to be found elsewhere.
    by_register = [space.solve(flat) for flat in result.register]
    by_lane = [space.solve(want ^ have) for want, have in zip(result.lane, source.lane, strict=True)]
    by_warp = [space.solve(want ^ have) for want, have in zip(result.warp, source.warp, strict=True)]
    if None in by_register or None in by_lane or None in by_warp:
        return None
    places_r = [place or 0 for place in by_register]
    places_l = [(place or 0) ^ 1 << registers + bit for bit, place in enumerate(by_lane)]
    places_w = [place or 0 for place in by_warp]
    # Kernel of the source map: places that may be added freely, since they hold copies.
    kernel = [
        (space.solve(flat) or 0) ^ 1 << registers + bit
        for bit, flat in enumerate(source.lane)
        if not (space.solve(flat) or 0) >> registers + bit & 1
    ]
    pool = [(place, 0) for place in kernel]
    pool += [(place, 1 << bit) for bit, place in enumerate(places_r)]
    moves = _make_invertible(places_l, pool, registers)

    low = (1 << registers) - 1
    lane = [place >> registers for place, _ in moves]
    image = Echelon([*lane, *(1 << bit for bit in range(len(lane)))])
    offers = [combine([place & low for place, _ in moves], image.solve(1 << bit) or 0) for bit in range(len(lane))]
    if any(combine(offers, place >> registers) != place & low for place, _ in moves):
        return None

    def offered(place: int) -> int:
        return place & low ^ combine(offers, place >> registers)

    before = [Exchange("lane", bit, flip) for bit, flip in enumerate(offers) if flip]
    before += [Exchange("warp", bit, offered(place)) for bit, place in enumerate(places_w) if offered(place)]
    return _Core(
        before=tuple(before),
        rounds=tuple(ShuffleRound(offered(p), p >> registers) for p in span_of(places_r)),
        lane=tuple(lane),
        warp=tuple(place >> registers for place in places_w),
        after=tuple(Exchange("lane", bit, flip) for bit, (_, flip) in enumerate(moves) if flip),
    )


def _make_invertible(places: list[int], pool: list[tuple[int, int]], registers: int) -> list[tuple[int, int]]:
    """(place, C column) per lane bit: pool entries are added until the lane parts are independent."""
    space = Echelon()
    moves = [(place, 0) for place in places]
    identity_first = sorted(range(len(places)), key=lambda bit: places[bit] >> registers != 1 << bit)
    dependent = [bit for bit in identity_first if not space.add(places[bit] >> registers)]
    for exact in (True, False):
        for bit in list(dependent):
            for extra, flip in pool:
                place = places[bit] ^ extra
                lane = place >> registers
                if (lane == 1 << bit or not exact) and lane not in space:
                    space.add(lane)
                    moves[bit] = place, flip
                    dependent.remove(bit)
                    break
    return moves


def _unpack(core: _Core, source: LinearLayout, result: LinearLayout, packed: Sequence[int]) -> WarpShuffle:
    """Name the units' registers: ``packed`` bases select the element inside a unit."""
    compact = remove_register_broadcast(source).flat_register
    kept = unique_registers(source)
    places = [1 << compact.index(basis) for basis in packed]
    units = [1 << bit for bit, basis in enumerate(compact) if basis not in packed]
    gather = tuple(tuple(kept[unit | element] for element in span_of(places)) for unit in span_of(units))
    target = remove_register_broadcast(result).flat_register
    space = Echelon([*packed, *_without(target, packed)])
    scatter = []
    for flat in result.register_offsets():
        place = space.solve(flat) or 0
        scatter.append((place >> len(packed), place & ((1 << len(packed)) - 1)))
    return WarpShuffle(gather, core.before, core.rounds, core.lane, core.warp, core.after, tuple(scatter))
