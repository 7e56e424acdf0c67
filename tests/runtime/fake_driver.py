"""A CUDA driver that runs nothing: it notes every call and reads what a launch passes, as the real one does."""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from deuteron.compiler.launch_recipe import LaunchRecipe
from deuteron.compiler.runtime import devices
from deuteron.compiler.runtime.cuda import builtin
from deuteron.compiler.runtime.cuda import device as cuda_device
from deuteron.compiler.runtime.cuda import driver as cuda
from deuteron.compiler.runtime.cuda.device import CudaDevice
from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.compiler.runtime.variant.metadata import KernelMetadata
from deuteron.compiler.signature import ArgumentType, parse_argument_type

#: Calls of the driver API that a capturing stream allows (CUDA driver API, "Stream capture"): of those that this
#: project makes, the launch itself, choosing the context, and making descriptors, which the device does not see.
LEGAL_UNDER_CAPTURE = {"cuLaunchKernelEx", "cuCtxSetCurrent", "cuTensorMapEncodeTiled"}

#: cuda.h, CUlaunchAttributeID; tests compare them with the bindings'.
COOPERATIVE, CLUSTER_DIMENSION, PROGRAMMATIC = 2, 4, 6


@dataclass
class Launched:
    """What the driver read from one launch."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    attributes: dict[int, tuple[int, ...]]  # by the numbers of CUlaunchAttributeID
    arguments: int  # address of the array of pointers to parameters
    parameters: list[bytes]

    @property
    def cluster(self) -> tuple[int, ...] | None:
        """Sizes of a cluster."""
        return self.attributes.get(CLUSTER_DIMENSION)


@dataclass
class Encoded:
    """Arguments of cuTensorMapEncodeTiled, innermost dimension first as there."""

    data_type: int
    base: int
    sizes: list[int]
    strides: list[int]
    box: list[int]
    element_strides: list[int]
    interleave: int
    swizzle: int
    promotion: int
    fill: int
    result: bytes


class FakeFunctions:
    """The functions of the driver that machine code calls, as C functions that note how they are called; and those that
    make graphs. Kernels are launched by ``driver``. ``capturing``: streams that are; ``codes``: what functions return
    that are no success, by what is noted; ``while_starting``: called while a graph is started."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.calls: list[tuple[Any, ...]] = []
        self.destroyed: list[tuple[int, Any]] = []  # with the thread's capture mode then
        self.capture_mode: Any = 0
        self.capturing: set[int] = set()
        self.codes: dict[str, int] = {}
        self.while_starting: Callable[[], object] = lambda: None
        address, code = ctypes.c_void_p, ctypes.c_int
        self._functions = {
            "cuGraphLaunch": ctypes.CFUNCTYPE(code, address, address)(self._start),
            "cuLaunchKernelEx": ctypes.CFUNCTYPE(code, *[address] * 4)(self._launch),
            "cuStreamIsCapturing": ctypes.CFUNCTYPE(code, address, ctypes.POINTER(code))(self._captures),
            "cuCtxSetCurrent": ctypes.CFUNCTYPE(code, address)(self._enter),
        }

    def address(self, name: str) -> int:
        """Where the function is."""
        return ctypes.cast(self._functions[name], ctypes.c_void_p).value or 0

    def _start(self, graph: int, stream: int | None) -> int:
        self.calls.append(("graph", graph, stream or 0))
        self.while_starting()
        return self.codes.get("graph", 0)

    def _launch(self, config: int, function: int, parameters: int, extra: int | None) -> int:
        self.calls.append(("kernel", config, function, parameters, extra))
        return self.codes.get("kernel") or self.driver.cuLaunchKernelEx(config, function, parameters, extra)

    def _captures(self, stream: int | None, status: Any) -> int:
        status[0] = int((stream or 0) in self.capturing)
        return self.codes.get("captures", 0)

    def _enter(self, context: int) -> int:
        self.calls.append(("context", context))
        return self.codes.get("context") or self.driver.cuCtxSetCurrent(context)

    def cuGraphExecDestroy(self, graph: int) -> None:  # noqa: N802
        self.destroyed.append((graph, int(self.capture_mode)))

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> tuple[int, Any]:  # noqa: N802
        before, self.capture_mode = self.capture_mode, mode
        return 0, before

    def cuGraphDestroy(self, graph: int) -> None: ...  # noqa: N802

    def cuStreamDestroy(self, stream: int) -> None: ...  # noqa: N802

    def __getattr__(self, name: str) -> Any:
        return getattr(_BINDINGS(), name)


_BINDINGS = cuda.bindings


