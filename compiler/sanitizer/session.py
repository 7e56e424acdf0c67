"""Running launches checked."""

from __future__ import annotations

import linecache
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..errors import Location
from ..runtime.launch.stand_in import standing
from ..runtime.variant.variant import Variant
from ..source.kernel import KernelSource
from .findings import Report
from .fresh import FreshArrays
from .order import Order
from .program import CheckedLaunch, CheckedProgram
from .shadow import Shadow, regions_of
from .source_ir import SourceFunctions


class Sanitizer:
    """Runs kernels program by program, as their source says, and collects what is wrong in ``report``."""

    def __init__(self) -> None:
        self.report = Report()
        self.fresh = FreshArrays()
        self._functions = SourceFunctions()
        self._lock = threading.Lock()

    def run(self, variant: Variant, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
        """Run every program of ``grid``; see :class:`~..runtime.launch.stand_in.StandIn`.

        Raises:
            CompilationError: the kernel is wrong before it runs.
            LaunchError: arguments do not fit.
            EndlessWait: a program waits for another one for ever.
        """
        with self._lock:
            function, memory, held = self._functions.bound(variant, arguments)
            regions = regions_of(memory.buffers)
            self.fresh.mark(regions)
            order = Order(function)
            source = variant.source
            watch = CheckedLaunch(
                source.name, self.report, Shadow(regions, order), grid, lambda at: line_of(source, at)
            )
            self.report.launches += 1
            x, y, z = grid
            for serial in range(x * y * z):
                order.begin()
                CheckedProgram(memory, serial, watch, print).block(function.body, held)
                self.report.programs += 1
            self.fresh.learn(regions)


@contextmanager
def sanitized() -> Iterator[Report]:
    """Run the launches inside a ``with`` block checked, on the host; the report grows as they run.

    Arrays that ``np.empty`` and ``np.empty_like`` make inside the block count as never written until somebody writes
    them.
    """
    sanitizer = Sanitizer()
    with standing.scope(sanitizer), sanitizer.fresh.following():
        yield sanitizer.report


def line_of(source: KernelSource, at: Location) -> str:
    """The text of the line at ``at``, also where it is in a file of another function that the kernel calls."""
    return source.line(at) or linecache.getline(at.file, at.line).rstrip("\n")
