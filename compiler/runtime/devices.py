"""Devices: the one interface that launching, profiling and tuning use for a CPU and for a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, Protocol

from ..errors import DeviceError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What a device is; fields that its driver does not tell are None.

    ``sm_count`` is the number of cores on a CPU. ``clock_khz`` and ``memory_clock_khz`` are the highest clocks.
    """

    name: str
    kind: Literal["cpu", "cuda"]
    uuid: str | None = None
    pci_device_id: str | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    l2_bytes: int | None = None
    shared_bytes_per_block: int | None = None
    threads_per_block: int | None = None
    clock_khz: int | None = None
    memory_clock_khz: int | None = None
    memory_bus_bits: int | None = None
    power_cap_watts: float | None = None
    driver: str | None = None
    mig: bool | None = None


@dataclass(frozen=True, slots=True)
class Clocks:
    """A device's clocks, temperature and power at one moment; None where it does not tell."""

    sm_mhz: int | None
    memory_mhz: int | None
    temperature_c: int | None
    power_watts: float | None


class Timer(Protocol):
    """Times what is launched between ``start`` and ``stop``, on the device's own clock."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def elapsed_ns(self) -> int:
        """Nanoseconds between the two; waits for the device."""
        ...


class DeviceArray(Protocol):
    """A dense row-major array in a device's memory. ``dtype`` is a canonical name such as ``f32``."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    def to_numpy(self) -> np.ndarray:
        """A copy on the host; waits for the device."""
        ...

    def copy_from(self, source: np.ndarray) -> None:
        """Overwrite the contents; raises LaunchError when shape or dtype differ."""
        ...


class Device(ABC):
    """One place where kernels run. Obtain it from :func:`get_device`; there is one object per device."""

    #: ``cpu`` or ``cuda:0``.
    name: str
    #: What kernels are compiled for: ``cpu`` or ``cuda:90a``.
    target: str

    @property
    @abstractmethod
    def properties(self) -> DeviceProperties: ...

    @abstractmethod
    def array(self, source: np.ndarray) -> DeviceArray:
        """A copy of ``source`` in the device's memory."""

    @abstractmethod
    def empty(self, shape: Sequence[int], dtype: str) -> DeviceArray:
        """An uninitialised array."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything launched has ended; raises DeviceError when something failed."""

    @abstractmethod
    def clocks(self) -> Clocks | None:
        """The clocks now; None where they cannot be read."""

    @abstractmethod
    def timer(self) -> Timer: ...

    @abstractmethod
    def flush_l2(self) -> None:
        """Evict what kernels left in the last-level cache, so that the next launch reads memory."""

    def __repr__(self) -> str:
        return f"<Device {self.name}: {self.properties.name}>"


@cache
def get_device(name: str) -> Device:
    """The device called ``cpu`` or ``cuda:0`` (``cuda`` is ``cuda:0``).

    Raises:
        DeviceError: there is no such device here; the message lists those that are.
    """
    kind, _, index = name.partition(":")
    if name == "cpu":
        from .cpu.device import CpuDevice

        return CpuDevice()
    if name == "cuda":
        return get_device("cuda:0")
    if kind == "cuda" and index.isdigit() and name == f"cuda:{int(index)}":
        return _cuda_device(int(index))
    raise DeviceError(f"unknown device {name!r}", hint=f"devices here: {_present()}")


def list_devices() -> list[Device]:
    """Every device of this machine, the CPU first."""
    from .cuda.driver import cuda_device_count

    names = ["cpu", *(f"cuda:{i}" for i in range(cuda_device_count()))]
    return [get_device(n) for n in names]


def default_device() -> Device:
    """Where arguments that are on no device run: DEUTERON_DEVICE, else the CPU."""
    from .. import knobs

    return get_device(knobs.device.get() or "cpu")


def _cuda_device(index: int) -> Device:
    from .cuda.driver import cuda_device_count, why_no_cuda

    count = cuda_device_count()
    if index >= count:
        why = why_no_cuda() or f"this machine has {count} GPU{'s' if count > 1 else ''}"
        raise DeviceError(f"device 'cuda:{index}' is not present: {why}", hint=f"devices here: {_present()}")
    from .cuda.device import CudaDevice

    return CudaDevice(index)


def _present() -> str:
    from .cuda.driver import cuda_device_count

    return ", ".join(["cpu", *(f"cuda:{i}" for i in range(cuda_device_count()))])
