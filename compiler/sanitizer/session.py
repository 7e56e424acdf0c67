"""Running launches checked."""

from __future__ import annotations

import linecache
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..errors import Location
from ..frontend import lower
from ..ir.core import Function
from ..runtime.launch.stand_in import standing_in
from ..runtime.variant.variant import Variant
from ..source.kernel import KernelSource
from ..targets.interpreter.launch import bind
from ..targets.interpreter.memory import Memory
from .findings import Report
from .fresh import FreshArrays
from .order import Order
from .program import CheckedLaunch, CheckedProgram
from .shadow import Shadow, regions_of


class Sanitizer:
    """Runs kernels program by program and collects what is wrong in ``report``.

    What runs is tile IR as it comes from the source, before any pass, so that every access is the author's.
    """

    def __init__(self) -> None:
        self.report = Report()
        self.fresh = FreshArrays()
        self._functions: dict[str, Function] = {}
        self._lock = threading.Lock()

    def run(self, variant: Variant, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
        """Run every program of ``grid``; see :class:`~..runtime.launch.stand_in.StandIn`.

        Raises:
            CompilationError: the kernel is wrong before it runs.
            LaunchError: arguments do not fit.
            EndlessWait: a program waits for another one for ever.
        """
        with self._lock:
            function = self._function(variant)
            memory = Memory()
            held = [bind(p, arguments[p.name], memory) for p in function.parameters]
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

    def _function(self, variant: Variant) -> Function:
        made = self._functions.get(variant.key)
        if made is None:
            types = {name: str(kind) for name, kind in variant.signature.items()}
            made = lower(variant.source, types, variant.constants, debug=variant.schedule.debug)
            self._functions[variant.key] = made
        return made


@contextmanager
def sanitized() -> Iterator[Report]:
    """Run the launches inside a ``with`` block checked, on the host; the report grows as they run.

    Arrays that ``np.empty`` and ``np.empty_like`` make inside the block count as never written until somebody writes
    them.
    """
    sanitizer = Sanitizer()
    with standing_in(sanitizer), sanitizer.fresh.following():
        yield sanitizer.report


def line_of(source: KernelSource, at: Location) -> str:
    """The text of the line at ``at``, also where it is in a file of another function that the kernel calls."""
    return source.line(at) or linecache.getline(at.file, at.line).rstrip("\n")
