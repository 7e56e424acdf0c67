"""Devices: the one interface that launching, profiling and tuning use for a CPU and for a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np

_LONG_NS = 4_000_000


def rest_before(launch_ns: float) -> float:
    """Nanoseconds that a GPU rests before a launch that takes so long is timed: as many. Launches of 4 ms and more meet
    its power limit by themselves.

    Without rests products keep an H200 at that limit, and its clock wanders: of two tiles of 8192 x 8192 x 8192, one of
    which is 1.3 % slower at the full clock, nothing tells which. With rests of half a launch quartiles are still 4 %
    apart, with these 0.3 % (benchmarks/results/2026-11-29-h200-rests/rests.json).
    """
    return launch_ns if launch_ns < _LONG_NS else 0.0


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

    def start(self) -> None:
        """Mark the beginning; does not wait for the device."""
        ...

    def stop(self) -> None:
        """Mark the end; does not wait for the device."""
        ...

    def elapsed_ns(self) -> int:
        """Nanoseconds between the two; waits for the device."""
        ...


class DeviceArray(Protocol):
    """A dense row-major array in a device's memory. ``dtype`` is a canonical name such as ``f32``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions, empty for a single element of rank 0."""
        ...

    @property
    def dtype(self) -> str:
        """Canonical name of the element type, such as ``f32``."""
        ...

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        ...

    def to_numpy(self) -> np.ndarray:
        """A copy on the host; waits for the device."""
        ...

    def copy_from(self, source: np.ndarray) -> None:
        """Overwrite the contents; raises LaunchError when shape or dtype differ."""
        ...

    def fill(self, row: np.ndarray) -> None:
        """Overwrite the contents with the elements of ``row``, of rank 1, again and again in memory's order; raises
        LaunchError when it is empty or of another dtype."""
        ...

    def part(self, start: int, shape: Sequence[int], dtype: str) -> DeviceArray:
        """An array that shares this one's memory from byte ``start`` on, and keeps it."""
        ...


class Device(ABC):
    """One place where kernels run. Obtain it from :func:`.devices.get_device`; there is one object per device."""

    #: ``cpu`` or ``cuda:0``.
    name: str
    #: What kernels are compiled for: ``cpu`` or ``cuda:90a``.
    target: str

    @property
    @abstractmethod
    def properties(self) -> DeviceProperties:
        """What the device is and has; read once and kept."""
        ...

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
    def timer(self) -> Timer:
        """A new timer of what is launched on this device."""
        ...

    @abstractmethod
    def flush_l2(self) -> None:
        """Evict what kernels left in the last-level cache, so that the next launch reads memory."""

    def held_back(self, rest_ns: float = 0.0) -> AbstractContextManager[None]:
        """A context: what is launched in it begins together, once all of it is in the device's queue and the device has
        done nothing for ``rest_ns``. Where launches are no queue, they begin at once."""
        return nullcontext()

    def repeated(self, launch: Callable[[], None], times: int) -> Callable[[], None] | None:
        """A function that starts ``launch`` so many times in a row without the host; None on devices that do not."""
        return None

    def __repr__(self) -> str:
        return f"<Device {self.name}: {self.properties.name}>"
