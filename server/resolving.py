"""What the names of kernels and devices in a question stand for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache

from deuteron.compiler import KernelSource
from deuteron.tuner import BUILTINS, DeviceFingerprint, builtin_workload, canonical_name

from .problems import HttpProblem
from .store import StoredDevice, Transaction

_HASH = re.compile(r"^[0-9a-f]{64}$")


def resolve_kernel(tx: Transaction, kernel: str) -> str:
    """The hash that a kernel hash or name stands for.

    Raises:
        HttpProblem: 404, nothing is known under this name.
    """
    if _HASH.match(kernel):
        return kernel
    stored = tx.kernels.newest_named(kernel)
    found = stored.hash if stored is not None else builtin_kernel_hash(kernel)
    if found is None:
        raise HttpProblem(
            404,
            "kernel-not-found",
            f"there is no kernel {kernel!r}",
            hint="a built-in workload, the name of a kernel that was submitted, or its sha256",
        )
    return found


def resolve_device(tx: Transaction, device: str) -> tuple[DeviceFingerprint, tuple[str, ...]]:
    """The fingerprint that a key or a name stands for, and the keys of the known devices that it matches:
    ``NVIDIA H200`` and ``NVIDIA_H200_141GB`` meet. A device that was never seen matches none.

    Raises:
        HttpProblem: 422, ``cpu`` or ``cuda`` stands for several devices.
    """
    return resolve_among(known_devices(tx), device)


def known_devices(tx: Transaction) -> dict[str, DeviceFingerprint]:
    """The devices of the store by their keys."""
    return {item.key: _fingerprint(item) for item in tx.devices.all()}


def resolve_among(known: Mapping[str, DeviceFingerprint], device: str) -> tuple[DeviceFingerprint, tuple[str, ...]]:
    """As :func:`resolve_device`, with these devices known by their keys."""
    if device in known:
        wanted = known[device]
    elif (kind := device.lower()) in ("cpu", "cuda"):
        candidates = [item for item in known.values() if item.kind == kind]
        if len(candidates) > 1:
            raise HttpProblem(
                422,
                "ambiguous-device",
                f"{len(candidates)} devices are of the kind {kind!r}",
                hint="use a name or a key: " + ", ".join(item.key for item in candidates),
            )
        wanted = candidates[0] if candidates else DeviceFingerprint(kind, kind)
    else:
        name = canonical_name(device)
        kinds = [item.kind for item in known.values() if canonical_name(item.name) == name]
        wanted = DeviceFingerprint(kinds[0] if kinds else "cuda", device)
    keys = [key for key, item in known.items() if item.matches(wanted)]
    return wanted, tuple(keys)


def _fingerprint(device: StoredDevice) -> DeviceFingerprint:
    return _parse_fingerprint(device.fingerprint)


@lru_cache(maxsize=1024)
def _parse_fingerprint(text: str) -> DeviceFingerprint:
    return DeviceFingerprint.from_json(json.loads(text))


@cache
def builtin_kernel_hash(name: str) -> str | None:
    """The kernel hash of a built-in workload, None when there is no such workload."""
    if name not in BUILTINS:
        return None
    kernel = builtin_workload(name).kernel
    return KernelSource.from_text(kernel.source, kernel.name, kernel.filename).hash
