"""Launches captured in a CUDA graph: the device starts them one after the other by itself.

Launching from the host takes microseconds, so launches shorter than that follow each other no faster than the host can
start them. A graph's kernels do, which is how serving engines run decoding.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from . import driver as cuda

# CUstream_flags: does not wait for the default stream, which cannot be captured itself.
_NON_BLOCKING = 1
# CUstreamCaptureMode: what else is called meanwhile, by this thread or another one, is none of our business.
_RELAXED = 2


class CapturedLaunches:
    """``launch``, called ``times`` times, as one graph on the device ``index``. Kernels must have been launched before:
    what a first launch does is not allowed while a stream is captured.

    Raises DeviceError where the launches cannot be captured.
    """

    def __init__(self, index: int, launch: Callable[[], None], times: int) -> None:
        self._index = index
        self._runnable = captured(index, lambda stream: _repeat(launch, times, stream))
        weakref.finalize(self, destroy, self._runnable)

    def launch(self) -> None:
        """Run all of them on the current stream; does not wait."""
        cuda.call("cuGraphLaunch", self._runnable, cuda.streams.current(self._index))


def _repeat(launch: Callable[[], None], times: int, stream: int) -> None:
    with cuda.streams.redirected(stream):
        for _ in range(times):
            launch()


def destroy(runnable: object) -> None:
    """Give an executable graph back."""
    with _beside_captures():
        cuda.bindings().cuGraphExecDestroy(runnable)


@contextmanager
def _beside_captures() -> Iterator[None]:
    """What this thread asks of the driver meanwhile breaks no capture that is under way, here or elsewhere."""
    driver = cuda.bindings()
    exchange = driver.cuThreadExchangeStreamCaptureMode
    code, before = exchange(driver.CUstreamCaptureMode(_RELAXED))
    try:
        yield
    finally:
        if int(code) == 0:  # else the driver is going down
            exchange(before)


def captured(index: int, launch: Callable[[int], None]) -> object:
    """An executable graph of what ``launch`` enqueues on the stream that it is given. Raises DeviceError where that
    cannot be captured."""
    cuda.make_current(index)
    driver = cuda.bindings()
    with _beside_captures():
        stream = cuda.integer("cuStreamCreate", _NON_BLOCKING)
        try:
            graph = _captured(stream, launch)
            try:
                return cuda.call("cuGraphInstantiate", graph, 0)
            finally:
                driver.cuGraphDestroy(graph)
        finally:
            driver.cuStreamDestroy(stream)


def _captured(stream: int, launch: Callable[[int], None]) -> object:
    driver = cuda.bindings()
    cuda.call("cuStreamBeginCapture", stream, driver.CUstreamCaptureMode(_RELAXED))
    try:
        launch(stream)
    except BaseException:
        driver.cuStreamEndCapture(stream)
        raise
    return cuda.call("cuStreamEndCapture", stream)
