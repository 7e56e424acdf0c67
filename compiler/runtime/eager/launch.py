"""Launches under the interpreter: the kernel's Python function itself runs, program by program, on host arrays."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import LaunchError
from ...signature import scattered
from ..arrays.arguments import describe
from ..arrays.descriptor import spread
from ..arrays.dtypes import canonical_dtype, numpy_dtype
from ..arrays.reinterpret import Reinterpreted
from ..launch.bound import Relaunch
from ..launch.grid import grid_of
from ..launch.hooks import LaunchEvent, installed, launch_with_hooks
from ..launch.kernel import Kernel, Launch
from ..variant.pipeline import Build, make_tile

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np


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

            run_ir(make_tile(Build(variant)), shape, list(passed.values()))
            return
        from .python import run  # lazy: the frontend, for those who interpret

        debug = variant.schedule.debug
        run(function, shape, variant.signature, passed, variant.constants, debug=debug)

    def _observe(self, shape: tuple[int, int, int], given: dict[str, object], run: Callable[[], None]) -> None:
        if not installed.hooks:
            run()
            return
        metadata = self._kernel.launch_metadata
        event = LaunchEvent(
            self._kernel.__name__,
            self._launch.device,
            0,
            shape,
            lambda: dict(metadata(shape, self._launch, given)) if metadata else {},
        )

        def timed() -> None:
            event.start_ns = time.perf_counter_ns()
            try:
                run()
            finally:
                event.end_ns = time.perf_counter_ns()

        launch_with_hooks(event, timed)


@contextmanager
def host_array(value: Any) -> Iterator[np.ndarray]:
    """The argument as a NumPy array; arrays on a GPU are copied here and, afterwards, back."""
    import numpy as np

    if isinstance(value, Reinterpreted):
        with host_array(value.base) as array:
            yield array.view(numpy_dtype(value.dtype))
    elif isinstance(value, np.ndarray):
        yield value
    elif hasattr(value, "numpy") and isinstance(value.numpy, np.ndarray):  # HostArray
        yield value.numpy
    elif hasattr(value, "copy_from") and hasattr(value, "to_numpy"):  # CudaArray
        copy = value.to_numpy()
        yield copy
        value.copy_from(copy)
    elif hasattr(value, "data_ptr") and hasattr(value, "cpu"):
        with _torch_array(value) as array:
            yield array
    elif hasattr(value, "__array_interface__"):
        yield np.asarray(value)
    elif hasattr(value, "__dlpack__"):
        yield np.from_dlpack(value)
    else:
        raise LaunchError(f"the interpreter cannot read a {describe(value)}", hint="pass a NumPy array")


@contextmanager
def _torch_array(tensor: Any) -> Iterator[np.ndarray]:
    """A torch tensor's memory as an array, dtypes that NumPy lacks included."""
    import sys

    torch = sys.modules["torch"]
    tensor = tensor.detach()
    host = tensor.cpu()
    dtype = numpy_dtype(canonical_dtype(tensor.dtype))
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    yield host.view(words).numpy().view(dtype)
    if host is not tensor and host.data_ptr() != tensor.data_ptr():
        tensor.copy_(host)
