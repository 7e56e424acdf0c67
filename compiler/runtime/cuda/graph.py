"""Launches captured in a CUDA graph: the device starts them one after the other by itself.

Launching from the host takes microseconds, so launches shorter than that follow each other no faster than the host can
start them. A graph's kernels do, which is how serving engines run decoding.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from . import driver as cuda

# CUstream_flags: does not wait for the default stream, which cannot be captured itself.
_NON_BLOCKING = 1
# CUstreamCaptureMode: calls of other threads are none of our business.
_THREAD_LOCAL = 1


class CapturedLaunches:
    """``launch``, called ``times`` times, as one graph on the device ``index``. Kernels must have been launched before:
    what a first launch does is not allowed while a stream is captured.

    Raises DeviceError where the launches cannot be captured.
    """

    def __init__(self, index: int, launch: Callable[[], None], times: int) -> None:
        cuda.make_current(index)
        self._index = index
        driver = cuda.bindings()
        stream = cuda.integer("cuStreamCreate", _NON_BLOCKING)
        try:
            graph = self._captured(stream, launch, times)
            try:
                self._runnable = cuda.call("cuGraphInstantiate", graph, 0)
            finally:
                driver.cuGraphDestroy(graph)
        finally:
            driver.cuStreamDestroy(stream)
        weakref.finalize(self, driver.cuGraphExecDestroy, self._runnable)

    def launch(self) -> None:
        """Run all of them on the current stream; does not wait."""
        cuda.call("cuGraphLaunch", self._runnable, cuda.streams.current(self._index))

    def _captured(self, stream: int, launch: Callable[[], None], times: int) -> object:
        mode = cuda.bindings().CUstreamCaptureMode(_THREAD_LOCAL)
        cuda.call("cuStreamBeginCapture", stream, mode)
        try:
            with cuda.streams.redirected(stream):
                for _ in range(times):
                    launch()
        except BaseException:
            cuda.bindings().cuStreamEndCapture(stream)
            raise
        return cuda.call("cuStreamEndCapture", stream)
