"""Kernels in a device's memory, ready to launch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from ... import knobs
from ...cores import usable_cores
from ...errors import DeviceError
from ...launch_recipe import Guard
from ...llvm.symbols import symbol_of
from ...tile.records import RECORDS_TYPE
from ..cuda.launch import load_on_cuda
from ..device import Device
from .hooks import LaunchEvent
from .loaded import Direct, GridShape, Loadable, Loaded


def load(kernel: Loadable, device: Device) -> Loaded:
    """Load a kernel; raises DeviceError when the device cannot run code for its target."""
    if device.name == "cpu":
        if kernel.kind != "cpu":
            raise DeviceError(
                f"{kernel.name} was compiled for {kernel.target} and cannot run on {device.name}",
                hint='compile with target="cpu"',
            )
        return LoadedOnCpu(kernel, device)
    return load_on_cuda(kernel, device)


def grid_threads() -> int:
    """Threads that share a grid on the CPU."""
    return knobs.cpu_threads.get() or usable_cores()


#: Clocks that are read one after the other are compared over a time that is long beside what reading them takes.
_LEAST_NS_TO_COMPARE = 2_000_000


class LoadedOnCpu:
    """A kernel in this process's memory; launches return when it has ended."""

    def __init__(self, kernel: Loadable, device: Device) -> None:
        from ...targets import cpu  # lazy: loads LLVM

        self.device = device
        self._kernel = cpu.load(kernel.code(), symbol_of(kernel.metadata.name), list(kernel.signature))
        self._types = [kind.tile for kind in kernel.signature.values()]
        self._cooperative = kernel.metadata.recipe.cooperative
        if kernel.metadata.recipe.scopes:
            self._types.append(RECORDS_TYPE)
            self._anchor = time.perf_counter_ns(), self._kernel.clock()
        self._threads = grid_threads()
        self._epoch = knobs.epoch.value
        self.module = self.function = self._kernel.address

    def launch(self, grid: GridShape, values: tuple[Any, ...], stream: int | None) -> None:
        """Run all programs on the CPU's threads and return when they have ended; ``stream`` means nothing here."""
        if self._epoch != knobs.epoch.value:
            self._threads, self._epoch = grid_threads(), knobs.epoch.value
        self._kernel.launch(grid, values, self._types, self._threads, self._cooperative)

    def bound(self, grid: GridShape, values: tuple[Any, ...]) -> Callable[[int | None], None]:
        """A function that launches on these values."""
        return lambda stream: self.launch(grid, values, stream)

    def direct(
        self, result: object, count: int, places: Mapping[str, str], guards: Sequence[Guard], otherwise: Direct | None
    ) -> None:
        """None: what a launch on the CPU waits for takes longer."""

    def timed_launch(self, event: LaunchEvent, values: tuple[Any, ...], stream: int | None) -> None:
        """Launch and note begin and end in ns, also when the launch raises."""
        event.start_ns = time.perf_counter_ns()
        try:
            self.launch(event.grid, values, stream)
        finally:
            event.end_ns = time.perf_counter_ns()

    def tracks(self, grid: GridShape) -> tuple[int, int]:
        """Every program has one."""
        return prod(grid), 1

    def ticks_per_ns(self) -> float:
        """What the counter and the host's clock counted since the kernel was loaded."""
        begin_ns, begin_ticks = self._anchor
        while (now := time.perf_counter_ns()) - begin_ns < _LEAST_NS_TO_COMPARE:
            pass
        return (self._kernel.clock() - begin_ticks) / (now - begin_ns)

    def stream(self, stream: int | None) -> int:
        """0: a CPU has no streams."""
        return 0
