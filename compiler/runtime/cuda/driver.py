"""The CUDA driver through ``cuda.bindings``: loaded when first needed, errors as exceptions.

Contexts are the primary contexts, which torch and the CUDA runtime use too, so memory and streams can be shared.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

from ...errors import DeviceError, KernelAssertionError, LaunchError

# CUresult values, CUDA driver API reference, "CUDA Driver API data types".
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_CONTEXT = 201
INVALID_HANDLE = 400
LAUNCH_OUT_OF_RESOURCES = 701
ASSERT = 710
COOPERATIVE_LAUNCH_TOO_LARGE = 720
# Errors after which the context, and so the process's use of the device, is lost.
_STICKY = {700: "a kernel touched memory that is not its own", 702: "a kernel ran too long"} | {
    714: "a hardware stack error",
    715: "a kernel executed an illegal instruction",
    716: "a kernel read or wrote a misaligned address",
    717: "a kernel used an instruction on the wrong address space",
    718: "a kernel's program counter left its code",
    719: "a kernel failed at launch",
}


@cache
def library() -> ctypes.CDLL | None:
    """``libcuda`` itself, for calls on the launch path; None where no driver is installed."""
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


@cache
def _start() -> tuple[int, str | None]:
    """Number of GPUs, and why there is none."""
    if library() is None:
        return 0, "no NVIDIA driver (libcuda.so.1) is installed"
    try:
        driver = bindings()
    except ImportError as error:
        return 0, f"the package cuda-python cannot be imported ({error})"
    (code,) = driver.cuInit(0)
    if int(code) != 0:
        return 0, f"the NVIDIA driver does not start: {_describe(int(code))}"
    code, count = driver.cuDeviceGetCount()
    if int(code) != 0 or count == 0:
        return 0, "the NVIDIA driver sees no GPU"
    return int(count), None


@cache
def bindings() -> ModuleType:
    """The module ``cuda.bindings.driver``."""
    from cuda.bindings import driver

    module: ModuleType = driver
    return module


def cuda_device_count() -> int:
    """Number of GPUs that the driver lets this process use; 0 without a driver."""
    return _start()[0]


def why_no_cuda() -> str | None:
    """Why :func:`cuda_device_count` is 0; None when it is not."""
    return _start()[1]


def call(name: str, *arguments: object) -> object:
    """Call a driver function by name and return its result, or its results as a tuple.

    Raises:
        DeviceError, LaunchError, KernelAssertionError: the driver returned an error.
    """
    code, *values = getattr(bindings(), name)(*arguments)
    if int(code) != 0:
        raise_error(int(code), name)
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


def integer(name: str, *arguments: object) -> int:
    """Call a driver function whose result is a number or a handle, and return that as an int."""
    return int(call(name, *arguments))  # type: ignore[call-overload, no-any-return]


def raise_error(code: int, where: str) -> None:
    """Turn a driver error into the exception that says what it means for the user."""
    text = f"{_describe(code)} (in {where})"
    if code == ASSERT:
        raise KernelAssertionError(
            f"a tl.device_assert failed on the GPU: {text}",
            hint="its message is on stderr; the device context is lost, so start a new process before using "
            "the GPU again",
        )
    if code in _STICKY:
        raise DeviceError(
            f"{_STICKY[code]}: {text}",
            hint="the device context is lost: start a new process; the interpreter (DEUTERON_INTERPRET=1) or "
            "compute-sanitizer finds the place",
        )
    if code == OUT_OF_MEMORY:
        raise DeviceError(f"the GPU has no memory left: {text}", hint="free arrays, or use smaller ones")
    if code in (INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES):
        raise LaunchError(f"the driver refused the call: {text}")
    raise DeviceError(f"the CUDA driver reported an error: {text}")


def _describe(code: int) -> str:
    lib = library()
    if lib is None:
        return f"error {code}"
    name = ctypes.c_char_p()
    said = ctypes.c_char_p()
    lib.cuGetErrorName(code, ctypes.byref(name))
    lib.cuGetErrorString(code, ctypes.byref(said))
    return " ".join(part.value.decode() for part in (name, said) if part.value) or f"error {code}"


_contexts: dict[int, object] = {}
_lock = threading.Lock()


def primary_context(index: int) -> object:
    """The primary context of a device, retained once for the life of the process."""
    with _lock:
        if index not in _contexts:
            if cuda_device_count() <= index:
                raise DeviceError(f"device 'cuda:{index}' is not present: {why_no_cuda()}")
            device = call("cuDeviceGet", index)
            _contexts[index] = call("cuDevicePrimaryCtxRetain", device)
        return _contexts[index]


def contexts_in_use() -> list[int]:
    """Indices of the GPUs that this process has used through deuteron."""
    return sorted(_contexts)


def make_current(index: int) -> None:
    """Make the device's primary context current in this thread."""
    call("cuCtxSetCurrent", primary_context(index))


class _Streams:
    """``current(device index)`` is the stream to launch on: torch's current one once a program uses torch on the GPU,
    else the default one. It is looked up at every launch, and is torch's own function as soon as there is one."""

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current: Callable[[int], int] = _default_or_torch

    @contextmanager
    def redirected(self, stream: int) -> Iterator[None]:
        """Launch on ``stream`` meanwhile, whatever is current."""
        before, self.current = self.current, lambda index: stream
        try:
            yield
        finally:
            self.current = before


def _default_or_torch(index: int) -> int:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    streams.current = raw or (lambda i: int(torch.cuda.current_stream(i).cuda_stream))
    return streams.current(index)


streams = _Streams()
