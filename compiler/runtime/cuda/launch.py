"""Loading cubins and launching them, with as little Python as a launch can do with.

Launch configuration and arguments are packed by one ``struct`` call into a buffer that the driver reads before the
launch returns. Buffers are taken from and given back to a list, whose ``pop`` and ``append`` are atomic, so threads
never share one. What ctypes passes is made once: converting a Python number costs it more than passing an object of its
own.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from ...errors import DeviceError, LaunchError, OutOfResources
from ...signature import ArgumentType
from ...target import Target
from ..device import Device
from ..launch.hooks import LaunchEvent
from ..launch.loaded import GridShape, Loadable
from . import driver as cuda
from .device import CudaDevice

# struct's letters for kernel parameters; i1 travels as a byte.
_LETTERS = {
    "i1": "?",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "f16": "e",
    "f32": "f",
    "f64": "d",
}
# Static shared memory that needs no opt-in (CUDA C++ Programming Guide, "Shared Memory").
_SHARED_WITHOUT_OPT_IN = 48 * 1024


# cuda.h, CUlaunchConfig: three grid sizes, three block sizes, shared bytes, stream, attributes, number of attributes.
_CONFIG = "7I4xQQI4x"
_CONFIG_BYTES = struct.calcsize("@" + _CONFIG)


class ArgumentPack:
    """Memory for one launch: its CUlaunchConfig, the arguments after it, and pointers to each argument, which the
    driver takes as an array."""

    __slots__ = ("buffer", "config", "pointers", "arguments")

    def __init__(self, size: int, offsets: list[int]) -> None:
        self.buffer = ctypes.create_string_buffer(size)
        base = ctypes.addressof(self.buffer)
        self.pointers = (ctypes.c_void_p * max(len(offsets), 1))(*[base + o for o in offsets])
        self.config = ctypes.c_void_p(base)
        self.arguments = ctypes.c_void_p(ctypes.addressof(self.pointers))


def packing(signature: list[ArgumentType]) -> tuple[struct.Struct, list[int]]:
    """The struct that packs a launch configuration and arguments of these types, and the offset of each argument in
    it."""
    letters = ["Q" if kind.pointer else _LETTERS.get(kind.dtype, "H") for kind in signature]
    offsets = [
        struct.calcsize("@" + _CONFIG + "".join(letters[: i + 1])) - struct.calcsize(letters[i])
        for i in range(len(letters))
    ]
    return struct.Struct("@" + _CONFIG + "".join(letters)), offsets


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
    """A kernel in a GPU's memory."""

    def __init__(self, kernel: Loadable, device: CudaDevice) -> None:
        lib = cuda.library()
        if lib is None:
            raise DeviceError(f"{device.name} is not present: {cuda.why_no_cuda()}")
        self.device = device
        self._name = kernel.name
        self._threads = kernel.metadata.num_threads
        self._shared = kernel.shared
        self._struct, self._offsets = packing(list(kernel.signature.values()))
        self._bf16 = [i for i, k in enumerate(kernel.signature.values()) if not k.pointer and k.dtype == "bf16"]
        self._packs: list[ArgumentPack] = []
        self._image = kernel.code()
        cuda.make_current(device.index)
        self._module = cuda.call("cuModuleLoadData", self._image)
        self._function = cuda.integer("cuModuleGetFunction", self._module, kernel.name.encode())
        if self._shared > _SHARED_WITHOUT_OPT_IN:
            attribute = cuda.bindings().CUfunction_attribute
            cuda.call(
                "cuFuncSetAttribute",
                self._function,
                attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                self._shared,
            )
        self._launch = lib.cuLaunchKernelEx
        self._handle = ctypes.c_void_p(self._function)
        self._check_context = cuda.cuda_device_count() > 1

    def launch(self, grid: GridShape, values: tuple[Any, ...], stream: int | None) -> None:
        if stream is None:
            stream = cuda.current_stream(self.device.index)
        try:
            pack = self._packs.pop()
        except IndexError:
            pack = ArgumentPack(self._struct.size, self._offsets)
        if self._bf16:
            values = self._with_bf16_bits(values)
        try:
            self._struct.pack_into(pack.buffer, 0, *grid, self._threads, 1, 1, self._shared, stream, 0, 0, *values)
        except struct.error as error:
            raise LaunchError(f"{self._name}: an argument does not fit its type: {error}") from error
        if self._check_context:
            cuda.make_current(self.device.index)
        code = self._launch(pack.config, self._handle, pack.arguments, None)
        if code:
            self._retry(code, grid, pack)
        self._packs.append(pack)

    def _retry(self, code: int, grid: GridShape, pack: ArgumentPack) -> None:
        """A thread that never used the GPU has no current context: give it one and launch again."""
        if code in (cuda.INVALID_CONTEXT, cuda.INVALID_HANDLE):
            cuda.make_current(self.device.index)
            code = self._launch(pack.config, self._handle, pack.arguments, None)
        if code:
            cuda.raise_error(code, f"launching {self._name} on a grid of {grid}")

    def _with_bf16_bits(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        made = list(values)
        for i in self._bf16:
            made[i] = bf16_bits(float(values[i]))
        return tuple(made)

    def timed_launch(self, event: LaunchEvent, values: tuple[Any, ...], stream: int | None) -> None:
        self.launch(event.grid, values, stream)

    def stream(self, stream: int | None) -> int:
        return cuda.current_stream(self.device.index) if stream is None else stream


def bf16_bits(value: float) -> int:
    """A float's bfloat16, rounded to nearest even, as 16 bits."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if value != value:
        return 0x7FC0
    return int((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF)
