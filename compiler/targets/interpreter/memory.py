"""The interpreter's memory: real addresses, checked against the arrays that the kernel was given."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ...errors import MemoryAccessError
from ...ir.types import I64
from .numbers import Array


@dataclass(frozen=True, eq=False)
class ArrayBuffer:
    """The bytes of one array, from its first to its last element (strides may leave gaps)."""

    name: str
    array: Array
    start: int
    size: int

    @property
    def bytes(self) -> Array:
        """A view of the memory itself."""
        return _at(self.start, self.size)

    def describe(self, address: int, size: int) -> str:
        """What an access of ``size`` bytes at ``address`` would be in this array, for messages."""
        index = I64.wrap(address - self.start) // size  # a negative offset may wrap around address 0
        return f"element {index} of {self.name} ({self.size // size} elements, address {address:#x})"


class Memory:
    """All memory that a launch may touch.

    Accesses through a pointer that was computed from one argument must stay inside that argument. Other pointers
    (loaded from memory, made from integers) may point into any registered buffer; if the kernel has made such pointers,
    they may also point to memory that the process has mapped with the right permission.
    """

    def __init__(self) -> None:
        self.buffers: list[ArrayBuffer] = []
        self.foreign = False  # whether the kernel has made pointers out of memory or integers

    def register(self, array: Array, name: str = "") -> ArrayBuffer:
        """Make ``array`` accessible; it is used in place and kept alive. Registering it again changes nothing, unless
        it has another name: then it is a buffer of its own over the same bytes."""
        for known in self.buffers:
            if known.array is array and name in ("", known.name):
                return known
        low, high = byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)
        buffer = ArrayBuffer(name or f"array {len(self.buffers)}", array, low, high - low)
        self.buffers.append(buffer)
        return buffer

    def load(self, addresses: Array, dtype: np.dtype[Any], origin: ArrayBuffer | None) -> Array:
        """The elements at ``addresses`` (one dimension, u64).

        Raises:
            MemoryAccessError: with the index of the first bad address in ``.lane``.
        """
        out = np.empty((len(addresses), dtype.itemsize), np.uint8)
        for buffer, lanes, offsets in self._resolve(addresses, dtype.itemsize, origin, False):
            if buffer is None:
                for lane in lanes:
                    out[lane] = _at(int(addresses[lane]), dtype.itemsize)
            else:
                out[lanes] = buffer.bytes[offsets[:, None] + np.arange(dtype.itemsize)]
        return out.view(dtype)[:, 0]

    def store(self, addresses: Array, values: Array, origin: ArrayBuffer | None) -> None:
        """Write ``values`` to ``addresses``, in order; raises as :meth:`load` does."""
        size = values.dtype.itemsize
        data = np.ascontiguousarray(values)[:, None].view(np.uint8)
        for buffer, lanes, offsets in self._resolve(addresses, size, origin, True):
            if buffer is None:
                for lane in lanes:
                    _at(int(addresses[lane]), size)[:] = data[lane]
            else:
                buffer.bytes[offsets[:, None] + np.arange(size)] = data[lanes]

    def reachable(self, addresses: Array, size: int, origin: ArrayBuffer | None, writing: bool) -> Array:
        """For each of ``addresses`` (one dimension, u64) whether ``size`` bytes there may be accessed."""
        fine = np.zeros(len(addresses), np.bool_)
        for buffer in self.buffers if origin is None else [origin]:
            offsets = addresses - np.uint64(buffer.start)
            fine |= (offsets < buffer.size) & (offsets + np.uint64(size) <= buffer.size)
        if origin is None and self.foreign:
            for lane in np.flatnonzero(~fine):
                fine[lane] = _is_mapped(int(addresses[lane]), size, writing)
        return fine

    def _resolve(
        self, addresses: Array, size: int, origin: ArrayBuffer | None, writing: bool
    ) -> list[tuple[ArrayBuffer | None, Array, Array]]:
        """Groups of (buffer, lanes in it, byte offsets); buffer None is mapped memory outside all buffers."""
        found: list[tuple[ArrayBuffer | None, Array, Array]] = []
        left = np.arange(len(addresses))
        for buffer in self.buffers if origin is None else [origin]:
            # Unsigned subtraction wraps, so addresses below the start come out huge.
            offsets = addresses[left] - np.uint64(buffer.start)
            inside = (offsets < buffer.size) & (offsets + np.uint64(size) <= buffer.size)
            if inside.any():
                if writing and not buffer.array.flags.writeable:
                    raise _bad(addresses, int(left[inside][0]), buffer, size, "is read-only")
                found.append((buffer, left[inside], offsets[inside].astype(np.int64)))
                left = left[~inside]
            if not len(left):
                return found
        if len(left) and (origin is not None or not self.foreign):
            raise _bad(addresses, int(left[0]), origin, size, "is outside")
        for lane in left if len(left) else ():
            if not _is_mapped(int(addresses[lane]), size, writing):
                raise _bad(addresses, int(lane), None, size, "is not mapped")
        if len(left):
            found.append((None, left, left))
        return found


class BadAddress(MemoryAccessError):
    """A lane's address cannot be accessed; the operation that tried adds where it stands."""

    def __init__(self, message: str, lane: int) -> None:
        super().__init__(message)
        self.lane = lane


def _bad(addresses: Array, lane: int, buffer: ArrayBuffer | None, size: int, why: str) -> BadAddress:
    address = int(addresses[lane])
    if buffer is None:
        return BadAddress(f"address {address:#x} {why}", lane)
    return BadAddress(f"{buffer.describe(address, size)} {why}", lane)


def _at(address: int, size: int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def _is_mapped(address: int, size: int, writing: bool) -> bool:
    """Whether this process may touch the bytes. Only Linux can tell; elsewhere the answer is no."""
    if not sys.platform.startswith("linux"):
        return False
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, permissions, *_ = line.split(maxsplit=2)
        low, high = (int(part, 16) for part in span.split("-"))
        if low <= address and address + size <= high:
            return permissions.startswith("rw" if writing else "r")
    return False
