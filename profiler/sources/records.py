"""CUPTI's records of kernels, copies and memsets as NumPy arrays.

Layouts are those of ``cupti_activity.h``. Since CUDA 9 every version of the kernel record keeps the fields of the
versions before it at their offsets and grows at the end (CUpti_ActivityKernel4, 144 bytes, to
CUpti_ActivityKernel13, 248 bytes). So one set of fields serves all of them, and only the length of a record depends on
the library: ``kernel_record_size`` knows it by CUPTI version, and the source measures it on the first records of the
run. Copies and memsets, which are collected for traces, grow in the same way; in a buffer that has them the library
says where the records are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import CuptiError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .debug_lines import LineTable

KIND_MEMCPY = 1
KIND_MEMSET = 2
KIND_CONCURRENT_KERNEL = 10

# (name, format, offset in bytes): CUpti_ActivityKernel9 and later.
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
    ("graphNodeId", "<u8", 144),
    ("graphId", "<u4", 156),
)

# What the records of copies (CUpti_ActivityMemcpy5 and later) and of memsets (CUpti_ActivityMemset4 and later) share.
COPY_FIELDS = (
    ("kind", "<u4", 0),
    ("copyKind", "<u1", 4),
    ("bytes", "<u8", 8),
    ("start", "<u8", 16),
    ("end", "<u8", 24),
    ("deviceId", "<u4", 32),
    ("streamId", "<u4", 40),
    ("correlationId", "<u4", 44),
    ("graphId", "<u4", 72),
)
_COPY_BYTES = 76

#: From where to where by ``copyKind`` (CUpti_ActivityMemcpyKind): host, device, array.
COPY_KINDS = ("?", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")

# CUPTI API version from which a kernel record has this size (the headers of the nvidia-cuda-cupti wheels).
_KERNEL_SIZES = (
    (19, 208),  # CUDA 12.0: CUpti_ActivityKernel9
    (130000, 216),  # CUDA 13.0: CUpti_ActivityKernel10
    (130100, 224),  # CUDA 13.1: CUpti_ActivityKernel11
    (130300, 232),  # CUDA 13.3: CUpti_ActivityKernel12
    (130400, 248),  # CUDA 13.4: CUpti_ActivityKernel13
)


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of program counters: rows (``pc_buffer.ROW_FIELDS``); by the numbers of their reasons the names of these,
    and whether a reason is of samples at which the scheduler had no warp to go on with; line tables of modules by the
    CRC that rows have."""

    rows: NDArray[np.void]
    reasons: Mapping[int, tuple[str, bool]]
    tables: Mapping[int, LineTable]


@dataclass(frozen=True, slots=True)
class Batch:
    """What a source collected: kernel records as structured arrays, and an array (launches, 2) of correlation ids and
    the numbers of the places they came from. The log holds every launch that the records can name. Adding
    ``epoch_offset_ns`` to the records' times makes them nanoseconds since the epoch.

    While a trace is recorded there are also copies and memsets (COPY_FIELDS), and the driver's calls that have returned
    (``deuteron.profiler.sources.callbacks.CALL_FIELDS``), with the names of those that launch. ``nodes`` are those of
    graphs that were made (``NODE_FIELDS``, there, too). ``told`` is what kernels told of metrics: numbers, and words of
    64 bits of each. ``samples`` are where kernels were, if somebody samples that.
    """

    kernels: list[NDArray[np.void]]
    launches: NDArray[np.uint32]
    epoch_offset_ns: int = 0
    copies: list[NDArray[np.void]] = field(default_factory=list)
    calls: NDArray[np.void] | None = None
    call_names: Mapping[int, str] = field(default_factory=dict)
    nodes: NDArray[np.void] | None = None
    told: list[tuple[int, NDArray[np.int64]]] = field(default_factory=list)
    samples: Samples | None = None


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
    at = _first_stranger(buffer, size)
    if at is not None:
        raise _unreadable(at, len(buffer), f"records of {size} bytes")
    return buffer.view(record_dtype(KERNEL_FIELDS, size)).copy()


def parse_records(
    buffer: NDArray[np.uint8], size: int, places: Callable[[NDArray[np.uint8]], Iterable[int]]
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """The kernels of a buffer, and its copies and memsets, each as a structured array of its own memory.

    ``size`` is the bytes of a kernel record; ``places`` finds where the records of a mixed buffer begin. Raises
    CuptiError if the buffer holds anything else.
    """
    import numpy as np

    if _first_stranger(buffer, size) is None:
        return parse_kernels(buffer, size), np.empty(0, record_dtype(COPY_FIELDS, _COPY_BYTES))
    begins = np.array(list(places(buffer)), np.int64)
    kinds = np.array([int.from_bytes(buffer[at : at + 4].tobytes(), "little") for at in begins], np.uint32)
    strange = np.flatnonzero(~np.isin(kinds, (KIND_CONCURRENT_KERNEL, KIND_MEMCPY, KIND_MEMSET)))
    if len(strange) or not len(begins):
        at = int(begins[strange[0]]) if len(strange) else 0
        raise _unreadable(at, len(buffer), "neither a kernel nor a copy nor a memset")
    of_kernels = kinds == KIND_CONCURRENT_KERNEL
    return (
        _gathered(buffer, begins[of_kernels], KERNEL_FIELDS, size),
        _gathered(buffer, begins[~of_kernels], COPY_FIELDS, _COPY_BYTES),
    )


def _gathered(
    buffer: NDArray[np.uint8], begins: NDArray[np.int64], fields: Sequence[tuple[str, str, int]], size: int
) -> NDArray[np.void]:
    """The records that begin at these bytes; only their first ``size`` bytes are read."""
    import numpy as np

    dtype = record_dtype(fields, size)
    if len(begins) and int(begins.max()) + size > len(buffer):
        raise _unreadable(int(begins.max()), len(buffer), f"cut off before its {size} bytes")
    gathered: NDArray[np.void] = buffer[begins[:, None] + np.arange(size)].reshape(-1).view(dtype)
    return gathered


def record_dtype(fields: Sequence[tuple[str, str, int]], size: int) -> np.dtype[np.void]:
    """The layout of a record of ``size`` bytes whose fields are (name, format, offset)."""
    import numpy as np

    names, formats, offsets = zip(*fields, strict=True)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


def _first_stranger(buffer: NDArray[np.uint8], size: int) -> int | None:
    """Where the first thing begins that is no whole kernel record of ``size`` bytes; None if there is none."""
    import numpy as np

    whole = len(buffer) // size
    kinds = buffer[: whole * size].view(record_dtype(KERNEL_FIELDS, size))["kind"]
    strange = np.flatnonzero(kinds != KIND_CONCURRENT_KERNEL)
    if len(strange):
        return int(strange[0]) * size
    return None if whole * size == len(buffer) else whole * size


def _unreadable(at: int, length: int, what: str) -> CuptiError:
    return CuptiError(
        f"an activity buffer holds a record this profiler cannot read: byte {at} of {length}, {what}",
        hint="the library's records have another layout; use libcupti of CUDA 12.0 to 13.5",
    )
