"""CUPTI's kernel records as NumPy arrays.

Layouts are those of ``cupti_activity.h``. Since CUDA 9 every version of the kernel record keeps the fields of the
versions before it at their offsets and grows at the end (CUpti_ActivityKernel4, 144 bytes, to
CUpti_ActivityKernel13, 248 bytes). So one set of fields serves all of them, and only the length of a record depends on
the library: ``kernel_record_size`` knows it by CUPTI version, and the source measures it on the first records of the
run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import CuptiError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KIND_CONCURRENT_KERNEL = 10

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

# CUPTI API version from which a kernel record has this size (the headers of the nvidia-cuda-cupti wheels).
_KERNEL_SIZES = (
    (19, 208),  # CUDA 12.0: CUpti_ActivityKernel9
    (130000, 216),  # CUDA 13.0: CUpti_ActivityKernel10
    (130100, 224),  # CUDA 13.1: CUpti_ActivityKernel11
    (130300, 232),  # CUDA 13.3: CUpti_ActivityKernel12
    (130400, 248),  # CUDA 13.4: CUpti_ActivityKernel13
)


@dataclass(frozen=True, slots=True)
class Batch:
    """What a source collected: kernel records as structured arrays, and an array (launches, 2) of correlation ids and
    the numbers of the places they came from. The log holds every launch that the records can name. Adding
    ``epoch_offset_ns`` to the records' times makes them nanoseconds since the epoch."""

    kernels: list[NDArray[np.void]]
    launches: NDArray[np.uint32]
    epoch_offset_ns: int = 0


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


def parse_kernels(buffer: NDArray[np.uint8], size: int) -> NDArray[np.void]:
    """The records of a buffer that holds kernel records only.

    ``buffer`` is one-dimensional uint8, exactly the valid bytes; ``size`` the bytes of a record. Returns a structured
    array of its own memory with the fields of KERNEL_FIELDS. Raises CuptiError if the buffer holds anything else.
    """
    import numpy as np

    dtype = np.dtype(
        {
            "names": [name for name, _, _ in KERNEL_FIELDS],
            "formats": [form for _, form, _ in KERNEL_FIELDS],
            "offsets": [offset for _, _, offset in KERNEL_FIELDS],
            "itemsize": size,
        }
    )
    whole = len(buffer) // size
    kernels = buffer[: whole * size].view(dtype)
    strange = np.flatnonzero(kernels["kind"] != KIND_CONCURRENT_KERNEL)
    if len(strange) or whole * size != len(buffer):
        at = int(strange[0]) if len(strange) else whole
        raise CuptiError(
            f"an activity buffer holds a record this profiler cannot read: byte {at * size} of {len(buffer)}, "
            f"records of {size} bytes",
            hint="the library's records have another layout; use libcupti of CUDA 12.0 to 13.5",
        )
    return kernels.copy()
