"""Numbers about recorded accesses: what a GPU would have to move for them, and which elements are touched again.

The numbers are of the program's text, before any compiler has moved, joined or dropped accesses. Warps are taken to be
32 consecutive elements of a tile in row-major order. Sectors of 32 bytes are what moves between L2 and L1 on NVIDIA
GPUs since Volta, lines of 128 bytes what L1 looks up ("CUDA C++ Best Practices Guide", coalesced access to global
memory); shared memory has 32 banks of 4 bytes ("CUDA C++ Programming Guide", compute capability 5.x and later).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deuteron.compiler.hardware import BANK_BYTES, BANKS, LANES, LINE_BYTES, SECTOR_BYTES
from deuteron.compiler.targets.interpreter.numbers import Array

from .record import AccessKind, RecordedAccess, RecordedArray, RecordedLaunch


@dataclass(frozen=True, slots=True)
class Traffic:
    """What groups of 32 elements ask for: ``groups`` with at least one active element, ``asked`` bytes of active
    elements, and the sectors and lines that each group touches, added up over groups."""

    groups: int
    asked: int
    sectors: int
    lines: int

    @property
    def moved(self) -> int:
        """Bytes of the sectors."""
        return self.sectors * SECTOR_BYTES


@dataclass(frozen=True, slots=True)
class Reuse:
    """How often elements are touched: ``distinct`` ones at all, ``again`` more than once by one program (counted once
    for each such program), ``several`` by more than one program."""

    distinct: int
    again: int
    several: int


@dataclass(frozen=True, slots=True)
class OperationNumbers:
    """One operation over all of its recorded executions.

    ``asked`` and ``traffic`` are about active elements, those outside arrays included: the kernel asks for them.
    ``conflicts``: see :func:`bank_conflicts`, the worst of all executions.
    """

    executions: int
    programs: int
    active: int
    masked_off: int
    outside: int
    traffic: Traffic
    conflicts: tuple[int, int]
    reuse: Reuse


@dataclass(frozen=True, slots=True)
class ArrayNumbers:
    """One array over all recorded accesses: ``read`` and ``written`` say how its elements are touched (atomics do
    both); ``outside`` counts elements of tiles that were computed from it and lie elsewhere."""

    bytes_read: int
    bytes_written: int
    read: Reuse
    written: Reuse
    outside: int


def traffic(addresses: Array, groups: Array, size: int) -> Traffic:
    """The traffic of elements of ``size`` bytes at ``addresses`` (u64), each in the group of that number."""
    return Traffic(
        groups=len(np.unique(groups)),
        asked=len(addresses) * size,
        sectors=_touched(addresses, groups, size, SECTOR_BYTES),
        lines=_touched(addresses, groups, size, LINE_BYTES),
    )


def _touched(addresses: Array, groups: Array, size: int, unit: int) -> int:
    """Distinct pairs of group and unit of memory; an element that lies across an edge is in two units."""
    first, last = addresses // np.uint64(unit), (addresses + np.uint64(size - 1)) // np.uint64(unit)
    across = last != first
    units = np.concatenate([first, last[across]])
    _, code = np.unique(units, return_inverse=True)
    return len(np.unique(np.concatenate([groups, groups[across]]) * len(units) + code))


def bank_conflicts(shape: Sequence[int], size: int, active: Array) -> tuple[int, int]:
    """How many times over a warp has to go to shared memory for a tile that lies there in row-major order.

    Two numbers: for warps of 32 consecutive elements along rows, and for warps of 32 along columns (the last two
    dimensions change places), as code that transposes has them. Each is the largest number of different 4-byte words
    that one warp wants from one bank, so 1 is free of conflicts; elements of 8 bytes need 2 at least. Elements that are
    not ``active`` want nothing; 0 where none is active.
    """
    lanes = np.arange(len(active))
    if len(shape) < 2:
        degree = _degree(lanes, size, active)
        return degree, degree
    columns = np.swapaxes(lanes.reshape(shape), -1, -2).reshape(-1)
    return _degree(lanes, size, active), _degree(columns, size, active)


def _degree(order: Array, size: int, active: Array) -> int:
    """The worst bank of the worst warp, when warps take elements in ``order``."""
    chosen = active[order]
    groups, places = np.flatnonzero(chosen) // LANES, order[chosen] * size
    if not len(places):
        return 0
    words = [(places + byte) // BANK_BYTES for byte in range(0, max(size, 1), BANK_BYTES)]
    spread = int(places.max()) + size
    pairs = np.unique(np.concatenate([groups * spread + word for word in words]))
    banks = pairs // spread * BANKS + pairs % spread % BANKS
    return int(np.bincount(banks).max())


def reuse(elements: Array, programs: Array) -> Reuse:
    """The reuse of ``elements`` (any numbers that tell them apart), each touched by the program beside it."""
    if not len(elements):
        return Reuse(0, 0, 0)
    unique, code = np.unique(elements, return_inverse=True)
    pairs, times = np.unique(code * (int(programs.max()) + 1) + programs, return_counts=True)
    of_element = np.bincount(pairs // (int(programs.max()) + 1))
    return Reuse(len(unique), int((times > 1).sum()), int((of_element > 1).sum()))


def operation_numbers(launch: RecordedLaunch) -> list[OperationNumbers]:
    """The numbers of each of the launch's operations, in their order."""
    runs: list[list[RecordedAccess]] = [[] for _ in launch.operations]
    for access in launch.accesses:
        runs[access.operation].append(access)
    return [_of_operation(launch, number, accesses) for number, accesses in enumerate(runs)]


