"""The CPU as a device: arrays are NumPy arrays, launches are synchronous, time is the host's clock."""

from __future__ import annotations

import math
import os
import platform
import re
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...cores import usable_cores
from ...errors import LaunchError
from ..arrays.dtypes import canonical_dtype, numpy_dtype
from ..device import Clocks, Device, DeviceProperties

if TYPE_CHECKING:
    import numpy as np

# A cache line: full-width vector loads at aligned offsets then never split one.
_ALIGNMENT = 64
# Elements that are copied at once where an array repeats them: what is read stays in a cache.
_COPIED = 1 << 16


class HostArray:
    """An array in host memory; wraps a NumPy array and shares it through ``__array_interface__``."""

    __slots__ = ("_array", "dtype")

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.dtype = canonical_dtype(array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return cast("tuple[int, ...]", self._array.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self._array.nbytes

    @property
    def __array_interface__(self) -> dict[str, object]:
        return cast("dict[str, object]", self._array.__array_interface__)

    @property
    def numpy(self) -> np.ndarray:
        """The array itself, not a copy."""
        return self._array

    def to_numpy(self) -> np.ndarray:
        """A copy of the contents."""
        return self._array.copy()

    def copy_from(self, source: np.ndarray) -> None:
        """Overwrite the contents; raises LaunchError when shape or dtype differ."""
        check_same(source, self.shape, self.dtype)
        self._array[...] = source

    def fill(self, row: np.ndarray) -> None:
        """Repeat the elements of ``row``; raises LaunchError when it is empty or of another dtype."""
        check_row(row, self.dtype)
        repeat(row, self._array.reshape(-1))

    def part(self, start: int, shape: Sequence[int], dtype: str) -> HostArray:
        """An array in this one's memory from byte ``start`` on."""
        import numpy as np

        element = numpy_dtype(canonical_dtype(dtype))
        size = math.prod(shape) * element.itemsize
        raw = self._array.reshape(-1).view(np.uint8)
        return HostArray(raw[start : start + size].view(element).reshape(tuple(shape)))


def repeat(row: np.ndarray, into: np.ndarray) -> None:
    """Write the elements of ``row`` again and again until ``into`` is full; both of rank 1 and of one dtype."""
    done = min(len(row), len(into))
    into[:done] = row[:done]
    while done < len(into):
        more = min(done, len(into) - done, max(len(row), _COPIED // len(row) * len(row)))
        into[done : done + more] = into[:more]
        done += more


def check_row(row: np.ndarray, dtype: str) -> None:
    """Raise LaunchError unless ``row`` has rank 1, this dtype and elements."""
    if row.ndim != 1 or not row.size or canonical_dtype(row.dtype) != dtype:
        raise LaunchError(
            f"cannot fill an array of {dtype} with one of {canonical_dtype(row.dtype)} {list(row.shape)}",
            hint="give at least one element of the same dtype, in one dimension",
        )


def check_same(source: np.ndarray, shape: tuple[int, ...], dtype: str) -> None:
    """Raise LaunchError unless ``source`` has this shape and dtype."""
    if source.shape != shape or canonical_dtype(source.dtype) != dtype:
        raise LaunchError(
            f"cannot copy an array of {canonical_dtype(source.dtype)} {list(source.shape)} into one of "
            f"{dtype} {list(shape)}",
            hint="shapes and dtypes must be equal",
        )


class HostTimer:
    """Wall-clock time on ``time.perf_counter_ns``."""

    __slots__ = ("_start", "_stop")

    def __init__(self) -> None:
        self._start = self._stop = 0

    def start(self) -> None:
        """Note the host's clock."""
        self._start = time.perf_counter_ns()

    def stop(self) -> None:
        """Note the host's clock; launches have ended by then."""
        self._stop = time.perf_counter_ns()

    def elapsed_ns(self) -> int:
        """Nanoseconds between start and stop."""
        return self._stop - self._start


class CpuDevice(Device):
    """This machine's processor."""

    name = "cpu"
    target = "cpu"

    def __init__(self) -> None:
        self._flush: np.ndarray | None = None

    @cached_property
    def properties(self) -> DeviceProperties:
        """Model, usable cores, bytes of memory and of the largest cache, highest clock in kHz."""
        return DeviceProperties(
            name=_model_name(),
            kind="cpu",
            sm_count=usable_cores(),
            memory_bytes=_memory_bytes(),
            l2_bytes=_last_level_cache_bytes(),
            clock_khz=_read_number("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"),
        )

    def array(self, source: np.ndarray) -> HostArray:
        """A copy of ``source``, 64-byte aligned; raises LaunchError for a dtype that kernels do not have."""
        made = self.empty(source.shape, canonical_dtype(source.dtype))
        made.numpy[...] = source
        return made

    def empty(self, shape: Sequence[int], dtype: str) -> HostArray:
        """An uninitialised, 64-byte aligned array; raises LaunchError for an unknown dtype."""

        import numpy as np

        element = numpy_dtype(canonical_dtype(dtype))
        count = 1
        for extent in shape:
            count *= extent
        raw = np.empty(count * element.itemsize + _ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % _ALIGNMENT
        body = raw[start : start + count * element.itemsize].view(element)
        return HostArray(body.reshape(tuple(shape)))

    def synchronize(self) -> None:
        """Launches are synchronous: nothing to wait for."""

    def clocks(self) -> Clocks | None:
        """The clock of core 0 in MHz and nothing else; None where the system does not tell."""
        khz = _read_number("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
        return Clocks(khz // 1000, None, None, None) if khz else None

    def timer(self) -> HostTimer:
        """A timer on the host's clock."""
        return HostTimer()

    def flush_l2(self) -> None:
        """Write twice the last-level cache (at most 256 MiB)."""

        import numpy as np

        if self._flush is None:
            size = self.properties.l2_bytes or (32 << 20)
            self._flush = np.zeros(min(2 * size, 256 << 20), np.uint8)
        self._flush += 1


def _model_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _last_level_cache_bytes() -> int | None:
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    sizes = []
    for path in folder.glob("index*/size"):
        try:
            text = path.read_text().strip()
            sizes.append(int(text.rstrip("KMG")) * {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1))
        except (OSError, ValueError):
            continue
    return max(sizes, default=None)


def _read_number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
