"""Numbers that kernels leave for the host: what a tensor holds when its stream gets there, told without waiting for it.

A kernel of one block copies the tensor to memory of the host that devices see as well, so it can be captured in a graph
like any other and then tells the numbers of each replay. Entries of all streams of a device follow one another in a
ring: a header, then a word of 64 bits for every element, as float64 or int64. A kernel reserves room by an atomic add,
and writes the header last, with release semantics at system scope (PTX ISA, "Memory Consistency Model"); the host reads
up to the first header that is zero, and leaves zeros behind.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_void_p
from functools import cache
from typing import TYPE_CHECKING, Any

from deuteron.compiler import CompiledKernel, compile, get_device, knobs
from deuteron.compiler.runtime.arrays.arguments import readers
from deuteron.compiler.runtime.cuda import driver as cuda

from ..errors import MetricError
from .kernels import tell_metric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WORD = 8  # bytes
_COUNT_BITS = 24  # of a header; the others are the number that the entry was written under
_MOST_ELEMENTS = (1 << _COUNT_BITS) - 1
_BLOCK = 128
FIRST = 16  # words before the ring
_PORTABLE, _MAPPED = 1, 2  # CU_MEMHOSTALLOC_*
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE


def header_of(number: int, count: int) -> int:
    """What stands before ``count`` words that are told under ``number``."""
    return number << _COUNT_BITS | count


class Ring:
    """Memory that a device's kernels write to, as int64: a count of the words reserved so far, and from word FIRST on a
    ring, whose size is a power of two. ``lost``: entries were overwritten before they were read."""

    def __init__(self, memory: NDArray[np.int64]) -> None:
        self.address = int(memory.ctypes.data)
        self.last = len(memory) - FIRST - 1
        self.lost = False
        self._reserved, self._words = memory[:1], memory[FIRST:]
        self._read = 0

    @property
    def first(self) -> int:
        """The address of the first word of the ring."""
        return self.address + FIRST * _WORD

    def take(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Numbers of entries and their words, oldest first; never waits."""
        import numpy as np

        if int(self._reserved[0]) - self._read > self.last + 1:
            self.restart()
            self.lost = True
        while header := int(self._words[self._read & self.last]):
            count = header & _MOST_ELEMENTS
            at = (self._read + 1 + np.arange(count)) & self.last
            values = self._words[at]
            self._words[at] = 0
            self._words[self._read & self.last] = 0
            self._read += count + 1
            yield header >> _COUNT_BITS, values

    def restart(self) -> None:
        """Forget what is there: graphs of a session that has ended may still write."""
        self._words[:] = 0
        self._read = int(self._reserved[0])


def pinned(size_bytes: int) -> NDArray[np.int64]:
    """Zeros in memory of the host that every device sees, for a ring of this many bytes or somewhat more."""
    import numpy as np

    words = FIRST + (1 << (max(size_bytes // _WORD, _BLOCK) - 1).bit_length())
    address = cuda.integer("cuMemHostAlloc", words * _WORD, _PORTABLE | _MAPPED)
    memory: NDArray[np.int64] = np.ctypeslib.as_array((ctypes.c_int64 * words).from_address(address))
    memory[:] = 0
    return memory


# For good: graphs that were captured may be launched as long as the process lives.
_rings: dict[int, Ring] = {}


class MetricKernels:
    """Launches the kernels that tell metrics, and reads what they told."""

    def __init__(self) -> None:
        for ring in _rings.values():
            ring.restart()

    def is_capturing(self, stream: int | None = None) -> bool:
        """Whether launches to a stream, None for the current one, are captured in a graph."""
        driver, status, device = cuda.library(), c_int(), c_int()
        if driver is None:
            return False
        if stream is None:
            if driver.cuCtxGetDevice(byref(device)):
                return False
            stream = cuda.streams.current(device.value)
        return not driver.cuStreamIsCapturing(c_void_p(stream), byref(status)) and status.value == _ACTIVE

    def write(self, number: int, tensor: Any, as_float: bool, stream: int | None = None) -> None:  # torch has no types
        """Have the elements of a tensor told under ``number``, by a kernel in a stream of its device.

        Raises:
            MetricError: it has no elements, or more than the ring has room for.
        """
        tensor = tensor.contiguous()
        key, address = readers[tensor.__class__](tensor)
        count, index = int(tensor.numel()), int(tensor.device.index)
        ring = self._ring(index)
        if not 0 < count <= min(_MOST_ELEMENTS, ring.last // 4):
            raise MetricError(
                f"a tensor of {count} elements cannot be a metric: the buffer of metrics has room for {ring.last // 4}",
                hint="reduce it first, or set DEUTERON_PROFILE_METRIC_BUFFER_SIZE",
            )
        pointer = str(key).partition("@")[0].partition(":")[0]
        header = header_of(number, count)
        self._launch(index, pointer, as_float, (address, count, header), stream)

    def mark(self, stream: int | None = None) -> None:
        """Launch a kernel that tells nothing: that it ran is what is to be known."""
        driver, device = cuda.library(), c_int()
        if driver is not None and not driver.cuCtxGetDevice(byref(device)):
            self._launch(device.value, "*i64", False, (0, 0, 0), stream)

    def _launch(
        self, index: int, pointer: str, as_float: bool, values: tuple[int, int, int], stream: int | None
    ) -> None:
        device, ring = get_device(f"cuda:{index}"), self._ring(index)
        with _unsafe_calls_allowed():
            kernel = _compiled(device.target, pointer, as_float).loaded(device)
        kernel.launch((1, 1, 1), (*values, ring.first, ring.address, ring.last), stream)

    def _ring(self, index: int) -> Ring:
        if index not in _rings:
            with _unsafe_calls_allowed():
                cuda.make_current(index)
                _rings[index] = Ring(pinned(knobs.profile_metric_buffer_bytes.get()))
        return _rings[index]

    def take(self) -> list[tuple[int, NDArray[np.int64]]]:
        """What has been told since the last call: numbers, and the words of each."""
        return [entry for ring in _rings.values() for entry in ring.take()]

    def take_lost(self) -> bool:
        """Whether entries were overwritten since the last call."""
        lost = [ring for ring in _rings.values() if ring.lost]
        for ring in lost:
            ring.lost = False
        return bool(lost)


@cache
def _compiled(target: str, pointer: str, as_float: bool) -> CompiledKernel:
    signature = {
        "value": pointer, "count": "i32", "header": "i64", "ring": "*i64:16", "reserved": "*i64:16", "last": "i64",
    }  # fmt: skip
    return compile(tell_metric, signature, {"FLOAT": as_float, "BLOCK": _BLOCK}, target, num_warps=1)


@contextmanager
def _unsafe_calls_allowed() -> Iterator[None]:
    """While a stream is captured, memory and modules are given out only to threads that say they know what they do."""
    driver, mode = cuda.library(), c_int(_RELAXED)
    if driver is not None:
        driver.cuThreadExchangeStreamCaptureMode(byref(mode))
    try:
        yield
    finally:
        if driver is not None:
            driver.cuThreadExchangeStreamCaptureMode(byref(mode))
