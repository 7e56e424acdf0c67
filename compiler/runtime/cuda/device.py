"""One NVIDIA GPU as a device."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

from ... import knobs
from ...errors import DeuteronError, LaunchError
from ...target import Target
from ..arrays.dtypes import canonical_dtype, item_bytes, numpy_dtype
from ..cpu.device import check_row, check_same
from ..device import Clocks, Device, DeviceProperties
from . import driver as cuda
from .gate import Gate
from .graph import CapturedLaunches
from .nvml import Nvml

if TYPE_CHECKING:
    import numpy as np

# __cuda_array_interface__ has no typestr for these; they travel as bytes of the same size.
_TYPESTR = {"bf16": "<u2", **dict.fromkeys(("f8e4m3", "f8e5m2", "f8e4b8", "f8e5b16", "f8e4b15"), "|u1")}


class CudaArray:
    """A dense row-major array in GPU memory, freed with the object. ``place``: an array in whose memory it is, and
    from which byte on; that one is kept as long."""

    def __init__(
        self, device: CudaDevice, shape: tuple[int, ...], dtype: str, place: tuple[CudaArray, int] | None = None
    ) -> None:
        self.device = device
        self.shape = shape
        self.dtype = dtype
        count = 1
        for extent in shape:
            count *= extent
        self.nbytes = count * item_bytes(dtype)
        self._place = place
        self.address: int
        if place is not None:
            self.address = place[0].address + place[1]
            return
        cuda.make_current(device.index)
        self.address = cuda.integer("cuMemAlloc", self.nbytes) if self.nbytes else 0
        if self.address:
            weakref.finalize(self, _free, device.index, self.address)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": self.shape,
            "typestr": _TYPESTR.get(self.dtype) or numpy_dtype(self.dtype).str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
        }

    def to_numpy(self) -> np.ndarray:
        """A copy on the host; waits for the device."""
        import numpy as np

        made = np.empty(self.shape, numpy_dtype(self.dtype))
        if self.nbytes:
            self.device.synchronize()
            cuda.call("cuMemcpyDtoH", made.ctypes.data, self.address, self.nbytes)
        return made

    def copy_from(self, source: np.ndarray) -> None:
        """Overwrite the contents; raises LaunchError when shape or dtype differ."""
        import numpy as np

        check_same(source, self.shape, self.dtype)
        dense = np.ascontiguousarray(source)
        if self.nbytes:
            self.device.synchronize()
            cuda.call("cuMemcpyHtoD", self.address, dense.ctypes.data, self.nbytes)

    def fill(self, row: np.ndarray) -> None:
        """Repeat the elements of ``row``; raises LaunchError when it is empty or of another dtype. One row comes from
        the host, the rest is copied on the device: what is there already, behind itself."""
        import numpy as np

        check_row(row, self.dtype)
        dense = np.ascontiguousarray(row)
        done = min(dense.nbytes, self.nbytes)
        if done:
            self.device.synchronize()
            cuda.call("cuMemcpyHtoD", self.address, dense.ctypes.data, done)
        while 0 < done < self.nbytes:
            more = min(done, self.nbytes - done)
            cuda.call("cuMemcpyDtoDAsync", self.address + done, self.address, more, self.device.stream())
            done += more

    def part(self, start: int, shape: Sequence[int], dtype: str) -> CudaArray:
        """An array in this one's memory from byte ``start`` on."""
        return CudaArray(self.device, tuple(shape), canonical_dtype(dtype), (self, start))

    def zero_(self) -> None:
        """Set every byte to zero, in stream order."""
        if self.nbytes:
            cuda.make_current(self.device.index)
            cuda.call("cuMemsetD8Async", self.address, 0, self.nbytes, self.device.stream())

    def clone(self) -> CudaArray:
        """A copy on the same device, in stream order."""
        made = CudaArray(self.device, self.shape, self.dtype)
        made.copy_(self)
        return made

    def copy_(self, source: CudaArray) -> None:
        """Overwrite the contents with those of an array of the same size on this device, in stream order."""
        if source.nbytes != self.nbytes or source.device is not self.device:
            raise LaunchError(
                f"cannot copy {source.nbytes} bytes on {source.device.name} into {self.nbytes} bytes on "
                f"{self.device.name}",
                hint="arrays must have equal sizes and be on one device",
            )
        if self.nbytes:
            cuda.make_current(self.device.index)
            stream = self.device.stream()
            cuda.call("cuMemcpyDtoDAsync", self.address, source.address, self.nbytes, stream)


def _free(index: int, address: int) -> None:
    driver = cuda.bindings()
    # At interpreter exit or after a sticky error the driver refuses; there is nothing left to free then.
    driver.cuCtxSetCurrent(cuda.primary_context(index))
    driver.cuMemFree(address)


