"""Shadow memory: who touched each element in a launch, and which elements nobody has ever written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..targets.interpreter.memory import ArrayBuffer
from ..targets.interpreter.numbers import Array
from .findings import SourcePlace
from .order import Order

#: The event of elements that no program has touched.
NOBODY = 0


class AccessEvents:
    """The accesses of a launch, by number: each is one operation in one program between two of its releases."""

    def __init__(self) -> None:
        self.places: list[SourcePlace] = [SourcePlace(None)]
        self.programs = np.full(64, -1, np.int64)
        self.epochs = np.zeros(64, np.int64)
        self._numbers: dict[tuple[SourcePlace, int, int], int] = {}

    def number(self, place: SourcePlace, program: int, epoch: int) -> int:
        """The number of this access, made when it is new."""
        key = (place, program, epoch)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.places)
            self.places.append(place)
            if found == len(self.programs):
                self.programs, self.epochs = (np.concatenate([x, x]) for x in (self.programs, self.epochs))
            self.programs[found], self.epochs[found] = program, epoch
        return found


class Region:
    """A stretch of memory that the arrays of a launch cover, in cells of ``granule`` bytes."""

    def __init__(self, start: int, size: int, granule: int) -> None:
        self.start = start
        self.size = size
        self.granule = granule
        count = -(-size // granule)
        #: The last event of each kind at each cell, and the last one of another program than that one's. NOBODY is 0,
        #: so that cells which nobody touches take no memory.
        self.written, self.read, self.atomic = (np.zeros(count, np.int32) for _ in range(3))
        self.read_before, self.atomic_before = (np.zeros(count, np.int32) for _ in range(2))
        self.undefined: Array | None = None

    def mark_undefined(self, offset: int, undefined: Array) -> None:
        """``undefined``, one flag a byte, holds for the bytes from ``offset`` (negative: before the region) on."""
        low, high = max(0, offset), min(self.size, offset + len(undefined))
        if low >= high or not undefined[low - offset : high - offset].any():
            return
        if self.undefined is None:
            self.undefined = np.zeros(len(self.written), np.bool_)
        cells = np.flatnonzero(undefined[low - offset : high - offset]) + low
        self.undefined[cells // self.granule] = True

    def undefined_bytes(self, offset: int, count: int) -> Array:
        """One flag for each of ``count`` bytes from ``offset`` on; those outside the region count as undefined."""
        made = np.ones(count, np.bool_)
        low, high = max(0, offset), min(self.size, offset + count)
        if low < high:
            own = np.zeros(self.size, np.bool_) if self.undefined is None else self.undefined.repeat(self.granule)
            made[low - offset : high - offset] = own[low:high]
        return made

    def cells(self, offsets: Array, size: int) -> Array:
        """The cells of accesses of ``size`` bytes at byte ``offsets``: one row each."""
        fine = math.gcd(self.granule, size, int(np.gcd.reduce(offsets, initial=0)))
        if fine != self.granule:
            self._refine(fine)
        return offsets[:, None] // self.granule + np.arange(size // self.granule)

    def _refine(self, granule: int) -> None:
        times = self.granule // granule
        for name in ("written", "read", "atomic", "read_before", "atomic_before", "undefined"):
            held = getattr(self, name)
            if held is not None:
                setattr(self, name, held.repeat(times))
        self.granule = granule


def regions_of(buffers: list[ArrayBuffer]) -> list[Region]:
    """One region for each stretch of memory that arrays cover; arrays that overlap share theirs."""
    made: list[Region] = []
    spans = sorted((b.start, b.start + b.size, b.array.dtype.itemsize) for b in buffers if b.size)
    stretch: list[tuple[int, int, int]] = []
    for span in [*spans, None]:
        if span is not None and (not stretch or span[0] < max(end for _, end, _ in stretch)):
            stretch.append(span)
            continue
        if stretch:
            start = stretch[0][0]
            granule = math.gcd(*(size for _, _, size in stretch), *(begin - start for begin, _, _ in stretch))
            made.append(Region(start, max(end for _, end, _ in stretch) - start, max(1, granule)))
        stretch = [span] if span is not None else []
    return made


@dataclass(frozen=True, slots=True)
class RaceWith:
    """Lanes of one access that meet what another program did without order between them."""

    place: SourcePlace
    program: int
    verb: str
    lanes: Array


class Seen(NamedTuple):
    """What shadow memory knows about an access: which of its lanes read what nobody wrote, and its races."""

    undefined: Array
    conflicts: list[RaceWith]


class Shadow:
    """The shadow of all memory of one launch."""

    def __init__(self, regions: list[Region], order: Order) -> None:
        self.regions = regions
        self.order = order
        self.events = AccessEvents()

    def touch(
        self, addresses: Array, size: int, place: SourcePlace, program: int, *, reads: bool, writes: bool, atomic: bool
    ) -> Seen:
        """``program`` accesses ``size`` bytes at each of ``addresses`` (u64), all of them inside arrays or mapped."""
        event = self.events.number(place, program, self.order.epoch)
        undefined = np.zeros(len(addresses), np.bool_)
        conflicts: list[RaceWith] = []
        for region in self.regions:
            offsets = addresses - np.uint64(region.start)
            lanes = np.flatnonzero(offsets < region.size)
            if not len(lanes):
                continue
            cells = region.cells(offsets[lanes].astype(np.int64), size)
            if region.undefined is not None:
                if reads:
                    undefined[lanes] = region.undefined[cells].any(axis=1)
                if writes:
                    region.undefined[cells] = False
            conflicts += self._races(region, cells, lanes, program, writes=writes, atomic=atomic)
            _remember(region, cells, event, self.events.programs, program, writes=writes, atomic=atomic)
        return Seen(undefined, conflicts)

    def _races(
        self, region: Region, cells: Array, lanes: Array, program: int, *, writes: bool, atomic: bool
    ) -> list[RaceWith]:
        found = self._unordered(region.written[cells], lanes, program, "writes")
        if writes and not atomic:
            for last, before, verb in (
                (region.atomic, region.atomic_before, "updates"),
                (region.read, region.read_before, "reads"),
            ):
                # A program that has read or updated what it writes now hides the program that did so before it.
                events = last[cells]
                hidden = self.events.programs[events] == program
                found += self._unordered(np.where(hidden, before[cells], events), lanes, program, verb)
        return found

    def _unordered(self, events: Array, lanes: Array, program: int, verb: str) -> list[RaceWith]:
        programs = self.events.programs[events]
        foreign = (events != NOBODY) & (programs != program)
        if not foreign.any():
            return []
        if self.order.tracked:
            foreign[foreign] = ~self.order.before(programs[foreign], self.events.epochs[events[foreign]])
        made = []
        for event in np.unique(events[foreign])[:1]:  # one is enough to show; all lanes count
            hit = np.flatnonzero(foreign.any(axis=1))
            made.append(RaceWith(self.events.places[event], int(self.events.programs[event]), verb, lanes[hit]))
        return made


def _remember(
    region: Region, cells: Array, event: int, programs: Array, program: int, *, writes: bool, atomic: bool
) -> None:
    if writes and not atomic:
        region.written[cells] = event
        return
    last, before = (region.atomic, region.atomic_before) if atomic else (region.read, region.read_before)
    known = last[cells]
    before[cells] = np.where(programs[known] == program, before[cells], known)
    last[cells] = event
