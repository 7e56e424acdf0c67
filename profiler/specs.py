"""Peak figures of devices, for the roofline: rates of one multiprocessor, times the device's own count and clock.

A rate is the number of dense floating-point (or 8-bit integer) operations that one multiprocessor (SM, CU) can finish
in a clock; a fused multiply-add is two. Each row of the table names the paper it is from. A paper that gives only a
product's peak gives the rate as well: peak / multiprocessors / boost clock. What no paper says is left out, and then
nothing is said here either: None, no guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Classes of operations, by the width of the numbers in bits. The first that a device has is the fastest for the width.
CLASSES = {
    8: ("fp8 tensor", "int8 tensor", "int8"),
    16: ("fp16 tensor",),
    32: ("tf32 tensor", "fp32 tensor", "fp32"),
    64: ("fp64 tensor", "fp64"),
}


@dataclass(frozen=True)
class Rates:
    """Operations per clock of one multiprocessor, by class of :data:`CLASSES`, and the paper that says so."""

    source: str
    per_clock: Mapping[str, float]


_VOLTA = "NVIDIA Tesla V100 GPU Architecture (WP-08608): 80 SMs, 1.53 GHz, 7.8 / 15.7 / 125 TFLOP/s"
_XAVIER = "NVIDIA Jetson AGX Xavier technical brief: 8 SMs, 1.377 GHz, 11 TFLOP/s, 22 TOP/s"
_TURING = "NVIDIA Turing GPU Architecture (WP-09183), T4: 40 SMs, 1.59 GHz, 8.1 / 65 TFLOP/s, 130 TOP/s"
_A100 = "NVIDIA A100 Tensor Core GPU Architecture: 108 SMs, 1.41 GHz, 9.7 / 19.5 / 156 / 312 TFLOP/s, 624 TOP/s"
_GA102 = "NVIDIA Ampere GA102 GPU Architecture, RTX A6000: 84 SMs, 1.8 GHz, 38.7 / 77.4 / 154.8 TFLOP/s, 309.7 TOP/s"
_ORIN = "NVIDIA Jetson AGX Orin technical brief: 16 SMs, 1.3 GHz, 5.3 TFLOP/s, 85 TOP/s dense"
_ADA = "NVIDIA Ada GPU Architecture, L40S data sheet: 142 SMs, 2.52 GHz, 91.6 / 183 / 362 / 733 TFLOP/s"
_H100 = "NVIDIA H100 Tensor Core GPU Architecture: 132 SMs, 1.98 GHz (tensor cores 1.83 GHz)"
_B200 = "NVIDIA Blackwell data sheet, B200: 148 SMs, 1.85 GHz, 2.25 / 4.5 PFLOP/s dense, 37 TFLOP/s fp64"
_B300 = "NVIDIA Blackwell Ultra data sheet, B300: the fp16 and fp8 rates of B200, 1.2 TFLOP/s fp64"
_THOR = "NVIDIA Jetson AGX Thor data sheet, T5000: 20 SMs, 1.575 GHz, 8.06 / 517 TFLOP/s dense"
_GB202 = "NVIDIA RTX Blackwell GPU Architecture, RTX PRO 6000: 188 SMs, 2.617 GHz, 126 / 252 / 504 / 1008 TFLOP/s dense"

# The data sheet of Hopper computes its tensor figures with a lower clock than the device reports: H100 PCIe has
# 1513 TFLOP/s with 114 SMs, and reports 1755 MHz. That is 0.923 of 8192, and what Proton's table has.
_HOPPER_8 = 1513e12 / 114 / 1755e6

_NVIDIA: dict[str, Rates] = {
    "70": Rates(_VOLTA, {"int8": 512, "fp16 tensor": 1024, "fp32": 128, "fp64": 64}),
    "72": Rates(_XAVIER, {"int8 tensor": 2048, "fp16 tensor": 1024, "fp32": 128}),
    "75": Rates(_TURING, {"int8 tensor": 2048, "fp16 tensor": 1024, "fp32": 128, "fp64": 4}),
    "80": Rates(
        _A100,
        {
            "int8 tensor": 4096,
            "fp16 tensor": 2048,
            "tf32 tensor": 1024,
            "fp32": 128,
            "fp64 tensor": 128,
            "fp64": 64,
        },
    ),
    "86": Rates(_GA102, {"int8 tensor": 2048, "fp16 tensor": 1024, "tf32 tensor": 512, "fp32": 256, "fp64": 4}),
    "87": Rates(_ORIN, {"int8 tensor": 4096, "fp16 tensor": 2048, "fp32": 256}),
    "89": Rates(_ADA, {"fp8 tensor": 2048, "fp16 tensor": 1024, "tf32 tensor": 512, "fp32": 256, "fp64": 4}),
    "90": Rates(
        _H100,
        {
            "fp8 tensor": _HOPPER_8,
            "fp16 tensor": _HOPPER_8 / 2,
            "tf32 tensor": _HOPPER_8 / 4,
            "fp32": 256,
            "fp64 tensor": 256,
            "fp64": 128,
        },
    ),
    "100": Rates(_B200, {"fp8 tensor": 16384, "fp16 tensor": 8192, "tf32 tensor": 4096, "fp32": 256, "fp64": 128}),
    "103": Rates(_B300, {"fp8 tensor": 16384, "fp16 tensor": 8192, "tf32 tensor": 4096, "fp32": 256, "fp64": 4}),
    "110": Rates(_THOR, {"fp8 tensor": 16384, "fp16 tensor": 8192, "fp32": 256}),
    "120": Rates(_GB202, {"fp8 tensor": 2048, "fp16 tensor": 1024, "tf32 tensor": 512, "fp32": 256, "fp64": 4}),
}
_NVIDIA["101"] = _NVIDIA["110"]  # Thor's number before CUDA 13
_NVIDIA["121"] = _NVIDIA["120"]  # GB10 has the SMs of GB20x

_CDNA2 = "AMD CDNA 2 white paper, MI250X: 220 CUs, 1.7 GHz, 47.9 / 95.7 / 383 TFLOP/s"
_CDNA3 = "AMD CDNA 3 white paper, MI300X: 304 CUs, 2.1 GHz, 81.7 / 163.4 / 653.7 / 1307 / 2615 TFLOP/s dense"
_CDNA4 = "AMD CDNA 4 white paper, MI355X: 256 CUs, 2.4 GHz, 78.6 / 157.3 TFLOP/s, 2.5 / 5 PFLOP/s dense"
_AMD: dict[str, Rates] = {
    "gfx90a": Rates(
        _CDNA2,
        {
            "int8 tensor": 1024,
            "fp16 tensor": 1024,
            "fp32 tensor": 256,
            "fp32": 128,
            "fp64 tensor": 256,
            "fp64": 128,
        },
    ),
    "gfx942": Rates(
        _CDNA3,
        {
            "fp8 tensor": 4096,
            "fp16 tensor": 2048,
            "tf32 tensor": 1024,
            "fp32": 256,
            "fp64 tensor": 256,
            "fp64": 128,
        },
    ),
    "gfx950": Rates(_CDNA4, {"fp8 tensor": 8192, "fp16 tensor": 4096, "fp32": 256, "fp64": 128}),
}
# From the same papers; the memory clock that HIP reports is not that of all its devices' data lines. gfx90a is one of
# the two dies of an MI250X, which share its 3.2 TB/s.
_AMD_BYTES_PER_SECOND = {"gfx90a": 1.6e12, "gfx942": 5.3e12, "gfx950": 8.0e12}


def rates(device_type: str, arch: str) -> Rates | None:
    """The rates of one multiprocessor of an architecture ("90", "gfx942"); None if they are not known."""
    return {"CUDA": _NVIDIA, "HIP": _AMD}.get(device_type, {}).get(arch)


def max_flops(device_type: str, arch: str, width: int, num_sms: float, clock_rate: float) -> float | None:
    """Peak operations per second on numbers of ``width`` bits (8, 16, 32, 64), in their fastest class; None if unknown.

    ``clock_rate`` is in kHz.
    """
    known = rates(device_type, arch)
    if known is None:
        return None
    per_clock = next((known.per_clock[name] for name in CLASSES[width] if name in known.per_clock), None)
    return per_clock * num_sms * clock_rate * 1e3 or None if per_clock else None


def max_bps(device_type: str, arch: str, bus_width: float, memory_clock_rate: float) -> float | None:
    """Peak bytes per second of a device's memory (``bus_width`` in bits, clock in kHz, two transfers a clock).

    None for an unknown device.
    """
    if device_type == "CUDA":
        return 2 * bus_width * memory_clock_rate * 1e3 / 8 or None
    return _AMD_BYTES_PER_SECOND.get(arch) if device_type == "HIP" else None


def device_peaks(device_type: str, device: Mapping[str, object]) -> dict[str, float]:
    """Peak operations per second of every class that is known for a device's record in a profile; empty if none is."""
    known, count = rates(device_type, str(device.get("arch"))), _multiprocessors(device)
    if known is None or count is None:
        return {}
    return {name: per_clock * count[0] * count[1] * 1e3 for name, per_clock in known.per_clock.items()}


def device_peak_flops(device_type: str, device: Mapping[str, object], width: int) -> float | None:
    """:func:`max_flops` from a device's record in a profile; None where the record does not tell."""
    count = _multiprocessors(device)
    return None if count is None else max_flops(device_type, str(device.get("arch")), width, *count)


def device_peak_bps(device_type: str, device: Mapping[str, object]) -> float | None:
    """:func:`max_bps` from a device's record in a profile; None where the record does not tell."""
    width, clock = _positive(device.get("bus_width")), _positive(device.get("memory_clock_rate"))
    if width is None or clock is None:
        return None
    return max_bps(device_type, str(device.get("arch")), width, clock)


def _multiprocessors(device: Mapping[str, object]) -> tuple[float, float] | None:
    """(how many, their clock in kHz), if the record says both."""
    count, clock = _positive(device.get("num_sms")), _positive(device.get("clock_rate"))
    return None if count is None or clock is None else (count, clock)


def _positive(value: object) -> float | None:
    """A figure of a record: a number above 0 that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
        return None
    return float(value)
