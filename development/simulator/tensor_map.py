"""TMA descriptors: boxes of arrays, and where their bytes are (CUDA driver API, cuTensorMapEncodeTiled)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .values import Array, SimulationError

_MOST_IN_BOX = 256
_MOST_ELEMENTS = 1 << 32
_ALIGNMENT = 16


@dataclass(eq=False)
class SimulatedTensorMap:
    """What a launch passes for a descriptor. Dimensions are listed outermost first; the last one is contiguous.

    ``sizes``: extents, beyond which loads give ``padding`` ("zero" or "nan") and stores nothing; ``strides``: in
    elements; ``box``: extents of one copy; ``swizzle``: 32, 64 or 128 bytes, 0 for none.
    """

    array: Array
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    padding: str = "zero"

    def __post_init__(self) -> None:
        item = self.array.dtype.itemsize
        if not 1 <= len(self.sizes) == len(self.strides) == len(self.box) <= 5:
            raise SimulationError("a tensor map has one to five sizes, and as many strides and extents of its box")
        if not all(1 <= size <= _MOST_ELEMENTS for size in self.sizes):
            raise SimulationError(f"a tensor map cannot have the sizes {self.sizes}: 1 to 2^32")
        if self.strides[-1] != 1 or any(s * item % _ALIGNMENT for s in self.strides[:-1]):
            raise SimulationError(
                f"a tensor map cannot have the strides {self.strides}: 1, the others 16 bytes' multiples"
            )
        if not all(0 < extent <= _MOST_IN_BOX for extent in self.box):
            raise SimulationError(f"a tensor map cannot have the box {self.box}: extents are 1 to {_MOST_IN_BOX}")
        row = self.box[-1] * item
        if row % _ALIGNMENT:
            raise SimulationError(f"rows of a box are multiples of 16 bytes, not {row}")
        if self.swizzle not in (0, 32, 64, 128) or (self.swizzle and row > self.swizzle):
            raise SimulationError(f"rows of {row} bytes cannot be swizzled in {self.swizzle} bytes")
        if self.swizzle and row < self.swizzle:
            raise SimulationError(f"the simulator does not know rows of {row} bytes in a swizzle of {self.swizzle}")
        if self.padding not in ("zero", "nan"):
            raise SimulationError(f"a tensor map pads with zero or nan, not {self.padding!r}")

    @property
    def row_bytes(self) -> int:
        return self.box[-1] * self.array.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Of one box, elements outside the array included."""
        return int(np.prod(self.box)) * self.array.dtype.itemsize

    def elements(self, corner: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Byte offset in the array of each element of the box at ``corner`` (outermost first), and which are inside.

        Both are of the shape of the box.
        """
        row = corner[-1] * self.array.dtype.itemsize
        if row % _ALIGNMENT:
            raise SimulationError(
                f"a box begins {row} bytes inside a row: the copy engine stops where 16 do not divide it"
            )
        offset, inside = np.zeros(self.box, np.int64), np.ones(self.box, np.bool_)
        for axis, (start, size, stride) in enumerate(zip(corner, self.sizes, self.strides, strict=True)):
            shape = [1] * len(self.box)
            shape[axis] = -1
            index = (start + np.arange(self.box[axis], dtype=np.int64)).reshape(shape)
            offset = offset + index * stride * self.array.dtype.itemsize
            inside = inside & (index >= 0) & (index < size)
        return offset, inside

    def pad(self) -> npt.NDArray[np.uint8]:
        """The bytes of an element outside the array."""
        value = np.zeros(1, self.array.dtype)
        if self.padding == "nan":
            value[0] = np.nan
        return value.view(np.uint8)


def swizzled(addresses: npt.NDArray[np.int64], swizzle: int) -> npt.NDArray[np.int64]:
    """Where the bytes at ``addresses`` of shared memory are: chunks of 16 bytes change places within 32, 64 or 128.

    PTX ISA, "Swizzling modes": bits 4 to 6 of the address are combined with bits 7 to 9 by exclusive or.
    """
    return addresses ^ ((addresses >> 7 & (swizzle // 16 - 1)) << 4) if swizzle else addresses
