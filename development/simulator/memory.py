"""The memories of a simulated GPU, checked on every access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from .clocks import Actor, Clocks, Threads
from .races import AccessLog
from .tensor_map import SimulatedTensorMap
from .values import Array, SimulationError

_GUARD_BYTES = 256
#: Where the first array is. Every log has entries for what lies below, where no address is valid.
FIRST_ADDRESS = 1 << 16
_FIRST_TENSOR_MAP = 1 << 40
_TENSOR_MAP_BYTES = 128


class SimulatedMemory:
    """Bytes with a range of valid addresses; ``written`` says which ones hold data."""

    def __init__(self, what: str, size: int, *, initialised: bool, clocks: Clocks | None = None) -> None:
        self.what = what
        self.clocks = clocks or Clocks()
        self.bytes = np.zeros(size, np.uint8)
        self.valid = np.full(size, not initialised)
        self.written = np.full(size, initialised)
        self.log = AccessLog(what, size, self.clocks)

    def _indices(
        self, addresses: npt.NDArray[np.int64], size: int, align: int, active: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64]:
        first = addresses[active]
        if len(first) and (first % align).any():
            bad = int(first[first % align != 0][0])
            raise SimulationError(f"{self.what} access of {size} bytes at {bad:#x} is not aligned")
        indices = first[:, None] + np.arange(size)
        self._check_range(indices)
        return indices

    def _check_range(self, indices: npt.NDArray[np.int64]) -> None:
        if indices.size and (indices.min() < 0 or indices.max() >= len(self.bytes)):
            raise SimulationError(f"{self.what} access at {int(indices.min()):#x} is out of range")
        if not self.valid[indices].all():
            raise SimulationError(f"{self.what} access outside every array")

    def read(self, indices: npt.NDArray[np.int64], actor: Actor) -> npt.NDArray[np.uint8]:
        """The bytes at ``indices``, whose row i agent i of ``actor`` reads."""
        self._check_range(indices)
        return self._read(indices, actor)

    def _read(self, indices: npt.NDArray[np.int64], actor: Actor) -> npt.NDArray[np.uint8]:
        self.log.read(indices, actor)
        if not self.written[indices].all():
            raise SimulationError(f"{self.what} is read before it was written")
        return self.bytes[indices]

    def write(self, indices: npt.NDArray[np.int64], raw: npt.NDArray[np.uint8], actor: Actor) -> None:
        """Write ``raw`` at ``indices``, row i by agent i of ``actor``; unlike in ``store``, equal values race too."""
        self._check_range(indices)
        self.log.write(indices, actor)
        self.bytes[indices] = raw
        self.written[indices] = True

    def load(
        self,
        addresses: Array,
        dtype: np.dtype[np.generic],
        count: int,
        align: int,
        active: npt.NDArray[np.bool_],
        threads: Threads,
    ) -> Array:
        """``count`` elements per active lane, as an array (32, count); other lanes get zeros.

        ``threads``: the numbers of the lanes within their program, here and below.
        """
        size = dtype.itemsize * count
        indices = self._indices(addresses.astype(np.int64), size, align, active)
        raw = np.zeros((len(addresses), size), np.uint8)
        if len(indices):
            raw[active] = self._read(indices, Actor(self.clocks, threads[active]))
        return raw.view(dtype)

    def store(
        self,
        addresses: Array,
        values: Array,
        align: int,
        active: npt.NDArray[np.bool_],
        threads: Threads,
    ) -> None:
        """Store the rows of ``values`` (32, count)."""
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(addresses), -1)
        indices = self._indices(addresses.astype(np.int64), raw.shape[1], align, active)
        if not len(indices):
            return
        self.log.write(indices, Actor(self.clocks, threads[active]), self.bytes[indices] != raw[active])
        self.bytes[indices] = raw[active]
        if (self.bytes[indices] != raw[active]).any():
            raise SimulationError(f"race in {self.what}: several lanes store different values to one byte")
        self.written[indices] = True

    def change(
        self,
        addresses: npt.NDArray[np.int64],
        dtype: np.dtype[np.generic],
        update: Callable[..., Array],
        operands: Sequence[Array],
        threads: Threads,
    ) -> Array:
        """An atomic operation of each of ``threads``, which leaves ``update(old, *operands)``: what was there.

        Operations on one address take place one after the other.
        """
        if len(addresses) > 1 and len(np.unique(addresses)) < len(addresses):
            ones = [slice(i, i + 1) for i in range(len(addresses))]
            made = [self.change(addresses[i], dtype, update, [x[i] for x in operands], threads[i]) for i in ones]
            return np.concatenate(made)
        indices = self._indices(addresses, dtype.itemsize, dtype.itemsize, np.ones(len(addresses), np.bool_))
        self.log.change(indices, Actor(self.clocks, threads))
        old: Array = self.bytes[indices].view(dtype)[:, 0]
        self.bytes[indices] = update(old, *operands).astype(dtype)[:, None].view(np.uint8)
        return old

    def take_away(self, address: int, size: int, thread: Threads) -> None:
        """Bytes that become an object of the hardware: ``thread`` writes them now, and no access is valid later."""
        indices = np.arange(address, address + size)[None]
        self._check_range(indices)
        self.log.write(indices, Actor(self.clocks, thread))
        self.valid[indices] = False


class GlobalMemory(SimulatedMemory):
    """Holds copies of the arrays given to a launch, with invalid bytes between them. Arrays that are parts of one are
    where they are in it, so that what is written through one is read through another."""

    def __init__(self, arrays: Sequence[Array], clocks: Clocks) -> None:
        """An array that is given twice is held once."""
        self._arrays = {id(array): array for array in arrays}
        self._starts: dict[int, int] = {}
        self._tensor_maps: dict[int, SimulatedTensorMap] = {}
        end = FIRST_ADDRESS
        for together in _by_memory(self._arrays.values()):
            begin, last = min(a.ctypes.data for a in together), max(a.ctypes.data + a.nbytes for a in together)
            shift = begin % _GUARD_BYTES if len(together) > 1 else 0
            for array in together:
                self._starts[id(array)] = end + shift + array.ctypes.data - begin
            end += -(-(shift + last - begin) // _GUARD_BYTES) * _GUARD_BYTES + _GUARD_BYTES
        super().__init__("global memory", end, initialised=True, clocks=clocks)
        for array in self._arrays.values():
            place = slice(self.start(array), self.start(array) + array.nbytes)
            self.bytes[place] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
            self.valid[place] = True

    def start(self, array: Array) -> int:
        """The address of one of the arrays."""
        return self._starts[id(array)]

    def read_back(self) -> None:
        """Copy what the kernel left behind into the arrays."""
        for array in self._arrays.values():
            raw = self.bytes[self.start(array) : self.start(array) + array.nbytes]
            array[...] = raw.view(array.dtype).reshape(array.shape)

    def add_tensor_map(self, tensor_map: SimulatedTensorMap) -> int:
        """The address of a descriptor, which the kernel passes on and does not read."""
        address = _FIRST_TENSOR_MAP + len(self._tensor_maps) * _TENSOR_MAP_BYTES
        self._tensor_maps[address] = tensor_map
        return address

    def tensor_map(self, address: int) -> SimulatedTensorMap:
        """The descriptor at ``address``."""
        if address not in self._tensor_maps:
            raise SimulationError(f"there is no tensor map at {address:#x}")
        return self._tensor_maps[address]


def _by_memory(arrays: Iterable[Array]) -> list[list[Array]]:
    """The arrays in groups that are contiguous parts of one array."""
    groups: dict[int, list[Array]] = {}
    for array in arrays:
        whole = array
        while array.flags.c_contiguous and isinstance(whole.base, np.ndarray):
            whole = whole.base
        groups.setdefault(id(whole), []).append(array)
    return list(groups.values())
