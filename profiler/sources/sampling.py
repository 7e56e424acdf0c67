"""The source of sessions that sample program counters: kernel records as ever, and beside them samples of every kernel.

CUPTI's serialized collection is on for as long as the source runs: one kernel runs at a time, and each row of samples
names the launch of its kernel by the correlation id that records have, too. What CUPTI keeps of kernels that have ended
has room for some thousand instructions; so a thread takes it away many times a second.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from deuteron.compiler.runtime.launch import lines

from ..errors import CuptiError
from .cupti import CuptiSource
from .debug_lines import LineTable, sections
from .driver import HeldContexts, in_context
from .pc_sampling import BufferFull, PcSampler, attach_anew, cubin_crc
from .records import Batch, Samples

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SECONDS_BETWEEN_LOOKS = 0.05
# Of as many kernels, however short, some have samples.
_KERNELS_WITH_SAMPLES = 20


class SamplingSource(CuptiSource):
    """Collects kernel records, and samples of the contexts in use at its start, every 2 to the power of ``period``
    cycles; else as :class:`.cupti.CuptiSource`."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self._period = period
        self._samplers: dict[int, PcSampler] = {}
        self._reasons: dict[int, tuple[str, bool]] = {}
        self._contexts: HeldContexts | None = None
        self._tables: dict[int, LineTable] = {}
        self._images = 0  # how many of those that were loaded are in the tables
        self._lock = threading.RLock()  # a signal may come to the thread that holds it, and drain
        self._rows: list[NDArray[np.void]] = []
        self._overflows = self._kernels = self._sampled = 0
        self._told = (0, 0)
        self._said_none = False
        self._failure: CuptiError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look_often, name="deuteron-sampler", daemon=True)

    def start(self) -> None:
        """Begin to collect and to sample. Raises CuptiError, which says what is missing."""
        attach_anew(self._cupti)
        super().start()
        try:
            self._contexts = HeldContexts()
            for address in self._contexts.addresses:
                sampler = PcSampler(self._cupti, address, period=self._period, serialized=True)
                with in_context(address):
                    sampler.enable()
                self._samplers[address] = sampler
                self._reasons |= sampler.reasons
        except CuptiError:
            self.stop()
            raise
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling and collecting; also after a start that failed half-way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for address in list(self._samplers):
            self._end(address)
        if self._contexts is not None:
            self._contexts.release()
        super().stop()

    def _hand_over(self) -> None:
        with self._lock:  # on an H100 a process crashed in here while another thread took samples
            super()._hand_over()

    def drain(self) -> Batch:
        """As of kernel records; with the samples since the last call. Raises CuptiError if they cannot be taken."""
        self._look()
        with self._lock:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            rows = [found for found in self._rows if len(found)]
            self._rows.clear()
        batch = super().drain()  # after the samples: a launch is logged before its kernel runs
        self._kernels += sum(map(len, batch.kernels))
        self._sampled += sum(map(len, rows))
        if not rows:
            return batch
        import numpy as np

        return replace(batch, samples=Samples(np.concatenate(rows), self._reasons, self._known_tables()))

    def warn_dropped(self) -> None:
        """Also say how many samples were lost, if any."""
        super().warn_dropped()
        if self._kernels >= _KERNELS_WITH_SAMPLES and not self._sampled and not self._said_none:
            self._said_none = True
            print(
                f"proton: {self._kernels} kernels ran and no samples came",
                file=sys.stderr,
            )
        lost = sum(sampler.dropped for sampler in self._samplers.values()), self._overflows
        if lost != self._told:
            self._told = lost
            print(
                f"proton: {lost[0]} samples were dropped, and the hardware's buffer for them was full {lost[1]} times; "
                "a larger interval takes fewer",
                file=sys.stderr,
            )

    def _look(self) -> None:
        """Take the samples that have arrived. A context whose samples cannot be taken is not sampled any more, so that
        a session can still be written."""
        with self._lock:
            for address, sampler in list(self._samplers.items()):
                try:
                    with in_context(address):
                        self._rows.append(sampler.rows())
                except BufferFull:
                    self._overflows += 1
                except CuptiError:
                    self._end(address)
                    raise

    def _end(self, address: int) -> None:
        """End sampling in a context, which may be gone."""
        with suppress(CuptiError), in_context(address):
            self._samplers.pop(address).disable()

    def _look_often(self) -> None:
        while not self._stopping.wait(_SECONDS_BETWEEN_LOOKS):
            try:
                self._look()
            except CuptiError as error:  # raised again by the next drain, where a caller sees it
                with self._lock:
                    self._failure = error
                return

    def _known_tables(self) -> Mapping[int, LineTable]:
        """The line tables of the modules that were loaded so far."""
        loaded = lines.images[self._images :]
        for image in loaded:
            found = sections(image).get(".debug_line")
            if found is not None:
                self._tables[cubin_crc(self._cupti, image)] = LineTable(found)
        self._images += len(loaded)
        return self._tables
