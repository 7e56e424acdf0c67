"""GPU profiling of this process: one source, the places of launches, and the thread that empties buffers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from deuteron.compiler.errors import DeuteronError

from .attribution import Attribution
from .correlation import Correlations
from .device_metrics import DeviceMetrics, MetricSource
from .open_scopes import Cell, ThreadState
from .place import Place
from .session import Session

if TYPE_CHECKING:
    from .sources.records import Batch

_DRAIN_SECONDS = 1.0


class Source(Protocol):
    """What collects GPU records (:class:`deuteron.profiler.sources.cupti.CuptiSource`)."""

    def start(self) -> None:
        """Begin to collect. Raises CuptiError."""
        ...

    def stop(self) -> None:
        """End collecting; records not drained by now are lost."""
        ...

    def trace(self, wanted: bool) -> None:
        """Whether to collect calls with their times, copies and memsets. Raises CuptiError."""
        ...

    def follow_ranges(self, push: Callable[[str], None], pop: Callable[[], None]) -> None:
        """Call these, in its thread, when the program pushes and pops ranges by NVTX. Raises CuptiError."""
        ...

    def flush(self) -> None:
        """Wait until every launch that has ended has its records in the buffers."""
        ...

    def drain(self) -> Batch:
        """Take the records that have arrived; never waits for a GPU."""
        ...

    @property
    def main(self) -> Cell:
        """The cell of threads that have none of their own."""
        ...

    def cell(self) -> Cell:
        """The calling thread's cell."""
        ...

    @property
    def metrics(self) -> MetricSource:
        """What asks for metrics that only a GPU knows."""
        ...

    def take_lost(self) -> bool:
        """Whether metrics were overwritten before they were read, since the last call."""
        ...

    def warn_dropped(self) -> None:
        """Warn, once, when the driver had to drop records because buffers were full."""
        ...


class GpuProfiler:
    """Runs a source: marks threads' launches with their place, and adds records to profiles."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.correlations = Correlations()
        self.metrics = DeviceMetrics(source.metrics, self.correlations)
        self.attribution = Attribution(self.correlations, self.metrics)
        self._lock = threading.RLock()  # a signal may come to the thread that holds it, and flush
        self._stopping = threading.Event()
        self._failure: DeuteronError | None = None
        self._traced = False
        # Those that have a cell.
        self._threads: WeakSet[ThreadState] = WeakSet()
        self._lock_of_threads = threading.Lock()
        source.start()
        self._main = source.main
        # That of the main thread alone, for a launch whose number other threads must not have; 0 outside it.
        self._launch: Cell | None = None
        self._thread = threading.Thread(target=self._drain_often, name="deuteron-profiler", daemon=True)
        self._thread.start()

    def mark(self, thread: ThreadState, place: Place | None) -> None:
        """Mark the next launches of the calling thread with its place, which is the main thread's where it is None; by
        the main thread those of threads without a place of their own, too."""
        number = 0 if place is None else place.number if place.number >= 0 else self._number_of(place)
        thread.place = place  # before the number: see mark_again
        (thread.cell or self._cell_of(thread)).value = number

    def mark_again(self, main: Place, now: Callable[[Place], Place]) -> None:
        """Mark all threads anew after the sessions changed: ``main`` is the main thread's place, ``now`` finds those of
        others."""
        self._main.value = self._number_of(main)
        with self._lock_of_threads:
            threads = list(self._threads)
        for thread in threads:
            marked = None
            while thread.place is not None and thread.place is not marked and thread.cell is not None:
                marked = thread.place
                thread.cell.value = self._number_of(now(marked))

    def mark_launch(self, thread: ThreadState, launch: Place, metrics: Mapping[str, object]) -> None:
        """Mark the calling thread's next launch with its place, and with metrics of its own if it has any."""
        number = self.correlations.number_of_launch(launch.targets, metrics) if metrics else self._number_of(launch)
        self.mark_number(thread, number)

    def mark_number(self, thread: ThreadState, number: int) -> None:
        """Mark the calling thread's next launch, which other threads' launches are not, with a number."""
        if thread.is_main:
            self._launch = self._launch or self.source.cell()
            self._launch.value = number
            thread.cell = None  # so that the next mark takes this one back
        else:
            self._cell_of(thread).value = number

    def _number_of(self, place: Place) -> int:
        if place.number < 0:
            place.number = self.correlations.number_of(place.targets)
        return place.number

    def _cell_of(self, thread: ThreadState) -> Cell:
        if thread.cell is None:
            if thread.is_main and self._launch is not None:
                self._launch.value = 0
            thread.cell = self._main if thread.is_main else self.source.cell()
            with self._lock_of_threads:
                self._threads.add(thread)
        return thread.cell

    def use_root(self, sessions: Sequence[Session]) -> None:
        """Launches whose place is not known go to the roots of these sessions."""
        self.attribution.fallback = tuple(session.target(()) for session in sessions)

    def trace(self, wanted: bool) -> None:
        """Whether traces are recorded, which show more than trees. Raises CuptiError."""
        if wanted != self._traced:
            self.source.trace(wanted)
            self._traced = wanted

    def drain(self) -> None:
        """Add the records that have arrived."""
        with self._lock:
            self.attribution.take(self.source.drain())

    def flush(self) -> None:
        """Wait for all launches so far and add their records. Raises CuptiError if records cannot be read."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        with self._lock:
            self.attribution.begin_flush()
            self.metrics.begin_flush()
        self.source.flush()
        with self._lock:
            self.attribution.take(self.source.drain())
            self.attribution.settle()
            self.metrics.settle(self.source.take_lost())
        self.source.warn_dropped()

    def stop(self, thread: ThreadState) -> None:
        """End collecting; the marks of the calling thread and of the main thread are removed."""
        self._stopping.set()
        self._thread.join()
        for cell in (thread.cell, self._main, self._launch):
            if cell is not None:
                cell.value = 0
        with self._lock_of_threads:
            for known in self._threads:
                known.cell = None
        self.source.stop()

    def _drain_often(self) -> None:
        while not self._stopping.wait(_DRAIN_SECONDS):
            try:
                self.drain()
            except DeuteronError as error:  # raised again by the next flush, where a caller sees it
                self._failure = error
                return
