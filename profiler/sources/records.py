"""CUPTI activity buffers as NumPy arrays: layouts, and the parser that splits a buffer without a Python loop.

Layouts are those of ``cupti_activity.h``. Since CUDA 9 every version of the kernel record keeps the fields of the
versions before it at their offsets and grows at the end (CUpti_ActivityKernel4, 144 bytes, to
CUpti_ActivityKernel13, 248 bytes). So one dtype with the common fields serves all of them, and only the length of a
record depends on the library: ``kernel_record_size`` knows it by CUPTI version, and the source measures it on the
first records of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import CuptiError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KIND_KERNEL = 3
KIND_DRIVER = 4
KIND_RUNTIME = 5
KIND_CONCURRENT_KERNEL = 10
KIND_EXTERNAL_CORRELATION = 39
EXTERNAL_KIND_CUSTOM0 = 3

# (name, format, offset in bytes): CUpti_ActivityKernel4 and later.
KERNEL_FIELDS = (
    ("kind", "<u4", 0),
    ("registersPerThread", "<u2", 6),
    ("start", "<u8", 16),
    ("end", "<u8", 24),
    ("deviceId", "<u4", 40),
    ("contextId", "<u4", 44),
    ("streamId", "<u4", 48),
    ("gridX", "<i4", 52),
    ("staticSharedMemory", "<i4", 76),
    ("dynamicSharedMemory", "<i4", 80),
    ("localMemoryPerThread", "<u4", 84),
    ("correlationId", "<u4", 92),
    ("name", "<u8", 104),
)
# CUpti_ActivityExternalCorrelation, 24 bytes in every version.
CORRELATION_FIELDS = (
    ("kind", "<u4", 0),
    ("externalKind", "<u4", 4),
    ("externalId", "<u8", 8),
    ("correlationId", "<u4", 16),
)
CORRELATION_SIZE = 24
API_SIZE = 40  # CUpti_ActivityAPI: driver and runtime calls

# CUPTI API version from which a kernel record has this size (the headers of the nvidia-cuda-cupti wheels).
_KERNEL_SIZES = (
    (19, 208),  # CUpti_ActivityKernel9
    (130000, 216),  # CUpti_ActivityKernel10
    (130100, 224),  # CUpti_ActivityKernel11
    (130300, 232),  # CUpti_ActivityKernel12
    (130400, 248),  # CUpti_ActivityKernel13
)


def kernel_record_size(cupti_version: int) -> int:
    """Bytes of a kernel record in a CUPTI API version (19 is CUDA 12.0, 130000 is CUDA 13.0).

    Raises CuptiError for versions older than CUDA 12.0.
    """
    sizes = [size for first, size in _KERNEL_SIZES if cupti_version >= first]
    if not sizes:
        raise CuptiError(
            f"CUPTI API version {cupti_version} is older than CUDA 12.0",
            hint="install nvidia-cuda-cupti>=12",
        )
    return sizes[-1]


@dataclass(frozen=True, slots=True)
class Records:
    """The kernel and external correlation records of one buffer, as structured arrays in buffer order."""

    kernels: NDArray[np.void]
    correlations: NDArray[np.void]


def record_sizes(kernel_size: int) -> dict[int, int]:
    """Bytes of each kind of record that the source enables."""
    return {
        KIND_KERNEL: kernel_size,
        KIND_CONCURRENT_KERNEL: kernel_size,
        KIND_EXTERNAL_CORRELATION: CORRELATION_SIZE,
        KIND_DRIVER: API_SIZE,
        KIND_RUNTIME: API_SIZE,
    }


def parse(buffer: NDArray[np.uint8], sizes: dict[int, int]) -> Records:
    """Split a buffer of packed records.

    ``buffer`` is one-dimensional uint8, exactly the valid bytes. ``sizes`` maps record kinds to bytes (multiples
    of 8). Raises CuptiError if the records do not fill the buffer exactly.
    """
    import numpy as np

    starts, kinds = record_starts(buffer, sizes)
    is_kernel = (kinds == KIND_CONCURRENT_KERNEL) | (kinds == KIND_KERNEL)
    return Records(
        _gather(buffer, starts[is_kernel], _dtype(KERNEL_FIELDS, sizes[KIND_CONCURRENT_KERNEL])),
        _gather(
            buffer,
            starts[kinds == KIND_EXTERNAL_CORRELATION],
            _dtype(CORRELATION_FIELDS, sizes[KIND_EXTERNAL_CORRELATION]),
        )
        if len(starts)
        else np.empty(0, _dtype(CORRELATION_FIELDS, CORRELATION_SIZE)),
    )


def record_starts(
    buffer: NDArray[np.uint8], sizes: dict[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Byte offsets and kinds of the records in ``buffer``.

    Where a record starts is known only from the one before it. Instead of walking, every 8-byte slot that could
    be a start points to the slot after its record, and the slots reachable from the first are found by doubling
    the pointers: log2(records) passes over arrays.
    """
    import numpy as np

    words = len(buffer) // 8
    if len(buffer) % 8:
        raise CuptiError(f"an activity buffer of {len(buffer)} bytes is not made of 8-byte words")
    kind_of_slot = buffer.view("<u4")[::2]
    steps = np.zeros(max(sizes) + 1, np.int64)
    for kind, size in sizes.items():
        steps[kind] = size // 8
    slots = np.flatnonzero(np.isin(kind_of_slot, np.fromiter(sizes, np.uint32)))
    after = slots + steps[kind_of_slot[slots]]
    # Positions in `slots` of the next record; len(slots) is the end, and also where broken chains stop.
    pointers = np.searchsorted(slots, after)
    broken = (pointers < len(slots)) & (slots[np.minimum(pointers, len(slots) - 1)] != after)
    pointers = np.append(np.where(broken, len(slots), pointers), len(slots))
    reached = np.zeros(len(slots) + 1, bool)
    reached[0] = len(slots) > 0 and slots[0] == 0
    for _ in range(max(1, len(slots)).bit_length()):
        reached[pointers[reached]] = True
        pointers = pointers[pointers]
    found = np.flatnonzero(reached[:-1])
    end = int(after[found[-1]]) if len(found) else 0
    if end != words:
        unknown = int(kind_of_slot[end]) if end < words else -1
        raise CuptiError(
            f"an activity buffer holds a record this profiler cannot read: byte {end * 8} of {len(buffer)}, "
            f"kind {unknown}",
            hint="the library's records have another layout; use libcupti of CUDA 12.0 to 13.5",
        )
    return slots[found] * 8, kind_of_slot[slots[found]]


def _dtype(fields: tuple[tuple[str, str, int], ...], size: int) -> np.dtype[np.void]:
    import numpy as np

    return np.dtype(
        {
            "names": [name for name, _, _ in fields],
            "formats": [form for _, form, _ in fields],
            "offsets": [offset for _, _, offset in fields],
            "itemsize": size,
        }
    )


def _gather(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], dtype: np.dtype[np.void]
) -> NDArray[np.void]:
    import numpy as np

    if not len(starts):
        return np.empty(0, dtype)
    windows = np.lib.stride_tricks.sliding_window_view(buffer, dtype.itemsize)
    return np.ascontiguousarray(windows[starts]).reshape(-1).view(dtype)