def _of_operation(launch: RecordedLaunch, number: int, accesses: Sequence[RecordedAccess]) -> OperationNumbers:
    operation = launch.operations[number]
    active = np.concatenate([access.active for access in accesses])
    tile = len(accesses[0].active)
    addresses = np.concatenate([access.addresses for access in accesses])[active]
    # A tile's last group may be short: groups do not go on in the next execution.
    groups = np.concatenate([np.arange(tile) // LANES + i * -(-tile // LANES) for i in range(len(accesses))])[active]
    programs = np.repeat([access.program for access in accesses], tile)[active]
    masks = {access.active.tobytes(): access.active for access in accesses}
    worst = [bank_conflicts(operation.shape, operation.size, mask) for mask in masks.values()]
    return OperationNumbers(
        executions=len(accesses),
        programs=len({access.program for access in accesses}),
        active=int(active.sum()),
        masked_off=int((~active).sum()),
        outside=sum(int(access.outside.sum()) for access in accesses),
        traffic=traffic(addresses, groups, operation.size),
        conflicts=(max(rows for rows, _ in worst), max(columns for _, columns in worst)),
        reuse=reuse(addresses, programs),
    )


def array_numbers(launch: RecordedLaunch) -> list[ArrayNumbers]:
    """The numbers of each of the launch's arrays, in their order."""
    return [_of_array(launch, number, array) for number, array in enumerate(launch.arrays)]


def _of_array(launch: RecordedLaunch, number: int, array: RecordedArray) -> ArrayNumbers:
    touched: dict[bool, list[tuple[Array, Array]]] = {False: [], True: []}
    moved = {False: 0, True: 0}
    outside = 0
    for access in launch.accesses:
        if access.array not in (number, -1):
            continue
        operation = launch.operations[access.operation]
        addresses = access.addresses[access.active & ~access.outside]
        if access.array < 0:
            addresses = addresses[arrays_at(launch.arrays, addresses) == number]
        else:
            outside += int(access.outside.sum())
        places = elements_at(array, addresses, operation.size)
        for writes in {AccessKind.LOAD: (False,), AccessKind.STORE: (True,)}.get(operation.kind, (False, True)):
            touched[writes].append((places, np.full(len(places), access.program)))
            moved[writes] += len(addresses) * operation.size
    read, written = (_joined(touched[writes]) for writes in (False, True))
    return ArrayNumbers(moved[False], moved[True], read, written, outside)


def _joined(parts: Sequence[tuple[Array, Array]]) -> Reuse:
    if not parts:
        return Reuse(0, 0, 0)
    return reuse(np.concatenate([places for places, _ in parts]), np.concatenate([who for _, who in parts]))


def elements_at(array: RecordedArray, addresses: Array, size: int) -> Array:
    """The elements of ``array`` that accesses of ``size`` bytes at ``addresses`` touch: several each where theirs are
    smaller."""
    steps = range(0, size, array.itemsize) if array.itemsize else range(0)
    found = np.concatenate([array.positions(addresses + np.uint64(step)) for step in steps])
    return found[found >= 0]


def arrays_at(arrays: Sequence[RecordedArray], addresses: Array) -> Array:
    """For each address the number of the first array that it is in, -1 where there is none."""
    found = np.full(len(addresses), -1)
    for number, array in enumerate(arrays):
        inside = addresses - np.uint64(array.start) < np.uint64(array.size)
        found[(found < 0) & inside] = number
    return found
