"""Loading cubins and launching them, with as little Python as a launch can do with.

Launch configuration and arguments are packed by one ``struct`` call into a buffer that the driver reads before the
launch returns, by functions that :mod:`.direct` writes for each kernel. Buffers are taken from and given back to a
list, whose ``pop`` and ``append`` are atomic, so threads never share one; one that was taken for a launch that raised
is dropped.

Once a kernel is loaded, a launch asks the driver for nothing but the launch (and, with several GPUs, to make the
context current), so a stream may be captured in a CUDA graph after one launch of the same variant. Descriptors are made
on the host and copied, as all parameters are, when the driver reads the launch.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from ...errors import DeviceError, LaunchError, OutOfResources
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
from .direct import direct_function, fill_function, fill_steps
from .packing import (
    ArgumentPack,
    address_argument,
    attribute_bytes,
    block_bytes,
    launch_attributes,
    packing,
)

# Static shared memory that needs no opt-in (CUDA C++ Programming Guide, "Shared Memory").
_SHARED_WITHOUT_OPT_IN = 48 * 1024
_STREAMS_OF_A_BOUND_LAUNCH = 64


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
        self._struct, self._offsets = packing(list(types.values()), len(recipe.descriptors), grid=recipe.persistent)
        scalars = {name: kind.dtype for name, kind in types.items() if not kind.pointer}
        self._encoded = {name: f"{dtype}_bits" for name, dtype in scalars.items() if dtype in ENCODERS}
        self._maps = EncodedMaps(kernel.name, recipe.descriptors, list(types)) if recipe.descriptors else None
        self._attributes = launch_attributes(recipe)
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
        several_gpus = cuda.cuda_device_count() > 1
        self._launch = _in_context(lib, device.index) if several_gpus else lib.cuLaunchKernelEx
        self._handle = address_argument(self.function)
        self._scope = self._names()

    @functools.cached_property
    def _filled(self) -> Direct:
        places = {name: f"a{i}" for i, name in enumerate(self._types)}
        return fill_function(list(places.values()), self._steps(places), self._scope)

    def _names(self) -> dict[str, object]:
        """What the texts of :mod:`.direct` refer to."""
        size, offsets, recipe = self._struct.size, self._offsets, self._recipe
        return {
            "pack_into": self._struct.pack_into,
            "misfits": (struct.error, OverflowError),  # the latter for floats
            "packs": self._packs,
            "new_pack": lambda: ArgumentPack(size, offsets),
            "block": block_bytes(recipe.threads, self._shared),
            "attributes": attribute_bytes(self._attributes),
            "cluster": recipe.cluster,
            "maps": self._maps,
            "sms": self.device.properties.sm_count or 1,
            "most": _programs_at_once(recipe, self.device) if recipe.persistent else None,
            **{f"{dtype}_bits": encoder for dtype, encoder in ENCODERS.items()},
            "grid_of": grid_of,
            "streams": cuda.streams,
            "index": self.device.index,
            "start": self._launch,
            "handle": self._handle,
            "refill": self._refill,
            "refuse_grid": self._refuse_grid,
            "retry": self._retry,
        }

    def _steps(self, places: Mapping[str, str]) -> list[str]:
        return fill_steps(self._recipe, self._maps.needed if self._maps is not None else (), self._encoded, places)

    def launch(self, grid: GridShape, values: tuple[Any, ...], stream: int | None) -> None:
        """Launch without waiting, on ``stream`` or, for None, the current one.

        Raises LaunchError where a value does not fit its type, and what driver.raise_error makes of the driver's code.
        """
        pack = self._filled(*grid, self.stream(stream), *values)
        code = self._launch(pack.config, self._handle, pack.arguments, None)
        if code:
            self._retry(code, grid, pack)
        self._packs.append(pack)

    def direct(
        self, result: object, count: int, places: Mapping[str, str], guards: Sequence[Guard], otherwise: Direct | None
    ) -> Direct:
        """One function that launches on the current stream and returns ``result``."""
        scope = {**self._scope, "kernel": result, "otherwise": otherwise}
        return direct_function(count, guards, places, self._steps(places), scope)

    def bound(self, grid: GridShape, values: tuple[Any, ...]) -> Callable[[int | None], None]:
        """A function that launches on these values; a stream's launches share memory that is filled once."""
        index, start, handle = self.device.index, self._launch, self._handle
        streams, filled = cuda.streams, self._filled
        packs: dict[int, ArgumentPack] = {}

        def fill(stream: int) -> ArgumentPack:
            if len(packs) >= _STREAMS_OF_A_BOUND_LAUNCH:
                packs.clear()
            pack: ArgumentPack = filled(*grid, stream, *values)
            packs[stream] = pack
            return pack

        def launch(stream: int | None) -> None:
            if stream is None:
                stream = streams.current(index)
            pack = packs.get(stream) or fill(stream)
            code = start(pack.config, handle, pack.arguments, None)
            if code:
                self._retry(code, grid, pack)

        fill(streams.current(index))  # what does not fit is said now
        return launch

    def _refill(self, buffer: memoryview, sizes: GridShape, stream: int, values: list[Any]) -> None:
        """Fill a pack with what could not be packed as it was passed: floats beyond their type are infinite. Raises
        LaunchError for what does not fit."""
        for i, (name, kind) in enumerate(self._types.items()):
            if name not in self._encoded:
                values[i] = fitting(f"{self._name}: argument {name!r}", values[i], kind.tile)
        block = block_bytes(self._recipe.threads, self._shared)
        try:
            self._struct.pack_into(buffer, 0, *sizes, block, stream, attribute_bytes(self._attributes), *values)
        except struct.error as problem:  # the stream is what is left
            raise LaunchError(f"{self._name}: launching on the stream {stream!r}: {problem}") from problem

    def _refuse_grid(self, grid: GridShape) -> None:
        raise LaunchError(
            f"{self._name}: the grid {grid} has size {grid[0]} along axis 0, and the kernel runs in clusters of "
            f"{self._recipe.cluster}",
            hint=f"make it a multiple of {self._recipe.cluster}",
        )

    def _retry(self, code: int, grid: GridShape, pack: ArgumentPack) -> None:
        """A thread that never used the GPU has no current context: give it one and launch again."""
        if code in (cuda.INVALID_CONTEXT, cuda.INVALID_HANDLE):
            cuda.make_current(self.device.index)
            code = self._launch(pack.config, self._handle, pack.arguments, None)
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


def _in_context(lib: ctypes.CDLL, index: int) -> Callable[..., int]:
    """cuLaunchKernelEx where another device's context may be the current one. It is changed as the launch is called,
    without what make_current looks up and makes at every call."""
    enter, launch = lib.cuCtxSetCurrent, lib.cuLaunchKernelEx
    context = address_argument(int(cuda.primary_context(index)))  # type: ignore[call-overload]

    def start(*arguments: object) -> int:
        return enter(context) or launch(*arguments)  # type: ignore[no-any-return]

    return start


def _programs_at_once(recipe: LaunchRecipe, device: CudaDevice) -> int:
    """Programs of a persistent kernel: as many as fit on the device, in whole clusters."""
    fit = (device.properties.sm_count or 1) * recipe.occupancy
    return max(fit // recipe.cluster, 1) * recipe.cluster
