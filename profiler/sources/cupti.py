"""The CUPTI source: kernel times from libcupti's activity API, through ctypes.

Kernel records come in buffers with the correlation id of their launch; the callbacks of
:mod:`deuteron.profiler.sources.native` log which place in the profile that launch came from. While a trace is recorded,
copies and memsets come too, and the calls that launch are logged with their times.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from ctypes import byref, c_char_p, c_size_t, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING

from deuteron.compiler import knobs

from ..errors import CuptiError
from .callbacks import DOMAIN_RESOURCE, NODE_CLONED, NODE_CREATED
from .driver import synchronise_devices
from .native import native_callbacks, thread_cell
from .nvtx import DOMAIN_NVTX, RANGE_CALLS, follower, injected
from .records import KIND_CONCURRENT_KERNEL, KIND_MEMCPY, KIND_MEMSET, Batch, kernel_record_size, parse_records

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .metric_kernels import MetricKernels

_LEAST_BUFFER_BYTES = 1 << 20
_MULTIPLE_SUBSCRIBERS = 39
_INSUFFICIENT_PRIVILEGES = (35, 40)
# CUPTI_ERROR_MAX_LIMIT_REACHED, and CUPTI_ERROR_INVALID_KIND for one that is not complete.
_END_OF_RECORDS = (12, 21)
_FLUSH_FORCED = 1
_DOMAIN_DRIVER_API = 1
# The driver's entry points that launch (cupti_driver_cbid.h): cuLaunchKernel, cuLaunchCooperativeKernel, cuGraphLaunch
# and cuLaunchKernelEx, each with its form for per-thread streams. Launches of the runtime come through them too.
LAUNCH_CALLS = {
    307: "cuLaunchKernel",
    442: "cuLaunchKernel_ptsz",
    477: "cuLaunchCooperativeKernel",
    478: "cuLaunchCooperativeKernel_ptsz",
    514: "cuGraphLaunch",
    515: "cuGraphLaunch_ptsz",
    652: "cuLaunchKernelEx",
    653: "cuLaunchKernelEx_ptsz",
}
# Calls that copy are found by name: there are a hundred of them. The numbers go to some 800 in CUDA 13.
_COPYING = ("cuMemcpy", "cuMemset")
_MOST_CALLS = 2000


class CuptiSource:
    """Collects kernel records of all GPUs of this process. One at a time: CUPTI serves one client.

    :mod:`.locate` finds libcupti. An activity buffer is as large as the knob DEUTERON_PROFILE_BUFFER_SIZE says; memory
    is touched as records arrive, so an unfilled one costs little. Raises CuptiError if the library cannot be loaded or
    used.
    """

    def __init__(self) -> None:
        from .locate import load_cupti  # lazy: searched for only where there is a GPU

        self._cupti = load_cupti()
        version = c_uint32()
        if self._cupti.cuptiGetVersion(byref(version)) or not version.value:
            raise CuptiError("libcupti is here, but no NVIDIA driver", hint="profile on the CPU: backend='cpu'")
        self.version = version.value
        self._kernel_size = kernel_record_size(self.version)
        self._measured = False
        self._native = native_callbacks(max(knobs.profile_buffer_bytes.get(), _LEAST_BUFFER_BYTES))
        self._subscriber = c_void_p()
        self._epoch_offset_ns = 0
        self._traced = False
        self._call_names = dict(LAUNCH_CALLS)
        self._metrics: MetricKernels | None = None
        self._injection: AbstractContextManager[None] | None = None

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
        self._call("cuptiSubscribe", subscribed, c_void_p(self._native.called), c_void_p())
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
            self._call_back(LAUNCH_CALLS, True)
            self._native.name_nodes(ctypes.cast(self._cupti.cuptiGetGraphNodeId, c_void_p).value or 0)
            self._call_back((NODE_CREATED, NODE_CLONED), True, DOMAIN_RESOURCE)
        except CuptiError:
            self.stop()
            raise

    def _call_back(self, calls: Iterable[int], wanted: bool, domain: int = _DOMAIN_DRIVER_API) -> None:
        """Whether these driver calls, or events of another domain, go through our callback."""
        for call in calls:
            self._call(
                "cuptiEnableCallback",
                c_uint32(wanted),
                self._subscriber,
                c_uint32(domain),
                c_uint32(call),
            )

    def follow_ranges(self, push: Callable[[str], None], pop: Callable[[], None]) -> None:
        """Call these, in its thread, when the program pushes and pops ranges by NVTX. Raises CuptiError."""
        self._native.follow_ranges(follower(push, pop))
        self._injection = injected(self._cupti._name)
        self._injection.__enter__()
        self._call_back(RANGE_CALLS, True, DOMAIN_NVTX)

    def trace(self, wanted: bool) -> None:
        """Whether to collect what only a trace shows: times of calls, copies and memsets. Raises CuptiError."""
        if wanted == self._traced:
            return
        self._traced = wanted
        copying = dict(self._copying_calls())
        self._call_names = {**LAUNCH_CALLS, **copying}
        for kind in (KIND_MEMCPY, KIND_MEMSET):
            self._call("cuptiActivityEnable" if wanted else "cuptiActivityDisable", c_uint32(kind))
        self._call_back(copying, wanted)
        self._native.trace(wanted)

    def _copying_calls(self) -> Iterator[tuple[int, str]]:
        """Numbers and names of the driver calls that copy or set memory, as the library has them."""
        name = c_char_p()
        for call in range(1, _MOST_CALLS):
            code = self._cupti.cuptiGetCallbackName(c_uint32(_DOMAIN_DRIVER_API), c_uint32(call), byref(name))
            if not code and name.value and name.value.decode().startswith(_COPYING):
                yield call, name.value.decode()

    @property
    def main(self) -> ctypes.c_uint32:
        """The cell of threads that have none of their own."""
        return self._native.main

    def cell(self) -> ctypes.c_uint32:
        """The calling thread's cell for the number that its launches carry."""
        return thread_cell()

    @property
    def metrics(self) -> MetricKernels:
        """What asks for metrics that only a GPU knows."""
        if self._metrics is None:
            from .metric_kernels import MetricKernels  # lazy: with it comes the compiler

            self._metrics = MetricKernels()
        return self._metrics

    def take_lost(self) -> bool:
        """Whether metrics were overwritten before they were read, since the last call."""
        return self._metrics is not None and self._metrics.take_lost()

    def _discard(self) -> None:
        """Drop what a source before this one left behind."""
        with self._native.take_buffers():
            self._native.take_launches()
            self._native.take_calls()
            self._native.take_nodes()

    def flush(self) -> None:
        """Wait for all kernels and make CUPTI hand over every record."""
        synchronise_devices()
        self._hand_over()

    def _hand_over(self) -> None:
        self._call("cuptiActivityFlushAll", c_uint32(_FLUSH_FORCED))

    def drain(self) -> Batch:
        """What has been handed over since the last call. Raises CuptiError if records cannot be read."""
        kernels, copies = [], []
        with self._native.take_buffers() as views:
            for view in views:
                if not self._measured:
                    self._measure(view)
                found, copied = parse_records(view, self._kernel_size, self._places)
                kernels.append(found)
                copies.append(copied)
        # After the buffers: a launch is logged before its kernel runs, so all of these kernels are in the log.
        return Batch(
            kernels,
            self._native.take_launches(),
            self._epoch_offset_ns,
            copies,
            self._native.take_calls(),
            self._call_names,
            self._native.take_nodes(),
            # After the buffers, too: a kernel has told its metric before its record is complete.
            self._metrics.take() if self._metrics is not None else [],
        )

    def _measure(self, view: NDArray[np.uint8]) -> None:
        """Learn the length of a kernel's record, so that newer libraries are read rightly."""
        for begin, end in itertools.pairwise(itertools.chain(self._places(view), [len(view)])):
            if int.from_bytes(view[begin : begin + 4].tobytes(), "little") == KIND_CONCURRENT_KERNEL:
                self._kernel_size = end - begin
                self._measured = True
                return

    def _places(self, view: NDArray[np.uint8]) -> Iterator[int]:
        """Where the records of a buffer begin, as the library finds them. Raises CuptiError if it cannot."""
        next_record = self._cupti.cuptiActivityGetNextRecord
        next_record.argtypes = [c_void_p, c_size_t, c_void_p]
        base, valid = view.ctypes.data, len(view)
        record = c_void_p()
        while not (code := int(next_record(base, valid, byref(record)))) and record.value is not None:
            yield record.value - base
        if code not in (0, *_END_OF_RECORDS):
            raise self._error("cuptiActivityGetNextRecord", code)

    def warn_dropped(self) -> None:
        """Say on the standard error how many records CUPTI dropped for lack of memory, if any."""
        dropped = c_size_t()
        code = self._cupti.cuptiActivityGetNumDroppedRecords(None, c_uint32(0), byref(dropped))
        if not code and dropped.value:
            print(f"proton: CUPTI dropped {dropped.value} records: out of memory", file=sys.stderr)

    def stop(self) -> None:
        """Stop collecting and let other profilers use CUPTI."""
        self._native.trace(False)
        self._native.follow_ranges(None)
        if self._injection is not None:
            self._injection.__exit__(None, None, None)
            self._injection = None
        if self._traced:
            self._traced = False
            for kind in (KIND_MEMCPY, KIND_MEMSET):
                self._cupti.cuptiActivityDisable(c_uint32(kind))
        self._cupti.cuptiActivityDisable(c_uint32(KIND_CONCURRENT_KERNEL))
        self._cupti.cuptiUnsubscribe(self._subscriber)
        self._subscriber = c_void_p()


def kernel_name(address: int) -> str:
    """The kernel name at an address in a record (a C string that CUPTI keeps)."""
    return ctypes.string_at(address).decode(errors="replace") if address else "<unknown kernel>"
