"""Recorded accesses as data: launches, their arrays and operations, and which addresses each access asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from deuteron.compiler.errors import Location
from deuteron.compiler.targets.interpreter.numbers import Array

#: Elements of tiles that are recorded unless somebody says otherwise: 8 bytes each, and a bit more.
MOST_ELEMENTS = 4_000_000
#: Sentences about what a record lacks.
MOST_NOTES = 20


class AccessKind(StrEnum):
    """What an operation does to memory."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which accesses are recorded; what else runs, runs unrecorded.

    ``launch`` counts from 1, over the launches of ``kernel`` if there is one. ``programs`` are numbers as programs are
    counted, the first axis of the grid fastest; None stands for all. ``most_elements`` bounds the record: an access
    that does not fit any more is left out as a whole, and counted.
    """

    kernel: str | None = None
    launch: int | None = None
    programs: frozenset[int] | None = None
    most_elements: int = MOST_ELEMENTS


@dataclass(frozen=True)
class RecordedArray:
    """An array as the launch saw it: ``size`` bytes from address ``start``, and how elements lie in them.

    ``strides`` are in bytes and may be negative. ``dtype`` is the kernel's name for the elements.
    """

    name: str
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    size: int

    @property
    def elements(self) -> int:
        """How many elements the array has."""
        return int(np.prod(self.shape, dtype=np.int64))

    def positions(self, addresses: Array) -> Array:
        """For each address (u64) the number of the element there, counted in C order over ``shape``.

        -1 stands for addresses before or behind the array, and for those between the elements of a view with gaps. Of
        elements that lie on each other (strides of 0, overlapping windows) one answers.
        """
        rest = (addresses - np.uint64(self.start)).view(np.int64)  # below the start: negative, or far beyond the end
        fine = (rest >= 0) & (rest < self.size)
        rest = np.where(fine, rest, 0)
        found = np.zeros(len(addresses), np.int64)
        # From the longest stride down, each index is what its stride goes into the distance.
        for axis in sorted(range(len(self.shape)), key=lambda axis: -abs(self.strides[axis])):
            length, stride = self.shape[axis], self.strides[axis]
            if length < 2 or stride == 0:
                continue
            index = rest // abs(stride)
            fine &= index < length
            rest = rest - index * abs(stride)
            weight = int(np.prod(self.shape[axis + 1 :], dtype=np.int64))
            found += (index if stride > 0 else length - 1 - index) * weight
        return np.where(fine & (rest < self.itemsize), found, -1)


@dataclass(frozen=True, slots=True)
class RecordedOperation:
    """One operation of the kernel: ``shape`` is its tile's, ``size`` the bytes of an element of it."""

    kind: AccessKind
    location: Location | None
    text: str
    shape: tuple[int, ...]
    dtype: str
    size: int


@dataclass(frozen=True, slots=True)
class RecordedAccess:
    """One operation, run once by one program.

    ``addresses`` (u64) has one for each element of the tile in row-major order; ``active`` says which of them the mask
    or the bounds let through, ``outside`` which of those are in none of the arrays that they may be in: they were
    neither read nor written. ``array`` is the number of the argument that the pointers were computed from, -1 if they
    come from memory or integers.
    """

    operation: int
    program: int
    array: int
    addresses: Array
    active: Array
    outside: Array


@dataclass
class LeftOut:
    """What ran and is not in the record because it was full."""

    accesses: int = 0
    elements: int = 0
    programs: set[int] = field(default_factory=set)


@dataclass
class RecordedLaunch:
    """One launch: ``number`` counts all launches of the run from 1; ``programs`` are those that were wanted."""

    kernel: str
    number: int
    grid: tuple[int, int, int]
    arrays: tuple[RecordedArray, ...]
    programs: int = 0
    operations: list[RecordedOperation] = field(default_factory=list)
    accesses: list[RecordedAccess] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)

    def program_id(self, serial: int) -> tuple[int, int, int]:
        """The place in the grid of the ``serial``-th program."""
        x, y, _ = self.grid
        return serial % x, serial // x % y, serial // (x * y)

    @property
    def outside(self) -> int:
        """How many recorded elements lie outside their arrays."""
        return sum(int(access.outside.sum()) for access in self.accesses)


@dataclass
class AccessRecord:
    """The launches of a run that were wanted, and how many of each kernel there were."""

    launches: list[RecordedLaunch] = field(default_factory=list)
    ran: dict[str, int] = field(default_factory=dict)
    elements: int = 0

    def notes(self) -> list[str]:
        """What the record lacks, in sentences; none where it has everything that ran. Of many launches that lack
        something the first ones are named."""
        total = sum(self.ran.values())
        said = []
        if len(self.launches) < total:
            said.append(f"{len(self.launches)} of {total} launches were asked for")
        for launch in self.launches:
            what = f"launch {launch.number} of {launch.kernel}"
            x, y, z = launch.grid
            if launch.programs < x * y * z:
                said.append(f"{what}: {launch.programs} of {x * y * z} programs were asked for")
            left = launch.left_out
            if left.accesses:
                kept = sum(len(access.addresses) for access in launch.accesses)
                said.append(
                    f"{what}: the record was full: {left.accesses} accesses with {left.elements} elements, in "
                    f"{len(left.programs)} programs, are missing from pictures and numbers; {kept} elements are there"
                )
        more = len(said) - MOST_NOTES
        return said if more <= 0 else [*said[:MOST_NOTES], f"and {more} more notes of this kind"]
