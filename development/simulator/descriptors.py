"""Matrix descriptors of wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout").

A matrix is made of rows of 16 bytes, eight of which make a core matrix; a descriptor says where the first one is, how
far apart its neighbours are in both directions, and how addresses are swizzled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .tensor_map import swizzled
from .values import SimulationError

_CHUNK = 16
_ROWS = 8
_SWIZZLES = (0, 128, 64, 32)


@dataclass(frozen=True)
class MatrixDescriptor:
    """The fields of a descriptor, in bytes."""

    start: int
    leading: int
    stride: int
    swizzle: int

    @classmethod
    def decode(cls, bits: int) -> MatrixDescriptor:
        """Bits 0-13, 16-29 and 32-45 count 16 bytes; 49-51 is the base offset; 62-63 the swizzle."""
        if bits >> 49 & 7:
            raise SimulationError("the simulator does not know descriptors with a base offset")
        start, leading, stride = ((bits >> shift & 0x3FFF) * _CHUNK for shift in (0, 16, 32))
        return cls(start, leading, stride, _SWIZZLES[bits >> 62 & 3])

    def addresses(self, extent: int, depth: int, item: int, *, transposed: bool) -> npt.NDArray[np.int64]:
        """Byte address of element (i, k) of a matrix of ``extent`` rows or columns by ``depth``: (extent, depth).

        Elements lie side by side along k, or along i if ``transposed``.
        """
        i, k = np.arange(extent)[:, None], np.arange(depth)[None, :]
        inner, outer = (i, k) if transposed else (k, i)
        offset = self._along(inner * item, transposed) + self._across(outer, transposed)
        return swizzled(self.start + offset, self.swizzle)

    def _along(self, position: npt.NDArray[np.int64], transposed: bool) -> npt.NDArray[np.int64]:
        """Offset of the byte ``position`` of a row: chunks of a swizzled row lie side by side."""
        row = self.swizzle or _CHUNK
        # Without swizzle, the next chunk of a transposed matrix is a stride away, otherwise a leading offset.
        step = self.stride if transposed and not self.swizzle else self.leading
        if not transposed and self.swizzle and position.max() >= row:
            raise SimulationError(f"a row of {int(position.max()) + 1} bytes in a swizzle of {row}")
        return position // row * step + position % row

    def _across(self, number: npt.NDArray[np.int64], transposed: bool) -> npt.NDArray[np.int64]:
        """Offset of row ``number``: eight of them follow each other."""
        step = self.leading if transposed and not self.swizzle else self.stride
        return number // _ROWS * step + number % _ROWS * (self.swizzle or _CHUNK)
