"""Launches under the interpreter: the kernel's Python function itself runs, program by program, on host arrays."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from ...signature import scattered
from ..arrays.descriptor import spread
from ..arrays.host import host_array
from ..launch.bound import Relaunch
from ..launch.grid import grid_of
from ..launch.hooks import LaunchEvent, described, installed, launch_with_hooks
from ..launch.kernel import Kernel, Launch
from ..launch.stand_in import StandIn
from ..variant.pipeline import Build, lowered, make_tile


class InterpretedLaunch:
    """Runs one specialisation of a kernel eagerly, so that ``print`` and ``pdb`` work inside it."""

    direct = None

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        self._kernel = kernel
        self._launch = launch

    def __call__(self, grid: object, values: tuple[Any, ...], arguments: tuple[object, ...]) -> None:
        shape = grid_of(grid)
        if 0 in shape:
            return
        given = dict(zip(self._kernel.arg_names, arguments, strict=True))
        flat = spread(scattered(given))
        with ExitStack() as stack:
            passed = {
                name: stack.enter_context(host_array(flat[name])) if kind.pointer else flat[name]
                for name, kind in self._launch.signature.items()
            }
            self._observe(shape, given, lambda: self._run(shape, passed))

    def bound(self, grid: object, values: tuple[Any, ...], arguments: tuple[object, ...]) -> Relaunch:
        """The launch of a call, to be repeated."""
        return lambda: self(grid, values, arguments)

    def _run(self, shape: tuple[int, int, int], passed: dict[str, Any]) -> None:
        variant = self._launch.variant
        function = self._kernel.python()
        if function is None:  # text that is not ours to execute: its IR is interpreted
            from ...targets.interpreter import run as run_ir  # lazy: NumPy, for those who interpret

            cooperative = variant.schedule.launch_cooperative_grid
            run_ir(make_tile(Build(variant)), shape, list(passed.values()), cooperative=cooperative)
            return
        from .python import run  # lazy: the frontend, for those who interpret

        schedule = variant.schedule
        run(
            function,
            shape,
            variant.signature,
            passed,
            variant.constants,
            lower=lambda: lowered(variant),
            debug=schedule.debug,
            sanitize_overflow=schedule.sanitize_overflow,
            cooperative=schedule.launch_cooperative_grid,
        )

    def _observe(self, shape: tuple[int, int, int], given: dict[str, object], run: Callable[[], None]) -> None:
        if not installed.hooks:
            run()
            return
        event = LaunchEvent(
            self._launch.name,
            self._launch.device,
            0,
            shape,
            lambda: described(self._launch.name, self._kernel.launch_metadata, shape, self._launch, given),
        )

        def timed() -> None:
            event.start_ns = time.perf_counter_ns()
            try:
                run()
            finally:
                event.end_ns = time.perf_counter_ns()

        launch_with_hooks(event, timed)


class StandInLaunch(InterpretedLaunch):
    """Hands one specialisation of a kernel to what stands in for devices."""

    def __init__(self, kernel: Kernel, launch: Launch, stand_in: StandIn) -> None:
        super().__init__(kernel, launch)
        self._stand_in = stand_in

    def _run(self, shape: tuple[int, int, int], passed: dict[str, Any]) -> None:
        self._stand_in.run(self._launch.variant, shape, passed)