@dataclass
class FakeDriver:
    """``sizes``: bytes of each parameter that launches pass, which only the real driver knows from the code."""

    sizes: Sequence[int] = ()
    calls: list[str] = field(default_factory=list)
    launches: list[Launched] = field(default_factory=list)
    encoded: list[Encoded] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)  # devices, as launches made their contexts current
    code: int = 0  # what cuTensorMapEncodeTiled returns
    stream: int = 0  # the current one
    handle: int = 0x10000
    room: int = 264  # programs for which the device has room: two on each multiprocessor

    def __post_init__(self) -> None:
        self.functions = FakeFunctions(self)

    def install(self, monkeypatch: pytest.MonkeyPatch, gpus: int = 1) -> CudaDevice:
        """Take the driver's place; the GPU that it has."""
        device = FakeGpu(0)
        monkeypatch.setattr(cuda, "library", lambda: self)
        monkeypatch.setattr(cuda, "call", self.call)
        monkeypatch.setattr(cuda, "bindings", lambda: self.functions)
        monkeypatch.setattr(builtin, "driver_function", self.functions.address)
        monkeypatch.setattr(cuda, "cuda_device_count", lambda: gpus)
        monkeypatch.setattr(cuda, "primary_context", lambda index: 0x700 + index)
        monkeypatch.setattr(cuda.streams, "current", lambda index: self.stream)
        monkeypatch.setattr(cuda_device, "_free", lambda index, address: None)  # arrays may outlive the test
        monkeypatch.setitem(devices._known, "cuda:0", device)
        return device

    def call(self, name: str, *arguments: object) -> object:
        self.calls.append(name)
        if name == "cuOccupancyMaxActiveBlocksPerMultiprocessor":
            return self.room // 132
        self.handle += 0x1000
        return self.handle

    def cuCtxSetCurrent(self, context: Any) -> int:  # noqa: N802
        self.calls.append("cuCtxSetCurrent")
        self.contexts.append(_address(context) - 0x700)
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, arguments: Any, extra: Any) -> int:  # noqa: N802
        self.calls.append("cuLaunchKernelEx")
        *sizes, stream, attributes, count = struct.unpack("7I4xQQI4x", ctypes.string_at(_address(config), 56))
        assert bool(attributes) == bool(count)
        held = ctypes.string_at(attributes, 72 * count) if count else b""
        given = {kind: tuple(numbers) for kind, *numbers in struct.iter_unpack("I4x3I52x", held)}
        assert len(given) == count
        pointers = (ctypes.c_void_p * max(len(self.sizes), 1)).from_address(_address(arguments))
        read = [ctypes.string_at(p, n) for p, n in zip(pointers, self.sizes, strict=False)]
        for pointer, size in zip(pointers, self.sizes, strict=False):
            assert pointer % (64 if size == 128 else size) == 0
        self.launches.append(
            Launched(tuple(sizes[:3]), tuple(sizes[3:6]), sizes[6], stream, given, _address(arguments), read)
        )
        if COOPERATIVE in given and sizes[0] * sizes[1] * sizes[2] > self.room:
            return 720  # CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
        return 0

    def cuTensorMapEncodeTiled(self, *a: Any) -> int:  # noqa: N802
        self.calls.append("cuTensorMapEncodeTiled")
        place, data_type, rank, base, sizes, strides, box, element_strides, *modes = a
        assert place.value % 64 == 0 and len(sizes) == len(box) == len(element_strides) == rank.value
        numbers = [list(sizes), list(strides)[: rank.value - 1], list(box), list(element_strides)]
        text = repr((data_type.value, base.value, numbers, [m.value for m in modes]))
        result = hashlib.sha512(text.encode()).digest() * 2
        if not self.code:
            ctypes.memmove(place.value, result, 128)
        self.encoded.append(Encoded(data_type.value, base.value or 0, *numbers, *[m.value for m in modes], result))
        return self.code


class FakeGpu(CudaDevice):
    """A GPU of compute capability 9.0 with 132 multiprocessors."""

    target = "cuda:90a"
    properties = DeviceProperties(
        "Fake",
        "cuda",
        sm_count=132,
        compute_capability=(9, 0),
        shared_bytes_per_block=227 * 1024,
        threads_per_block=1024,
    )


@dataclass
class FakeCode:
    """A kernel as loading sees it, without any code."""

    types: dict[str, str]
    recipe: LaunchRecipe
    shared: int = 0
    name: str = "kernel"
    kind: str = "cuda"
    target: str = "cuda:90a"

    @property
    def metadata(self) -> KernelMetadata:
        return KernelMetadata(self.name, self.target, "", 4, 3, 1, self.recipe)

    @property
    def signature(self) -> dict[str, ArgumentType]:
        return {name: parse_argument_type(text) for name, text in self.types.items()}

    def code(self) -> bytes:
        return b""


def _address(argument: Any) -> int:
    """What C gets for an argument made by ctypes.byref."""
    return ctypes.cast(argument, ctypes.c_void_p).value or 0


Recipe = Callable[[frozenset[Any]], LaunchRecipe]


def give_recipes(monkeypatch: pytest.MonkeyPatch, recipe: Recipe) -> None:
    """Let GPU code have the recipe that ``recipe`` gives for what is denied to the compiler."""
    from deuteron.compiler import gpu

    lower = gpu.lower_to_gpu

    def lower_with_recipe(function: Any, target: Any, schedule: Any, denied: frozenset[Any], *more: Any) -> Any:
        made = lower(function, target, schedule, denied, *more)
        made.recipe = recipe(denied)
        return made

    monkeypatch.setattr(gpu, "lower_to_gpu", lower_with_recipe)
