"""What, besides kernel and configuration, the speed of a variant depends on."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deuteron.compiler.runtime.devices import Device


def current_toolchain(device: Device) -> dict[str, str]:
    """Names and versions: deuteron, LLVM's binding, the target, and on a GPU the driver."""
    chain = {
        "deuteron": _version("deuteron"),
        "llvmlite": _version("llvmlite"),
        "target": device.target,
    }
    driver = device.properties.driver
    return chain | ({"driver": driver} if driver else {})


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"
