"""Devices of a machine as the engine's resources, and what a job asks of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from deuteron.compiler.errors import DeviceError
from deuteron.compiler.runtime.devices import get_device, list_devices
from deuteron.tuner import DeviceFingerprint

_SELECTOR = re.compile(r"cpu|cuda(:[0-9]{1,4})?")


def resources_of(device: str) -> dict[str, float]:
    """What a worker for this device offers: one measurement at a time."""
    return {"cpu": 1} if device == "cpu" else {"GPU": 1, device: 1}


def resources_for(selector: str) -> dict[str, float]:
    """What a job with this device selector holds while it measures.

    Raises:
        DeviceError: the selector is not ``cpu``, ``cuda`` or ``cuda:N``.
    """
    if not _SELECTOR.fullmatch(selector):
        raise DeviceError(f"device {selector!r} is not a device", hint="cpu, cuda or cuda:0")
    if selector == "cuda":
        return {"GPU": 1}
    return resources_of(selector)


def detected_devices() -> list[str]:
    """Names of this machine's devices; ``cpu`` is always one of them."""
    names = [device.name for device in list_devices()]
    return names if "cpu" in names else ["cpu", *names]


def fingerprints(names: Sequence[str]) -> list[dict[str, object]]:
    """The identity of each named device, as JSON."""
    return [DeviceFingerprint.of(get_device(name).properties).to_json() for name in names]
