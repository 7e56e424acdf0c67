"""Margins around the tensors that configurations are checked with: what is written there was written outside, and what
is read there shows in the result.

A configuration that stores one element behind its output gives the right result and may even be the fastest. In the
caller's memory that element belongs to something else. So does what is read beyond the end of an input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deuteron.compiler.runtime.arrays.dtypes import item_bytes, numpy_dtype

from ..workloads.inputs import outside
from .untouched import Untouched

if TYPE_CHECKING:
    import numpy as np

    from deuteron.compiler.runtime.device import Device, DeviceArray

# Whole pages: what is timed lies as it would without them, in caches as well.
_PAGE = 4096
#: Bytes before and behind a tensor: a quarter of its own, but at least and at most so many. Kernels that go wrong miss
#: by a row or a tile, and looking at that much takes less time than comparing the tensor.
LEAST_MARGIN, MOST_MARGIN = 1 << 16, 1 << 22


def margin_bytes(size: int) -> int:
    """Bytes before a tensor of ``size`` bytes, and behind it."""
    return min(max(size // 4 // _PAGE * _PAGE, LEAST_MARGIN), MOST_MARGIN)


class Margins:
    """A tensor in the middle of an allocation of its own, and what is around it."""

    def __init__(self, device: Device, name: str, shape: Sequence[int], dtype: str) -> None:
        self._name, self._item = name, item_bytes(dtype)
        size = math.prod(shape) * self._item
        self._margin = margin_bytes(size)
        whole = device.empty((size + 2 * self._margin,), "u8")
        #: The tensor, not initialised; and as unsigned integers of the same size, in one dimension.
        self.array: DeviceArray = whole.part(self._margin, shape, dtype)
        self.bits: DeviceArray = self._integers(whole, self._margin, size)
        row = _repeated(outside(numpy_dtype(dtype)))
        self._sides = (
            ("before", Untouched(device, self._integers(whole, 0, self._margin), row)),
            ("behind", Untouched(device, self._integers(whole, self._margin + size, self._margin), row)),
        )
        for _, side in self._sides:
            side.restore()

    def damage(self) -> str | None:
        """What was written around the tensor since the last time, in words; it is as before then. Waits for the
        device."""
        found = []
        for where, side in self._sides:
            written = side.changed() * self._item
            if written:
                side.restore()
                more = " or more" if written == self._margin else ""
                found.append(f"{written} bytes{more} {where} {self._name!r}")
        return f"wrote {' and '.join(found)}" if found else None

    def _integers(self, whole: DeviceArray, start: int, size: int) -> DeviceArray:
        return whole.part(start, (size // self._item,), f"u{8 * self._item}")


def _repeated(row: np.ndarray) -> np.ndarray:
    """Enough of it that few copies fill a margin."""
    import numpy as np

    return np.tile(row, LEAST_MARGIN // row.nbytes)
