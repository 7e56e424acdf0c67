"""The CUPTI source: kernel times from libcupti's activity API, through ctypes.

The driver stamps every launch with the number last pushed by the launching thread (an external correlation id);
kernel records come back in buffers with their launch's correlation id, and a second kind of record joins the two.
On the launch path there is nothing but the push, and only where the place in the profile changes.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING

from deuteron.compiler import knobs

from ..errors import CuptiError
from . import records
from .buffers import native_buffers
from .driver import synchronise_devices

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LEAST_BUFFER_BYTES = 1 << 20
_MULTIPLE_SUBSCRIBERS = 39
_INSUFFICIENT_PRIVILEGES = (35, 40)
_FLUSH_FORCED = 1
# Driver entry points that launch kernels (cupti_driver_cbid.h), so that only they leave API records.
LAUNCH_CALLS = (307, 442, 477, 478, 514, 515, 652, 653)


class CuptiSource:
    """Collects kernel records of all GPUs of this process. One at a time: CUPTI serves one client.

    ``library`` names the libcupti to load (default: found by :mod:`deuteron.profiler.sources.locate`),
    ``buffer_bytes`` the size of one activity buffer (default: the knob DEUTERON_PROFILE_BUFFER_SIZE; memory is
    touched as records arrive, so an unfilled buffer costs little). Raises CuptiError if the library cannot be loaded or used.
    """

    def __init__(self, library: str | None = None, buffer_bytes: int | None = None) -> None:
        from .locate import load_cupti

        self._cupti = load_cupti(library)
        version = c_uint32()
        if self._cupti.cuptiGetVersion(byref(version)) or not version.value:
            raise CuptiError(
                "libcupti is here, but no NVIDIA driver", hint="profile on the CPU: backend='cpu'"
            )
        self.version = version.value
        self._kernel_size = records.kernel_record_size(self.version)
        self._measured = False
        self._buffers = native_buffers(
            max(buffer_bytes or knobs.profile_buffer_bytes.get(), _LEAST_BUFFER_BYTES)
        )
        self._subscriber = c_void_p()
        self._enabled: list[int] = []
        self._push = self._cupti.cuptiActivityPushExternalCorrelationId
        self._push.argtypes = [c_uint32, c_uint64]
        self._pop = self._cupti.cuptiActivityPopExternalCorrelationId
        self._pop.argtypes = [c_uint32, c_void_p]

    def _call(self, name: str, *arguments: object, allowed: tuple[int, ...] = ()) -> int:
        code = int(getattr(self._cupti, name)(*arguments))
        if code and code not in allowed:
            raise self._error(name, code)
        return code

    def _error(self, name: str, code: int) -> CuptiError:
        text = c_char_p()
        self._cupti.cuptiGetResultString(c_uint32(code), byref(text))
        reason = text.value.decode() if text.value else f"error {code}"
        if code == _MULTIPLE_SUBSCRIBERS:
            return CuptiError(
                "another profiler is using CUPTI in this process (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS)",
                hint="stop torch.profiler, Nsight Systems, Nsight Compute or Proton first: CUPTI serves one client",
            )
        if code in _INSUFFICIENT_PRIVILEGES:
            return CuptiError(
                f"{name}: {reason}", hint="ask the administrator to allow profiling for all users"
            )
        return CuptiError(
            f"{name}: {reason}", hint="is libcupti as new as the driver's CUDA version?"
        )

    def start(self) -> None:
        """Subscribe and begin to collect. Raises CuptiError, with its own message if CUPTI is taken."""
        self._call(
            "cuptiSubscribe", byref(self._subscriber), c_void_p(self._buffers.ignore), c_void_p()
        )
        try:
            self._call(
                "cuptiActivityRegisterCallbacks",
                c_void_p(self._buffers.requested),
                c_void_p(self._buffers.completed),
            )
            for kind in (records.KIND_EXTERNAL_CORRELATION, records.KIND_CONCURRENT_KERNEL):
                self._enable(kind)
            self._enable_launch_calls()
        except CuptiError:
            self.stop()
            raise

    def _enable(self, kind: int) -> None:
        self._call("cuptiActivityEnable", c_uint32(kind))
        self._enabled.append(kind)

    def _enable_launch_calls(self) -> None:
        # CUPTI writes a correlation record only in front of the record of an API call, so launches must be recorded.
        enable_one = getattr(self._cupti, "cuptiActivityEnableDriverApi", None)
        if enable_one is None:
            self._enable(records.KIND_DRIVER)
            return
        for call in LAUNCH_CALLS:
            # A call that this library does not know cannot be made through this driver either.
            enable_one(c_uint32(call), c_uint8(1))

    def set_correlation(self, previous: int, number: int) -> None:
        """Replace the calling thread's number ``previous`` (0 is none) by ``number``."""
        if previous:
            self._pop(records.EXTERNAL_KIND_CUSTOM0, None)
        if number:
            self._push(records.EXTERNAL_KIND_CUSTOM0, number)

    def flush(self) -> None:
        """Wait for all kernels and make CUPTI hand over every record."""
        synchronise_devices()
        self._call("cuptiActivityFlushAll", c_uint32(_FLUSH_FORCED))

    def drain(self) -> Iterator[records.Records]:
        """The records of all buffers handed over so far."""
        with self._buffers.take() as views:
            for view in views:
                if not self._measured:
                    self._measure(view)
                yield records.parse(view, records.record_sizes(self._kernel_size))

    def _measure(self, view: NDArray[np.uint8]) -> None:
        """Learn the length of a kernel record from two neighbours, so that newer libraries are read rightly."""
        next_record = self._cupti.cuptiActivityGetNextRecord
        next_record.argtypes = [c_void_p, c_size_t, c_void_p]
        base = view.ctypes.data
        record = c_void_p()
        previous = 0
        while not next_record(base, len(view), byref(record)):
            address = int(record.value or 0)
            if previous and c_uint32.from_address(previous).value == records.KIND_CONCURRENT_KERNEL:
                self._kernel_size = address - previous
                self._measured = True
                return
            previous = address
        if previous and c_uint32.from_address(previous).value == records.KIND_CONCURRENT_KERNEL:
            self._kernel_size = base + len(view) - previous
            self._measured = True

    def warn_dropped(self) -> None:
        """Say on the standard error how many records CUPTI dropped for lack of memory, if any."""
        dropped = c_size_t()
        code = self._cupti.cuptiActivityGetNumDroppedRecords(None, c_uint32(0), byref(dropped))
        if not code and dropped.value:
            print(f"proton: CUPTI dropped {dropped.value} records: out of memory", file=sys.stderr)

    def stop(self) -> None:
        """Stop collecting and let other profilers use CUPTI."""
        enable_one = getattr(self._cupti, "cuptiActivityEnableDriverApi", None)
        if enable_one is not None and records.KIND_DRIVER not in self._enabled:
            for call in LAUNCH_CALLS:
                enable_one(c_uint32(call), c_uint8(0))
        for kind in self._enabled:
            self._cupti.cuptiActivityDisable(c_uint32(kind))
        self._enabled.clear()
        self._cupti.cuptiUnsubscribe(self._subscriber)
        self._subscriber = c_void_p()


def kernel_name(address: int) -> str:
    """The kernel name at an address in a record (a C string that CUPTI keeps)."""
    return ctypes.string_at(address).decode(errors="replace") if address else "<unknown kernel>"
