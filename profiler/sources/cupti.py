"""The CUPTI source: kernel times from libcupti's activity API, through ctypes.

Kernel records come in buffers with the correlation id of their launch; the callbacks of
:mod:`deuteron.profiler.sources.native` log which place in the profile that launch came from.
"""

from __future__ import annotations

import ctypes
import sys
import time
from ctypes import byref, c_char_p, c_size_t, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING

from deuteron.compiler import knobs

from ..errors import CuptiError
from .driver import synchronise_devices
from .native import native_callbacks, thread_cell
from .records import KIND_CONCURRENT_KERNEL, Batch, kernel_record_size, parse_kernels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LEAST_BUFFER_BYTES = 1 << 20
_MULTIPLE_SUBSCRIBERS = 39
_INSUFFICIENT_PRIVILEGES = (35, 40)
_FLUSH_FORCED = 1
_DOMAIN_DRIVER_API = 1
# The driver's entry points that launch (cupti_driver_cbid.h): cuLaunchKernel, cuLaunchCooperativeKernel, cuGraphLaunch
# and cuLaunchKernelEx, each with its form for per-thread streams. Launches of the runtime come through them too.
LAUNCH_CALLS = (307, 442, 477, 478, 514, 515, 652, 653)


class CuptiSource:
    """Collects kernel records of all GPUs of this process. One at a time: CUPTI serves one client.

    ``library`` names the libcupti to load (default: found by :mod:`deuteron.profiler.sources.locate`),
    ``buffer_bytes`` the size of one activity buffer (default: the knob DEUTERON_PROFILE_BUFFER_SIZE; memory is
    touched as records arrive, so an unfilled buffer costs little). Raises CuptiError if the library cannot be loaded
    or used.
    """

    def __init__(self, library: str | None = None, buffer_bytes: int | None = None) -> None:
        from .locate import load_cupti  # lazy: searched for only where there is a GPU

        self._cupti = load_cupti(library)
        version = c_uint32()
        if self._cupti.cuptiGetVersion(byref(version)) or not version.value:
            raise CuptiError("libcupti is here, but no NVIDIA driver", hint="profile on the CPU: backend='cpu'")
        self.version = version.value
        self._kernel_size = kernel_record_size(self.version)
        self._measured = False
        self._native = native_callbacks(max(buffer_bytes or knobs.profile_buffer_bytes.get(), _LEAST_BUFFER_BYTES))
        self._subscriber = c_void_p()
        self._epoch_offset_ns = 0

    def _call(self, name: str, *arguments: object) -> None:
        code = int(getattr(self._cupti, name)(*arguments))
        if code:
            raise self._error(name, code)

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
            return CuptiError(f"{name}: {reason}", hint="ask the administrator to allow profiling for all users")
        return CuptiError(f"{name}: {reason}", hint="is libcupti as new as the driver's CUDA version?")

    def start(self) -> None:
        """Subscribe and begin to collect. Raises CuptiError, with its own message if CUPTI is taken."""
        self._discard()
        subscribed = byref(self._subscriber)
        self._call("cuptiSubscribe", subscribed, c_void_p(self._native.launch), c_void_p())
        try:
            self._call(
                "cuptiActivityRegisterCallbacks",
                c_void_p(self._native.requested),
                c_void_p(self._native.completed),
            )
            now = c_uint64()
            self._call("cuptiGetTimestamp", byref(now))
            self._epoch_offset_ns = time.time_ns() - now.value
            self._call("cuptiActivityEnable", c_uint32(KIND_CONCURRENT_KERNEL))
            for call in LAUNCH_CALLS:
                self._call(
                    "cuptiEnableCallback",
                    c_uint32(1),
                    self._subscriber,
                    c_uint32(_DOMAIN_DRIVER_API),
                    c_uint32(call),
                )
        except CuptiError:
            self.stop()
            raise

    def cell(self) -> ctypes.c_uint32:
        """The calling thread's cell for the number that its launches carry."""
        return thread_cell()

    def _discard(self) -> None:
        """Drop what a source before this one left behind."""
        with self._native.take_buffers():
            self._native.take_launches()

    def flush(self) -> None:
        """Wait for all kernels and make CUPTI hand over every record."""
        synchronise_devices()
        self._call("cuptiActivityFlushAll", c_uint32(_FLUSH_FORCED))

    def drain(self) -> Batch:
        """What has been handed over since the last call. Raises CuptiError if records cannot be read."""
        kernels = []
        with self._native.take_buffers() as views:
            for view in views:
                if not self._measured:
                    self._measure(view)
                kernels.append(parse_kernels(view, self._kernel_size))
        # After the buffers: a launch is logged before its kernel runs, so all of these kernels are in the log.
        return Batch(kernels, self._native.take_launches(), self._epoch_offset_ns)

    def _measure(self, view: NDArray[np.uint8]) -> None:
        """Learn the length of a record from the first two, so that newer libraries are read rightly."""
        next_record = self._cupti.cuptiActivityGetNextRecord
        next_record.argtypes = [c_void_p, c_size_t, c_void_p]
        base = view.ctypes.data
        record = c_void_p()
        if next_record(base, len(view), byref(record)):
            return
        second = next_record(base, len(view), byref(record)) == 0 and record.value
        self._kernel_size = int(second) - base if second else len(view)
        self._measured = True

    def warn_dropped(self) -> None:
        """Say on the standard error how many records CUPTI dropped for lack of memory, if any."""
        dropped = c_size_t()
        code = self._cupti.cuptiActivityGetNumDroppedRecords(None, c_uint32(0), byref(dropped))
        if not code and dropped.value:
            print(f"proton: CUPTI dropped {dropped.value} records: out of memory", file=sys.stderr)

    def stop(self) -> None:
        """Stop collecting and let other profilers use CUPTI."""
        self._cupti.cuptiActivityDisable(c_uint32(KIND_CONCURRENT_KERNEL))
        self._cupti.cuptiUnsubscribe(self._subscriber)
        self._subscriber = c_void_p()


def kernel_name(address: int) -> str:
    """The kernel name at an address in a record (a C string that CUPTI keeps)."""
    return ctypes.string_at(address).decode(errors="replace") if address else "<unknown kernel>"
