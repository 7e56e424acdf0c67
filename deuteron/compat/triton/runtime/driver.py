"""The device that launches use: ``triton.runtime.driver.active``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from deuteron.compat.triton.backends.compiler import GPUTarget, target_of
from deuteron.compiler import Target, get_device
from deuteron.compiler.errors import DeuteronError, DeviceError
from deuteron.compiler.runtime.device import Device
from deuteron.compiler.runtime.tuning.benchmark import do_bench


def _device(index: int | None = None) -> Device:
    """The GPU of this ordinal, by default the current one; the CPU where there is none."""
    if index is not None:
        try:
            return get_device(f"cuda:{index}")
        except DeuteronError:
            if index == 0:
                return get_device("cpu")
            raise
    return _device(ActiveDriver().get_current_device())


def get_device_key() -> int | str:
    """What ``kernel.device_caches`` is asked for: the ordinal of the current GPU, "cpu" without one."""
    active = ActiveDriver()
    return active.get_current_device() if active.is_active() else "cpu"


def current_device() -> str:
    """The name of the GPU that launches without arrays use, "cpu" where there is none."""
    return _device().name


class DeviceFacts:
    """``driver.active.utils``."""

    def get_device_properties(self, index: int) -> dict[str, int]:
        """The entries that tuning heuristics read, in Triton's units (bytes, kHz, bits); 0 for what is not known. On a
        machine without a GPU the device 0 is the CPU, whose cores count as multiprocessors.

        Raises:
            DeviceError: there is no such GPU.
        """
        found = _device(index).properties
        return {
            "multiprocessor_count": found.sm_count or 0,
            "max_shared_mem": found.shared_bytes_per_block or 0,
            "max_num_regs": 65536 if found.kind == "cuda" else 0,
            "warpSize": 32 if found.kind == "cuda" else 1,
            "sm_clock_rate": found.clock_khz or 0,
            "mem_clock_rate": found.memory_clock_khz or 0,
            "mem_bus_width": found.memory_bus_bits or 0,
        }


class ActiveDriver:
    """The device that launches of this process go to, unless their arguments are on another one."""

    utils = DeviceFacts()

    @staticmethod
    def is_active() -> bool:
        """Whether there is a GPU, which is what Triton's drivers are asked."""
        try:
            get_device("cuda:0")
        except DeuteronError:
            return False
        return True

    def get_current_device(self) -> int:
        """Ordinal of the current GPU: torch's once it uses GPUs, else 0."""
        torch = sys.modules.get("torch")
        return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0

    def set_current_device(self, index: int) -> None:
        """Make a GPU the current one of torch, which decides where its arrays are made."""
        importlib.import_module("torch").cuda.set_device(index)

    def get_current_stream(self, index: int | None = None) -> int:
        """The stream that a launch would use: torch's current one, 0 without torch or a GPU."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return 0
        return int(torch.cuda.current_stream(index).cuda_stream)

    def get_current_target(self) -> GPUTarget:
        """The target of the current GPU; a CPU counts as the backend "cpu"."""
        return target_of(Target.parse(_device().target))

    def get_active_torch_device(self) -> Any:
        """The torch device that kernels of this process run on."""
        return importlib.import_module("torch").device(_device().name)

    def get_device_interface(self) -> Any:
        """torch's module for these devices: ``torch.cuda``, or ``torch.cpu``."""
        torch = importlib.import_module("torch")
        return torch.cuda if _device().properties.kind == "cuda" else torch.cpu

    def get_benchmarker(self) -> Callable[..., Any]:
        """What times launches: ``triton.testing.do_bench``."""
        return do_bench

    def get_empty_cache_for_benchmark(self) -> Device:
        """What :meth:`clear_cache` takes."""
        return _device()

    def clear_cache(self, cache: Device) -> None:
        """Throw a GPU's L2 cache out; the caches of a CPU stay as they are."""
        if cache.properties.kind == "cuda":
            cache.flush_l2()


class DriverChoice:
    """``triton.runtime.driver``: deuteron finds devices itself, so there is one driver."""

    def __init__(self) -> None:
        self.active = self.default = ActiveDriver()

    def set_active(self, driver: object) -> None:
        """Take the driver that is active already.

        Raises:
            DeviceError: it is another one.
        """
        if driver is not self.active:
            raise DeviceError(
                f"a {type(driver).__name__} cannot be the driver",
                hint="deuteron has CPUs and NVIDIA's GPUs; DEUTERON_DEVICE says where kernels without arrays run",
            )

    def reset_active(self) -> None:
        """Nothing else was active."""


driver = DriverChoice()
