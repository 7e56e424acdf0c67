"""Device metadata of profiles, from the compiler's device properties."""

from __future__ import annotations

from deuteron.compiler.errors import DeuteronError

from .tree import DeviceField, Profile


def describe_devices(profile: Profile) -> None:
    """Fill in arch, bus_width, clock_rate, memory_clock_rate and num_sms of the CUDA devices in a profile."""
    for index, fields in profile.devices.get("CUDA", {}).items():
        if not fields:
            fields.update(_cuda_fields(int(index)))


def _cuda_fields(index: int) -> dict[str, DeviceField]:
    from deuteron.compiler.runtime.devices import get_device

    try:
        properties = get_device(f"cuda:{index}").properties
    except DeuteronError:
        return {}
    major, minor = properties.compute_capability or (0, 0)
    return {
        "arch": f"{major}{minor}",
        "bus_width": properties.memory_bus_bits or 0,
        "clock_rate": properties.clock_khz or 0,
        "memory_clock_rate": properties.memory_clock_khz or 0,
        "num_sms": properties.sm_count or 0,
    }
