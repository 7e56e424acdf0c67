"""Loading cubins and launching them, with as little Python as a launch can do with.

Functions that :mod:`.direct` writes for each kernel say what the driver is passed. At first it is packed by one
``struct`` call into a buffer that the driver reads before the launch returns; buffers are taken from and given back to
a list, whose ``pop`` and ``append`` are atomic, so threads never share one, and one that was taken for a launch that
raised is dropped. Once launches repeat, machine code packs it on its stack (:mod:`.native`).

Once a kernel is loaded, a launch asks the driver for nothing but the launch (and, with several GPUs, to make the
context current; a bound one that repeats, once, for a graph, which disturbs no capture), so a stream may be captured
in a CUDA graph after one launch of the same variant. Descriptors are made on the host and copied, as all parameters
are, when the driver reads the launch.
"""

from __future__ import annotations

import functools
import struct
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any

from ...errors import DeuteronError, DeviceError, LaunchError, OutOfResources
from ...hardware import LANES
from ...launch_recipe import Guard, LaunchRecipe
from ...llvm.symbols import symbol_of
from ...scalar_arguments import ENCODERS, fitting
from ...signature import parse_argument_type
from ...target import Target
from ...tile.records import RECORDS
from ..device import Device
from ..launch.grid import grid_of
from ..launch.hooks import LaunchEvent
from ..launch.loaded import Direct, GridShape, Loadable
from . import driver as cuda
from .descriptors import EncodedMaps
from .device import CudaDevice
from .direct import Passing, direct_function, passing, passing_function
from .graph import captured
from .native import MISFIT, launch_of, launch_of_values, may_start_graphs, start_graph
from .packing import (
    ArgumentPack,
    PackingPlan,
    address_argument,
    attribute_bytes,
    block_bytes,
    launch_attributes,
    layout_of,
)

# Static shared memory that needs no opt-in (CUDA C++ Programming Guide, "Shared Memory").
_SHARED_WITHOUT_OPT_IN = 48 * 1024
_STREAMS_OF_A_BOUND_LAUNCH = 64
_STREAM_OF_EACH_THREAD = 2  # CU_STREAM_PER_THREAD
#: Launches of a kernel before machine code launches it, and of a bound launch on a stream before it becomes a graph,
#: which takes 0.1 ms and memory.
_LAUNCHES_BEFORE_MACHINE_CODE = 32


def load_on_cuda(kernel: Loadable, device: Device) -> LoadedOnCuda:
    """Load a cubin on a GPU; raises OutOfResources or DeviceError when the GPU cannot run it."""
    if not isinstance(device, CudaDevice) or kernel.kind != "cuda":
        raise DeviceError(
            f"{kernel.name} was compiled for {kernel.target} and cannot run on {device.name}",
            hint=f'compile with target="{device.target}"',
        )
    _check_architecture(kernel, device)
    limits = device.properties
    needed, threads = kernel.shared, kernel.metadata.num_threads
    if limits.shared_bytes_per_block is not None and needed > limits.shared_bytes_per_block:
        raise OutOfResources("shared memory", needed, limits.shared_bytes_per_block)
    if limits.threads_per_block is not None and threads > limits.threads_per_block:
        raise OutOfResources("threads", threads, limits.threads_per_block, hint="use fewer warps")
    return LoadedOnCuda(kernel, device)


def _check_architecture(kernel: Loadable, device: CudaDevice) -> None:
    """Cubins run on their own major architecture, the same or a later minor one; those with a letter on their own
    only."""
    wanted = Target.parse(kernel.target)
    major, minor = device.properties.compute_capability or (0, 0)
    have = major * 10 + minor
    exact = wanted.arch[-1:] in ("a", "f")
    same_major = wanted.capability // 10 == major
    fits = have == wanted.capability if exact else same_major and have >= wanted.capability
    if not fits:
        raise DeviceError(
            f"{kernel.name} was compiled for {kernel.target}; {device.name} ({device.properties.name}) has compute "
            f"capability {major}.{minor}",
            hint=f'compile with target="{device.target}"',
        )


