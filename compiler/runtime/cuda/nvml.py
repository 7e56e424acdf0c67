"""Clocks, temperature and power of NVIDIA GPUs through libnvidia-ml. Every reading is None where it is not to be
had."""

from __future__ import annotations

import ctypes
from functools import cache

# nvml.h: nvmlClockType_t, nvmlTemperatureSensors_t.
_CLOCK_SM = 1
_CLOCK_MEMORY = 2
_SENSOR_GPU = 0


@cache
def _library() -> ctypes.CDLL | None:
    for name in ("libnvidia-ml.so.1", "nvml.dll"):
        try:
            lib = ctypes.CDLL(name)
        except OSError:
            continue
        return lib if lib.nvmlInit_v2() == 0 else None
    return None


class Nvml:
    """NVML's view of the GPU at one PCI address."""

    def __init__(self, pci_device_id: str) -> None:
        self._lib = _library()
        self._handle = ctypes.c_void_p()
        if self._lib is not None:
            found = self._lib.nvmlDeviceGetHandleByPciBusId_v2(pci_device_id.encode(), ctypes.byref(self._handle))
            if found != 0:
                self._lib = None

    @property
    def present(self) -> bool:
        """Whether the library was loaded and knows this GPU."""
        return self._lib is not None

    def _read(self, function: str, *arguments: int) -> int | None:
        """The unsigned number that ``function(handle, *arguments, &number)`` stores."""
        if self._lib is None or not hasattr(self._lib, function):
            return None
        number = ctypes.c_uint()
        code = getattr(self._lib, function)(self._handle, *arguments, ctypes.byref(number))
        return number.value if code == 0 else None

    def sm_mhz(self) -> int | None:
        """Clock of the SMs now, in MHz."""
        return self._read("nvmlDeviceGetClockInfo", _CLOCK_SM)

    def memory_mhz(self) -> int | None:
        """Clock of the memory now, in MHz."""
        return self._read("nvmlDeviceGetClockInfo", _CLOCK_MEMORY)

    def temperature_c(self) -> int | None:
        """Temperature of the chip, in degrees Celsius."""
        return self._read("nvmlDeviceGetTemperature", _SENSOR_GPU)

    def power_watts(self) -> float | None:
        """Power that the board draws, in watts (NVML counts milliwatts)."""
        milliwatts = self._read("nvmlDeviceGetPowerUsage")
        return None if milliwatts is None else milliwatts / 1000

    def power_cap_watts(self) -> float | None:
        """The limit that is enforced now, in watts (NVML counts milliwatts)."""
        milliwatts = self._read("nvmlDeviceGetEnforcedPowerLimit")
        return None if milliwatts is None else milliwatts / 1000

    def mig(self) -> bool | None:
        """Whether the GPU is split into instances."""
        if self._lib is None or not hasattr(self._lib, "nvmlDeviceGetMigMode"):
            return None
        now, pending = ctypes.c_uint(), ctypes.c_uint()
        code = self._lib.nvmlDeviceGetMigMode(self._handle, ctypes.byref(now), ctypes.byref(pending))
        return now.value == 1 if code == 0 else None

    def driver_version(self) -> str | None:
        """Version of the kernel driver as text."""
        if self._lib is None:
            return None
        text = ctypes.create_string_buffer(96)
        code = self._lib.nvmlSystemGetDriverVersion(text, len(text))
        return text.value.decode() if code == 0 else None
