"""Device metadata of profiles, from the compiler's device properties."""

from __future__ import annotations

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.compiler.runtime.devices import get_device

from .tree import DeviceField, ProfileTree


def describe_devices(profile: ProfileTree) -> None:
    """Fill in :func:`device_fields` of the CUDA devices in a profile."""
    for index, fields in profile.devices.get("CUDA", {}).items():
        if not fields:
            try:
                fields.update(device_fields(get_device(f"cuda:{index}").properties))
            except DeuteronError:
                continue  # a profile of another machine


def device_fields(properties: DeviceProperties) -> dict[str, DeviceField]:
    """``arch`` ("90"), ``bus_width`` (bits), ``clock_rate`` and ``memory_clock_rate`` (kHz), ``num_sms``; what is not
    known is left out."""
    capability = properties.compute_capability
    known = {
        "arch": None if capability is None else f"{capability[0]}{capability[1]}",
        "bus_width": properties.memory_bus_bits,
        "clock_rate": properties.clock_khz,
        "memory_clock_rate": properties.memory_clock_khz,
        "num_sms": properties.sm_count,
    }
    return {name: value for name, value in known.items() if value is not None}
