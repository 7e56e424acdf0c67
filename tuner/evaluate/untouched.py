"""What a launch must leave as it is: compared afterwards with what was there, on a GPU by a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deuteron.compiler.runtime.cpu.device import HostArray

from ..workloads.lanes import in_lanes
from ..workloads.tolerance import EXACT, Expected
from .comparison import device_comparison

if TYPE_CHECKING:
    import numpy as np

    from deuteron.compiler.runtime.device import Device, DeviceArray


class Untouched:
    """An array of unsigned integers in a device's memory that holds the elements of ``row`` again and again."""

    def __init__(self, device: Device, array: DeviceArray, row: np.ndarray) -> None:
        self._array, self._row = array, row
        self._there = None
        if device.properties.kind == "cuda":
            self._there = device_comparison(device, Expected("", row, EXACT), array.dtype, repeated=True)

    def restore(self) -> None:
        """Write the elements, on the device as well."""
        self._array.fill(self._row)
        if self._there is not None:
            self._there.restore()

    def changed(self) -> int:
        """How many elements are others. What the device finds is counted on the host, which has the last word. Waits
        for the device."""
        if self._there is not None and self._there.worst(self._array) == 0:
            return 0
        array = self._array
        return _differing(array.numpy if isinstance(array, HostArray) else array.to_numpy(), self._row)


def _differing(values: np.ndarray, row: np.ndarray) -> int:
    """How many elements of ``values`` are not those of ``row``, repeated; both of rank 1."""
    import numpy as np

    def count(chunks: list[slice]) -> int:
        pieces = (piece for chunk in chunks for piece in _pieces(chunk, len(row)))
        return sum(int(np.count_nonzero(values[here] != row[there])) for here, there in pieces)

    return sum(in_lanes(count, values.size))


def _pieces(chunk: slice, period: int) -> Iterator[tuple[slice, slice]]:
    """A chunk cut where the row begins again, and what of the row each part holds."""
    start = chunk.start
    while start < chunk.stop:
        at = start % period
        stop = min(chunk.stop, start - at + period)
        yield slice(start, stop), slice(at, at + stop - start)
        start = stop