class CudaTimer:
    """Two events on the stream that launches use."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        cuda.make_current(device.index)
        self._events = [cuda.call("cuEventCreate", 0) for _ in range(2)]
        for event in self._events:
            weakref.finalize(self, cuda.bindings().cuEventDestroy, event)

    def start(self) -> None:
        """Record the first event on the current stream."""
        cuda.call("cuEventRecord", self._events[0], self._device.stream())

    def stop(self) -> None:
        """Record the second event on the current stream."""
        cuda.call("cuEventRecord", self._events[1], self._device.stream())

    def elapsed_ns(self) -> int:
        """Nanoseconds between start and stop; waits for the device. Resolution is about half a microsecond."""
        cuda.call("cuEventSynchronize", self._events[1])
        milliseconds = cuda.call("cuEventElapsedTime", *self._events)
        return round(float(milliseconds) * 1e6)  # type: ignore[arg-type]


class CudaDevice(Device):
    """The GPU with this index in the driver's order."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.name = f"cuda:{index}"
        self._flush: CudaArray | None = None

    @cached_property
    def target(self) -> str:  # type: ignore[override]
        """Architecture kernels are compiled for, by its compute capability or by the knob ``override_arch``."""
        override = knobs.override_arch.get()
        if override is not None:
            return str(Target.parse(override))
        major, minor = (
            self._attribute("COMPUTE_CAPABILITY_MAJOR"),
            self._attribute("COMPUTE_CAPABILITY_MINOR"),
        )
        return str(Target.of_architecture(str(major * 10 + minor)))

    @cached_property
    def properties(self) -> DeviceProperties:
        """What driver and NVML tell; bytes, kHz and watts as the names say."""
        handle = cuda.call("cuDeviceGet", self.index)
        pci = _text(cuda.call("cuDeviceGetPCIBusId", 32, self.index))
        nvml = Nvml(pci)
        uuid = cuda.call("cuDeviceGetUuid", handle)
        return DeviceProperties(
            name=_text(cuda.call("cuDeviceGetName", 256, handle)),
            kind="cuda",
            uuid=_uuid(bytes(uuid.bytes)),  # type: ignore[attr-defined]
            pci_device_id=pci,
            sm_count=self._attribute("MULTIPROCESSOR_COUNT"),
            memory_bytes=cuda.integer("cuDeviceTotalMem", handle),
            compute_capability=(
                self._attribute("COMPUTE_CAPABILITY_MAJOR"),
                self._attribute("COMPUTE_CAPABILITY_MINOR"),
            ),
            l2_bytes=self._attribute("L2_CACHE_SIZE"),
            shared_bytes_per_block=self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            threads_per_block=self._attribute("MAX_THREADS_PER_BLOCK"),
            clock_khz=self._attribute("CLOCK_RATE"),
            memory_clock_khz=self._attribute("MEMORY_CLOCK_RATE"),
            memory_bus_bits=self._attribute("GLOBAL_MEMORY_BUS_WIDTH"),
            power_cap_watts=nvml.power_cap_watts(),
            driver=nvml.driver_version(),
            mig=nvml.mig(),
        )

    @cached_property
    def _nvml(self) -> Nvml:
        return Nvml(self.properties.pci_device_id or "")

    def _attribute(self, name: str) -> int:
        code = getattr(cuda.bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return cuda.integer("cuDeviceGetAttribute", code, self.index)

    def stream(self) -> int:
        """The stream that launches use now."""
        return cuda.streams.current(self.index)

    def array(self, source: np.ndarray) -> CudaArray:
        """A copy of ``source``; waits for the device. Raises LaunchError for a dtype that kernels do not have."""
        made = self.empty(source.shape, canonical_dtype(source.dtype))
        made.copy_from(source)
        return made

    def empty(self, shape: Sequence[int], dtype: str) -> CudaArray:
        """An uninitialised array; raises LaunchError for an unknown dtype."""
        return CudaArray(self, tuple(shape), canonical_dtype(dtype))

    def synchronize(self) -> None:
        """Wait for all streams of the device."""
        cuda.make_current(self.index)
        cuda.call("cuCtxSynchronize")

    def clocks(self) -> Clocks | None:
        """What NVML reads now; None where NVML is not to be had."""
        nvml = self._nvml
        if not nvml.present:
            return None
        return Clocks(nvml.sm_mhz(), nvml.memory_mhz(), nvml.temperature_c(), nvml.power_watts())

    def timer(self) -> CudaTimer:
        """A timer of two events, see CudaTimer."""
        return CudaTimer(self)

    def held_back(self, rest_ns: float = 0.0) -> AbstractContextManager[None]:
        """A context: what is enqueued in it on the current stream waits for its end, and begins together."""
        return nullcontext() if self._gate is None else self._gate.closed(rest_ns)

    @cached_property
    def _gate(self) -> Gate | None:
        try:
            return Gate(self.index)
        except DeuteronError:  # its kernel is PTX, which a driver may have been told not to assemble
            return None

    def repeated(self, launch: Callable[[], None], times: int) -> Callable[[], None]:
        """``launch`` so many times in a row as one CUDA graph; it must have run before."""
        return CapturedLaunches(self.index, launch, times).launch

    def flush_l2(self) -> None:
        """Write four times the L2, in stream order."""
        if self._flush is None:
            # Four times the L2: lines are evicted by address hash, so one size over would leave some behind.
            size = 4 * (self.properties.l2_bytes or (64 << 20))
            self._flush = self.empty((size,), "u8")
        self._flush.zero_()


def _text(raw: object) -> str:
    # The bindings return the whole buffer, of which the text ends at the first zero.
    return raw.partition(b"\0")[0].decode() if isinstance(raw, bytes) else str(raw)


def _uuid(raw: bytes) -> str:
    digits = raw.hex()
    cuts = (0, 8, 12, 16, 20, 32)
    return "GPU-" + "-".join(digits[a:b] for a, b in zip(cuts, cuts[1:], strict=False))
