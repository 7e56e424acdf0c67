"""Peak figures of devices, for the roofline: from the device's own counts and clocks wherever possible.

For the architectures that Proton's table has, the figures are the same as there, so that ``util`` agrees. For others
they follow from the dense tensor-core rate of one multiprocessor and clock.
"""

from __future__ import annotations

from collections.abc import Mapping

# Dense 8-bit operations per SM and clock, from NVIDIA's architecture whitepapers: published dense 8-bit rate of a
# full product divided by its SMs and boost clock (V100 has no 8-bit tensor cores: twice its 16-bit rate).
_OPS_PER_SM_CLOCK = {
    "70": 2048,  # V100: 125 TFLOP/s in 16 bits, 80 SMs, 1.53 GHz
    "72": 2048,
    "75": 2048,  # T4: 130 TOP/s, 40 SMs, 1.59 GHz
    "86": 2048,  # A10: 250 TOP/s, 72 SMs, 1.695 GHz
    "87": 4096,  # Orin: 85 TOP/s, 16 SMs, 1.3 GHz
    "100": 16384,  # B200: the figure of Proton's table
    "101": 16384,
    "103": 16384,  # B300: the FP8 rate of B200
    "110": 16384,  # Thor: 517 TFLOP/s, 20 SMs, 1.575 GHz
    "120": 2048,  # RTX PRO 6000: 1008 TFLOP/s, 188 SMs, 2.617 GHz
    "121": 2048,  # GB10: 250 TFLOP/s, 48 SMs, 2.5 GHz
}
_AMD_OPS_PER_CU_CLOCK = {"gfx90a": 1024, "gfx942": 4096, "gfx950": 8192}
_AMD_BYTES_PER_SECOND = {"gfx90a": 3.2e12, "gfx942": 5.3e12, "gfx950": 8.0e12}


def max_flops(device_type: str, arch: str, width: int, num_sms: float, clock_rate: float) -> float | None:
    """Peak operations per second on numbers of ``width`` bits (8, 16, 32, 64); None for an unknown device.

    ``clock_rate`` is in kHz. Rates halve with every doubling of the width, as in Proton: right for 8 and 16 bits on
    tensor cores, an upper bound for 32 and 64.
    """
    eight_bit = _eight_bit_rate(device_type, arch, num_sms, clock_rate * 1e3)
    return eight_bit / (width / 8) if eight_bit else None


def _eight_bit_rate(device_type: str, arch: str, num_sms: float, clock_hz: float) -> float | None:
    if device_type == "HIP":
        per_clock = _AMD_OPS_PER_CU_CLOCK.get(arch)
        return per_clock * num_sms * clock_hz if per_clock else None
    if device_type != "CUDA":
        return None
    if arch == "80":
        return 624e12
    if arch == "89":
        return 330.3e12
    if arch == "90":
        # H100 PCIe: 1513 TFLOP/s with 114 SMs at 1755 MHz.
        return num_sms / 114 * clock_hz / 1755e6 * 1513e12
    per_clock = _OPS_PER_SM_CLOCK.get(arch)
    return per_clock * num_sms * clock_hz if per_clock else None


def max_bps(device_type: str, arch: str, bus_width: float, memory_clock_rate: float) -> float | None:
    """Peak bytes per second of a device's memory (``bus_width`` in bits, clock in kHz, two transfers a clock).

    None for an unknown device.
    """
    if device_type == "CUDA":
        return 2 * bus_width * memory_clock_rate * 1e3 / 8 or None
    return _AMD_BYTES_PER_SECOND.get(arch) if device_type == "HIP" else None


def device_peak_flops(device_type: str, device: Mapping[str, object], width: int) -> float | None:
    """:func:`max_flops` from a device's metadata in a profile; None where the metadata do not tell."""
    arch, sms, clock = device.get("arch"), device.get("num_sms"), device.get("clock_rate")
    if not isinstance(sms, (int, float)) or not isinstance(clock, (int, float)):
        return None
    return max_flops(device_type, str(arch), width, sms, clock)


def device_peak_bps(device_type: str, device: Mapping[str, object]) -> float | None:
    """:func:`max_bps` from a device's metadata in a profile; None where the metadata do not tell."""
    width, clock = device.get("bus_width"), device.get("memory_clock_rate")
    if not isinstance(width, (int, float)) or not isinstance(clock, (int, float)):
        return None
    return max_bps(device_type, str(device.get("arch")), width, clock)