class LoadedOnCuda:
    """A kernel in a GPU's memory.

    Its parameters are the arguments of the signature, the descriptors of its recipe, and, where it is persistent, the
    grid that the user asked for.
    """

    def __init__(self, kernel: Loadable, device: CudaDevice) -> None:
        lib = cuda.library()
        if lib is None:
            raise DeviceError(f"{device.name} is not present: {cuda.why_no_cuda()}")
        recipe, types = kernel.metadata.recipe, dict(kernel.signature)
        if recipe.scopes:
            types[RECORDS] = parse_argument_type("*i64:16")
        self.device = device
        self._name = kernel.name
        self._types = types
        self._recipe = recipe
        self._shared = kernel.shared
        self._layout = layout_of(list(types.values()), len(recipe.descriptors), grid=recipe.persistent)
        scalars = {name: kind.dtype for name, kind in types.items() if not kind.pointer}
        self._encoded = {name: f"{dtype}_bits" for name, dtype in scalars.items() if dtype in ENCODERS}
        self._maps = EncodedMaps(kernel.name, recipe.descriptors, list(types)) if recipe.descriptors else None
        self._attributes = launch_attributes(recipe)
        self._fixed = block_bytes(recipe.threads, self._shared), attribute_bytes(self._attributes)
        self._packs: list[ArgumentPack] = []
        self._image = kernel.code()
        cuda.make_current(device.index)
        # Never unloaded: a CUDA graph may hold launches of it, and nobody can be asked whether one does.
        self.module = cuda.integer("cuModuleLoadData", self._image)
        self.function = cuda.integer("cuModuleGetFunction", self.module, symbol_of(kernel.metadata.name).encode())
        if self._shared > _SHARED_WITHOUT_OPT_IN:
            attribute = cuda.bindings().CUfunction_attribute
            cuda.call(
                "cuFuncSetAttribute",
                self.function,
                attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                self._shared,
            )
        # Where there are several GPUs, another one's context may be the current one.
        several_gpus = cuda.cuda_device_count() > 1
        self._context = int(cuda.primary_context(device.index)) if several_gpus else 0  # type: ignore[call-overload]
        self._directs: weakref.WeakSet[Direct] = weakref.WeakSet()
        self._lock = threading.Lock()  # of those functions, and of what they start with
        self._enter, self._call, self._handle = (
            lib.cuCtxSetCurrent,
            lib.cuLaunchKernelEx,
            address_argument(self.function),
        )
        self._current = address_argument(self._context) if self._context else None
        self._start = self._counted_start()
        self._scope = self._names()

    @functools.cached_property
    def _passed(self) -> Direct:
        places = {name: f"a{i}" for i, name in enumerate(self._types)}
        return passing_function(list(places.values()), self._passing(places), self._scope)

    def _names(self) -> dict[str, object]:
        """What the texts of :mod:`.direct` refer to."""
        recipe = self._recipe
        return {
            "cluster": recipe.cluster,
            "maps": self._maps,
            "sms": self.device.properties.sm_count or 1,
            "most": _programs_at_once(recipe, self.device) if recipe.persistent else None,
            **{f"{dtype}_bits": encoder for dtype, encoder in ENCODERS.items()},
            "grid_of": grid_of,
            "streams": cuda.streams,
            "index": self.device.index,
            "start": self._start,
            "again": self._again,
            "refuse_grid": self._refuse_grid,
        }

    def _passing(self, places: Mapping[str, str]) -> Passing:
        return passing(self._recipe, self._maps.needed if self._maps is not None else (), self._encoded, places)

    def launch(self, grid: GridShape, values: tuple[Any, ...], stream: int | None) -> None:
        """Launch without waiting, on ``stream`` or, for None, the current one.

        Raises LaunchError where a value does not fit its type, and what driver.raise_error makes of the driver's code.
        """
        passed = self._passed(*grid, self.stream(stream), *values)
        code = self._start(*passed)
        if code:
            self._again(code, grid, *passed)

    def _counted_start(self) -> Callable[..., int]:
        """What has the driver launch what it is passed and returns its code: Python at first, and as soon as launches
        repeat machine code, which takes 40 ms to get ready and most of a microsecond less for each."""
        left = _LAUNCHES_BEFORE_MACHINE_CODE if self._layout.is_plannable else 0

        def start(*passed: Any) -> int:
            nonlocal left
            left = now_left = left - 1  # of several threads one sees 0
            if not now_left:
                with suppress(DeuteronError, OSError), self._lock:  # without machine code launches go on as before
                    plan = PackingPlan(self._layout, self.function, self._context, *self._fixed)
                    self._start = self._scope["start"] = launch_of_values(plan)
                    for direct in self._directs:
                        direct.__globals__["start"] = self._start
            return self._start_packed(*passed)

        return start

    def _start_packed(self, *passed: Any) -> int:
        """Pack in Python, and have the driver launch it."""
        pack = self._packed(*passed)
        code = self._launch_pack(pack)
        self._packs.append(pack)
        return code

    def _launch_pack(self, pack: ArgumentPack) -> int:
        """Through ctypes."""
        code: int = self._enter(self._current) if self._current is not None else 0
        return code or self._call(pack.config, self._handle, pack.arguments, None)

    def _packed(self, x: int, y: int, z: int, stream: int, *values: Any) -> ArgumentPack:
        """A pack that holds this launch. Floats beyond their type are infinite. Raises LaunchError for what does not
        fit."""
        try:
            pack = self._packs.pop()
        except IndexError:
            pack = ArgumentPack(self._layout.struct.size, self._layout.offsets, self.function, self._context)
        block, attributes = self._fixed
        pack_into = self._layout.struct.pack_into
        try:
            pack_into(pack.buffer, 0, x, y, z, block, stream, attributes, *values)
        except (struct.error, OverflowError):  # the latter for floats
            fitted = self._fitted(values)
            try:
                pack_into(pack.buffer, 0, x, y, z, block, stream, attributes, *fitted)
            except struct.error as problem:  # the stream is what is left
                raise LaunchError(f"{self._name}: launching on the stream {stream!r}: {problem}") from problem
        return pack

    def _fitted(self, values: tuple[Any, ...]) -> list[Any]:
        """Values as their types have them; raises LaunchError for what does not fit."""
        fitted = list(values)
        for i, (name, kind) in enumerate(self._types.items()):
            if name not in self._encoded:
                fitted[i] = fitting(f"{self._name}: argument {name!r}", values[i], kind.tile)
        return fitted

    def direct(
        self, result: object, count: int, places: Mapping[str, str], guards: Sequence[Guard], otherwise: Direct | None
    ) -> Direct:
        """One function that launches on the current stream and returns ``result``."""
        with self._lock:
            scope = {**self._scope, "kernel": result, "otherwise": otherwise}
            made = direct_function(count, guards, places, self._passing(places), scope)
            self._directs.add(made)
        return made

    def bound(self, grid: GridShape, values: tuple[Any, ...]) -> Callable[[int | None], None]:
        """A function that launches on these values; a stream's launches share memory that is filled once, and once they
        repeat, a graph (:mod:`.native`)."""
        index, streams, passed = self.device.index, cuda.streams, self._passed
        starts: dict[int, Callable[[], int]] = {}

        def begin(stream: int) -> Callable[[], int]:
            if len(starts) >= _STREAMS_OF_A_BOUND_LAUNCH:
                starts.clear()
            start = starts[stream] = self._counted(grid, values, stream, starts)
            return start

        def launch(stream: int | None) -> None:
            if stream is None:
                stream = streams.current(index)
            code = (starts.get(stream) or begin(stream))()
            if code:
                self._again(code, grid, *passed(*grid, stream, *values))

        begin(streams.current(index))  # what does not fit is said now
        return launch

    def _counted(
        self, grid: GridShape, values: tuple[Any, ...], stream: int, starts: dict[int, Callable[[], int]]
    ) -> Callable[[], int]:
        """A function that launches on the stream and returns the driver's code; after some launches it puts a faster
        one in its place in ``starts``."""
        pack = self._packed(*self._passed(*grid, stream, *values))
        left = _LAUNCHES_BEFORE_MACHINE_CODE

        def start() -> int:
            nonlocal left
            left = now_left = left - 1
            if not now_left:
                with suppress(DeuteronError, OSError):
                    self._settle(pack, grid, values, stream)
                    starts[stream] = settled = launch_of(pack)
                    return settled()
            return self._launch_pack(pack)

        return start

    def _settle(self, pack: ArgumentPack, grid: GridShape, values: tuple[Any, ...], stream: int) -> None:
        """Give a launch its graph, unless that means something else: a graph begins after all that was launched before
        it has ended, and after its own last start, which is another stream's if each thread's has this handle."""
        unlike = self._recipe.programmatic or self._recipe.cooperative or stream == _STREAM_OF_EACH_THREAD
        if unlike or not may_start_graphs():
            return
        with suppress(DeuteronError):
            graph = captured(self.device.index, lambda own: self.launch(grid, values, own))
            start_graph(pack, int(graph), stream)  # type: ignore[call-overload]

    def _refuse_grid(self, grid: GridShape) -> None:
        raise LaunchError(
            f"{self._name}: the grid {grid} has size {grid[0]} along axis 0, and the kernel runs in clusters of "
            f"{self._recipe.cluster}",
            hint=f"make it a multiple of {self._recipe.cluster}",
        )

    def _again(self, code: int, grid: GridShape, *passed: Any) -> None:
        """What to do about a launch that was none: pack what machine code could not; give a thread that never used the
        GPU its context."""
        if code == MISFIT:
            code = self._start_packed(*passed)
        if code in (cuda.INVALID_CONTEXT, cuda.INVALID_HANDLE):
            cuda.make_current(self.device.index)
            code = self._start_packed(*passed)
        if code == cuda.COOPERATIVE_LAUNCH_TOO_LARGE:
            raise self._too_large(grid)
        if code:
            cuda.raise_error(code, f"launching {self._name} on a grid of {grid}")

    def _too_large(self, grid: GridShape) -> LaunchError:
        """Why a cooperative launch was refused, with the number of programs for which the device has room."""
        recipe, device = self._recipe, self.device
        fit = cuda.integer("cuOccupancyMaxActiveBlocksPerMultiprocessor", self.function, recipe.threads, self._shared)
        most = fit * (device.properties.sm_count or 1)
        return LaunchError(
            f"{self._name}: launch_cooperative_grid=True runs all programs at the same time, the grid {grid} has"
            f" {prod(grid)}, and {device.name} has room for {most}: {fit} on each multiprocessor",
            hint=f"launch {most} programs or fewer, which take several pieces of the work each; more of them fit with"
            " fewer warps, registers or bytes of shared memory",
        )

    def timed_launch(self, event: LaunchEvent, values: tuple[Any, ...], stream: int | None) -> None:
        """Launch; the event's times stay None, as the host cannot know them."""
        self.launch(event.grid, values, stream)

    def tracks(self, grid: GridShape) -> tuple[int, int]:
        """One for each warp of the programs that are launched, which of persistent ones are few."""
        programs = prod(grid)
        if self._recipe.persistent:
            programs = min(programs, _programs_at_once(self._recipe, self.device))
        return programs, self._recipe.threads // LANES

    def ticks_per_ns(self) -> None:
        """None: each track has a timer beside the clock."""

    def stream(self, stream: int | None) -> int:
        """``stream``, or the current one for None."""
        return cuda.streams.current(self.device.index) if stream is None else stream


def _programs_at_once(recipe: LaunchRecipe, device: CudaDevice) -> int:
    """Programs of a persistent kernel: as many as fit on the device, in whole clusters."""
    fit = (device.properties.sm_count or 1) * recipe.occupancy
    return max(fit // recipe.cluster, 1) * recipe.cluster
