"""Devices that a space may be wanted for, which need not be here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.compiler.runtime.devices import get_device
from deuteron.compiler.target import Target

from ..errors import JobError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Architecture and SMs of products (NVIDIA's data sheets and architecture white papers).
_PRODUCTS: Mapping[str, tuple[str, int]] = {
    "a100": ("80", 108),
    "a10": ("86", 72),
    "l4": ("89", 58),
    "l40s": ("89", 142),
    "h100": ("90a", 132),
    "h200": ("90a", 132),
    "b200": ("100a", 148),
}
_ARCHITECTURE = re.compile(r"sm_(\d+[af]?)")


def device_of(name: str) -> tuple[DeviceProperties, str]:
    """Properties and target (``cpu``, ``cuda:90a``) of a device: ``cpu`` and ``cuda:0`` are asked, of a product such as
    ``h200`` and of an architecture such as ``sm_90a`` is known what a space depends on.

    Raises:
        DeviceError: there is no such device here.
        JobError: the name is none of these.
    """
    text = name.lower()
    architecture = _ARCHITECTURE.fullmatch(text)
    if text in _PRODUCTS:
        arch, sms = _PRODUCTS[text]
        return _absent(text, Target.parse(f"cuda:{arch}"), sms), f"cuda:{arch}"
    if architecture is not None:
        target = Target.parse(f"cuda:{architecture[1]}")
        return _absent(text, target, None), str(target)
    if text != "cpu" and not text.startswith("cuda"):
        raise JobError(
            f"nothing is known of the device {name!r}",
            hint=f"cpu, cuda:0, {', '.join(_PRODUCTS)}, or an architecture such as sm_90a",
        )
    device = get_device(text)
    return device.properties, device.target


def _absent(name: str, target: Target, sms: int | None) -> DeviceProperties:
    return DeviceProperties(
        name,
        "cuda",
        sm_count=sms,
        compute_capability=divmod(target.capability, 10),
        shared_bytes_per_block=target.shared_bytes,
    )
