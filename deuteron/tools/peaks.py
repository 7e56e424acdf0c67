"""What a GPU can do at most, as models of kernel time ask for it. ``device``: an ordinal, by default the first GPU.

Operations a clock and multiprocessor are those of the CUDA C++ Programming Guide ("Throughput of Native Arithmetic
Instructions") and of NVIDIA's architecture white papers, for dense products; a multiplication and an addition are two.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from deuteron.compiler import DeviceProperties, get_device
from deuteron.compiler.errors import DeviceError, LaunchError
from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype

#: Capability -> operations a clock and multiprocessor on tensor cores, of f16 and bf16.
_TENSOR = {
    (8, 0): 2048,
    (8, 6): 1024,
    (8, 7): 2048,
    (8, 9): 1024,
    (9, 0): 4096,
    (10, 0): 8192,
    (10, 3): 8192,
    (11, 0): 8192,
    (12, 0): 1024,
    (12, 1): 1024,
}
#: Elements of other types than two bytes -> factor to that.
_TENSOR_FACTOR = {"f32": 0.5, "f16": 1, "bf16": 1, "i8": 2, "u8": 2, "f8e4m3": 2, "f8e5m2": 2}
#: Capability -> the same without tensor cores, of f32 and of f16.
_SIMD = {
    (8, 0): {"f32": 128, "f16": 512, "bf16": 256},
    (8, 6): {"f32": 256, "f16": 256, "bf16": 256},
    (8, 9): {"f32": 256, "f16": 256, "bf16": 256},
    (9, 0): {"f32": 256, "f16": 512, "bf16": 512},
}


def get_dram_gbps(device: int | None = None) -> float:
    """Bandwidth of a GPU's memory in GB/s (1e9 bytes), at its highest clock and two transfers a clock."""
    found = _properties(device)
    return (found.memory_clock_khz or 0) * 1e3 * 2 * (found.memory_bus_bits or 0) / 8 / 1e9


def get_max_tensorcore_tflops(dtype: object, clock_rate: float, device: int | None = None) -> float:
    """The most that tensor cores do, in 1e12 operations a second, at a clock of ``clock_rate`` kHz.

    Raises:
        LaunchError: nothing is known of this type on this GPU.
    """
    found, name = _properties(device), canonical_dtype(dtype)
    rate = _TENSOR.get(found.compute_capability or (0, 0))
    factor = _TENSOR_FACTOR.get(name)
    if name.startswith("f8") and (found.compute_capability or (0, 0)) < (8, 9):
        factor = None
    return _tflops(found, name, None if rate is None or factor is None else rate * factor, clock_rate)


def get_max_simd_tflops(dtype: object, clock_rate: float, device: int | None = None) -> float:
    """The most that is done without tensor cores, in 1e12 operations a second, at a clock of ``clock_rate`` kHz.

    Raises:
        LaunchError: nothing is known of this type on this GPU.
    """
    found, name = _properties(device), canonical_dtype(dtype)
    return _tflops(found, name, _SIMD.get(found.compute_capability or (0, 0), {}).get(name), clock_rate)


def nvsmi(attrs: Sequence[str]) -> list[int]:
    """Whole numbers that ``nvidia-smi --query-gpu`` tells of the first GPU, such as ``clocks.max.sm`` in MHz.

    Raises:
        DeviceError: the program is not here or refused.
    """
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(attrs)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise DeviceError(f"nvidia-smi does not answer: {error}") from error
    return [int(value) for value in done.stdout.split(",")]


def _properties(device: int | None) -> DeviceProperties:
    return get_device(f"cuda:{device or 0}").properties


def _tflops(found: DeviceProperties, dtype: str, rate: float | None, clock_khz: float) -> float:
    if rate is None:
        raise LaunchError(f"no peak rate is known for {dtype} on {found.name}", hint="measure it")
    return (found.sm_count or 0) * rate * clock_khz * 1e3 / 1e12
