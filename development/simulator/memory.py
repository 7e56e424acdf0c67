"""The memories of a simulated GPU, checked on every access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .races import AccessLog
from .values import Array, SimulationError

_GUARD_BYTES = 256
_FIRST_ADDRESS = 1 << 20


class SimulatedMemory:
    """Bytes with a range of valid addresses; ``written`` says which ones hold data."""

    def __init__(self, what: str, size: int, *, initialised: bool) -> None:
        self.what = what
        self.bytes = np.zeros(size, np.uint8)
        self.valid = np.full(size, not initialised)
        self.written = np.full(size, initialised)
        self.log = AccessLog(what, size)

    def _indices(
        self, addresses: npt.NDArray[np.int64], size: int, align: int, active: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64]:
        first = addresses[active]
        if len(first) and (first % align).any():
            bad = int(first[first % align != 0][0])
            raise SimulationError(f"{self.what} access of {size} bytes at {bad:#x} is not aligned")
        indices = first[:, None] + np.arange(size)
        if indices.size and (indices.min() < 0 or indices.max() >= len(self.bytes)):
            raise SimulationError(f"{self.what} access at {int(first.min()):#x} is out of range")
        if not self.valid[indices].all():
            raise SimulationError(f"{self.what} access outside every array")
        return indices

    def load(
        self,
        addresses: Array,
        dtype: np.dtype[np.generic],
        count: int,
        align: int,
        active: npt.NDArray[np.bool_],
        threads: npt.NDArray[np.int32],
    ) -> Array:
        """``count`` elements per active lane, as an array (32, count); other lanes get zeros.

        ``threads``: the numbers of the lanes within their program, here and below.
        """
        size = dtype.itemsize * count
        indices = self._indices(addresses.astype(np.int64), size, align, active)
        self.log.read(indices, threads[active])
        if not self.written[indices].all():
            raise SimulationError(f"{self.what} is read before it was written")
        raw = np.zeros((len(addresses), size), np.uint8)
        raw[active] = self.bytes[indices]
        return raw.view(dtype)

    def store(
        self,
        addresses: Array,
        values: Array,
        align: int,
        active: npt.NDArray[np.bool_],
        threads: npt.NDArray[np.int32],
    ) -> None:
        """Store the rows of ``values`` (32, count)."""
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(addresses), -1)
        indices = self._indices(addresses.astype(np.int64), raw.shape[1], align, active)
        self.log.write(indices, threads[active], self.bytes[indices] != raw[active])
        self.bytes[indices] = raw[active]
        if (self.bytes[indices] != raw[active]).any():
            raise SimulationError(f"race in {self.what}: several lanes store different values to one byte")
        self.written[indices] = True

    def change(self, address: int, dtype: np.dtype[np.generic], update: Callable[[Any], Any], thread: int) -> Any:
        """One thread's atomic operation: what was at ``address``, where ``update`` of it is left."""
        where, one = np.array([address], np.int64), np.ones(1, np.bool_)
        indices = self._indices(where, dtype.itemsize, dtype.itemsize, one)
        self.log.change(indices, np.array([thread], np.int32))
        old = self.bytes[indices].view(dtype)[0, 0]
        self.bytes[indices] = np.array([[update(old)]], dtype).view(np.uint8)
        return old


class GlobalMemory(SimulatedMemory):
    """Holds copies of the arrays given to a launch, with invalid bytes between them."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        starts = []
        end = _FIRST_ADDRESS
        for array in arrays:
            starts.append(end)
            end += -(-array.nbytes // _GUARD_BYTES) * _GUARD_BYTES + _GUARD_BYTES
        super().__init__("global memory", end, initialised=True)
        self.starts = starts
        self._arrays = list(arrays)
        for start, array in zip(starts, arrays, strict=True):
            place = slice(start, start + array.nbytes)
            self.bytes[place] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
            self.valid[place] = True

    def read_back(self) -> None:
        """Copy what the kernel left behind into the arrays."""
        for start, array in zip(self.starts, self._arrays, strict=True):
            raw = self.bytes[start : start + array.nbytes]
            array[...] = raw.view(array.dtype).reshape(array.shape)
