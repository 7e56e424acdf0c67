"""Conversions inside a warp: every result register from one shuffle of one source register.

With dst place (register r, lane l, warp w) and source place (X, L) linear in it,

    L = Al*l + Ar*r + Aw*w        X = Bl*l + Br*r + Bw*w       (over F2)

a shuffle works when the register that a source lane must offer depends on that lane only. So round i serves
result register r = i + C*l, with C chosen to make A = Al + Ar*C invertible: then each lane is read by exactly one
other, offers register M*L + const with M = (Bl + Br*C)*A^-1, and C and M become selects around the shuffle.
A transposition of m register bits with m lane bits so costs (1 - 2^-m) of the registers in shuffles, because
the rounds whose lane function is the identity need none. Where C = 0 does, although A is not invertible, as lanes want
copies of what another one has, there is nothing to select.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..hardware import REGISTER_BITS
from .f2 import Echelon, combine, span_of
from .linear import LinearLayout
from .transform import remove_register_broadcast, unique_registers


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

    @property
    def cost(self) -> int:
        """A shuffle takes as long as a wavefront (cost 2, and 1 to issue), a select half of that."""
        return 3 * self.shuffles + self.selects


@dataclass(frozen=True, slots=True)
class _Bases:
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
        cores = _solve(
            _Bases(_without(compact.flat_register, bits), source.flat_lane, source.flat_warp),
            _Bases(_without(target.flat_register, bits), result.flat_lane, result.flat_warp),
        )
        if cores:
            plans = (_unpack(core, source, result, bits) for core in cores)
            return min(plans, key=lambda plan: plan.cost)
    return None


def _packable(left: Sequence[int], right: Sequence[int], element_bits: int) -> list[int]:
    """Register bases that both sides share, as many as fit a 32-bit shuffle."""
    room = (REGISTER_BITS // max(8, element_bits)).bit_length() - 1
    return [basis for basis in left if basis in right][: max(0, room)]


def _without(bases: Sequence[int], removed: Sequence[int]) -> list[int]:
    return [basis for basis in bases if basis not in removed]


@dataclass(frozen=True, slots=True)
class _Core:
    """What :class:`WarpShuffle` says of the steps 2 to 4."""

    before: tuple[Exchange, ...]
    rounds: tuple[ShuffleRound, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]
    after: tuple[Exchange, ...]


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the source has what is at each bit of a result's place. A place of the source is X, of ``bits`` bits, with
    L above it, so these are columns of Br and Ar, Bl and Al, Bw and Aw. ``copies`` may be added to any place, for they
    lead to copies: the kernel of the source's map."""

    bits: int
    register: list[int]
    lane: list[int]
    warp: list[int]
    copies: list[int]

    def source_register(self, place: int) -> int:
        """X."""
        return place & ((1 << self.bits) - 1)

    def source_lane(self, place: int) -> int:
        """L."""
        return place >> self.bits


@dataclass(frozen=True, slots=True)
class _Column:
    """What one bit of the lane adds. ``place``: the column of Bl + Br*C, with that of A above it; ``c``: that of C."""

    place: int
    c: int = 0


def _solve(source: _Bases, result: _Bases) -> list[_Core]:
    """Ways to shuffle between two layouts of a warp. None where data must cross warps, or where what a lane must offer
    depends on more than the lane."""
    places = _find_places(source, result)
    if places is None:
        return []
    choices = _make_invertible(places), [_Column(place) for place in places.lane]
    cores = (_core_of(places, columns) for columns in choices)
    return [core for core in cores if core is not None]


def _core_of(places: _Places, columns: Sequence[_Column]) -> _Core | None:
    """The shuffles that ``columns`` choose: A, C and M of the module's text; None where M cannot be."""
    a = [places.source_lane(column.place) for column in columns]
    x = [places.source_register(column.place) for column in columns]
    m = _solve_m(a, x)
    if [combine(m, lane) for lane in a] != x:
        return None

    def offered(place: int) -> int:
        """What remains of X once the exchanges between registers have brought M*L."""
        return places.source_register(place) ^ combine(m, places.source_lane(place))

    before = [Exchange("lane", bit, flip) for bit, flip in enumerate(m) if flip]
    before += [Exchange("warp", bit, offered(place)) for bit, place in enumerate(places.warp) if offered(place)]
    return _Core(
        before=tuple(before),
        rounds=tuple(ShuffleRound(offered(place), places.source_lane(place)) for place in span_of(places.register)),
        lane=tuple(a),
        warp=tuple(places.source_lane(place) for place in places.warp),
        after=tuple(Exchange("lane", bit, column.c) for bit, column in enumerate(columns) if column.c),
    )


def _find_places(source: _Bases, result: _Bases) -> _Places | None:
    """The columns of A and B; None where a warp of the result needs what another one has."""
    bits = len(source.register)
    units = [1 << (bits + bit) for bit in range(len(source.lane))]
    space = Echelon([*source.register, *source.lane])
    # The own lane is the first guess; only the difference to it has to be found elsewhere.
    register = _solve_all(space, result.register)
    lane = _solve_all(space, [want ^ have for want, have in zip(result.lane, source.lane, strict=True)])
    warp = _solve_all(space, [want ^ have for want, have in zip(result.warp, source.warp, strict=True)])
    own = _solve_all(space, source.lane)
    if register is None or lane is None or warp is None or own is None:
        return None
    return _Places(
        bits,
        register,
        lane=[place ^ unit for place, unit in zip(lane, units, strict=True)],
        warp=warp,
        copies=[place ^ unit for place, unit in zip(own, units, strict=True) if not place & unit],
    )


def _solve_all(space: Echelon, vectors: Sequence[int]) -> list[int] | None:
    """A combination for each vector; None if one is outside of the subspace."""
    found = [combination for vector in vectors if (combination := space.solve(vector)) is not None]
    return found if len(found) == len(vectors) else None


def _solve_m(a: list[int], x: list[int]) -> list[int]:
    """The columns of M: M*A is ``x``, which is Bl + Br*C. Where A is not invertible, M is zero on what completes its
    image."""
    units = [1 << bit for bit in range(len(a))]
    image = Echelon([*a, *units])
    return [combine(x, image.solve(unit) or 0) for unit in units]


def _make_invertible(places: _Places) -> list[_Column]:
    """For each bit of the lane its column. C is chosen, and copies are, so that the columns of A are independent, as
    far as that is possible; first so that a lane reads its own registers, for that needs no shuffle."""
    columns = [_Column(place) for place in places.lane]
    own_first = sorted(range(len(columns)), key=lambda bit: places.source_lane(places.lane[bit]) != 1 << bit)
    image = Echelon()
    dependent = [bit for bit in own_first if not image.add(places.source_lane(places.lane[bit]))]
    for own in (True, False):
        for bit in list(dependent):
            found = _independent_column(places, bit, image, own=own)
            if found is not None:
                image.add(places.source_lane(found.place))
                columns[bit] = found
                dependent.remove(bit)
    return columns


def _independent_column(places: _Places, bit: int, image: Echelon, *, own: bool) -> _Column | None:
    """The first column for this bit of the lane that leads out of ``image``: to copies, or of another register. With
    ``own`` the one that leads to the same bit of the source's lane."""
    choices = [_Column(extra) for extra in places.copies]
    choices += [_Column(extra, 1 << register) for register, extra in enumerate(places.register)]
    for choice in choices:
        place = places.lane[bit] ^ choice.place
        lane = places.source_lane(place)
        if lane not in image and (lane == 1 << bit or not own):
            return _Column(place, choice.c)
    return None


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
