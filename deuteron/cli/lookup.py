"""Finding a configuration in a bundle or at a service, for ``deuteron cache lookup``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deuteron.tuner.workloads import BUILTINS, builtin_workload

from .errors import CommandError
from .kernel_file import read_kernel
from .output import format_config
from .settings import connect

if TYPE_CHECKING:
    from deuteron.tuner import Bundle

_SHORTEST_HASH = 8


@dataclass(frozen=True, slots=True)
class Found:
    """A configuration and why it is the one; ``config`` is text for people."""

    match: str
    reason: str
    config: str


def from_bundle(
    bundle: Bundle,
    kernel: str,
    device: str,
    shape: Mapping[str, int],
    dtype: str,
    *,
    strict: bool,
) -> Found:
    """Look in a file, for a device of this machine.

    Raises:
        CommandError: the bundle has no such kernel.
        RecordNotFound: ``strict``, and no record matches exactly.
    """
    from deuteron.compiler import get_device  # lazy: help starts without the compiler
    from deuteron.tuner.records import (  # lazy: help starts without the tuner
        DeviceFingerprint,
        current_toolchain,
        lookup,
    )

    here = get_device(device)
    answer = lookup(
        bundle.index(),
        _hash_in(bundle, kernel),
        DeviceFingerprint.of(here.properties),
        shape,
        dtype,
        strict=strict,
        toolchain=current_toolchain(here),
    )
    return Found(answer.match, answer.reason, format_config(answer.config))


def from_service(
    server: str | None,
    kernel: str,
    device: str,
    shape: Mapping[str, int],
    dtype: str,
    *,
    strict: bool,
) -> Found:
    """Ask a service. ``device`` may be one of this machine, whose key and toolchain are then sent."""
    with connect(server) as client:
        key, toolchain = _identity_of(device)
        answer = client.lookup(_hash_of_file(kernel) or kernel, key, shape, dtype, strict=strict, toolchain=toolchain)
    return Found(answer.match, answer.reason, format_config(answer.config or {}))


def _hash_of_file(kernel: str) -> str | None:
    if ":" not in kernel and not kernel.endswith(".py"):
        return None

    return read_kernel(kernel).hash


def _hash_in(bundle: Bundle, kernel: str) -> str:
    """The hash of a kernel that is named, abbreviated, or given as a file or as a built-in workload."""
    of_file = _hash_of_file(kernel)
    if of_file is not None:
        return of_file
    sought = builtin_workload(kernel).kernel.name if kernel in BUILTINS else kernel
    names: dict[str, str] = {}
    known = ((one.kernel_name, one.kernel_hash) for one in bundle.records())
    predicted = ((one.kernel_name, one.kernel_hash) for one in bundle.predictors())
    for name, kernel_hash in itertools.chain(known, predicted):
        is_hash = len(kernel) >= _SHORTEST_HASH and kernel_hash.startswith(kernel)
        if name in (kernel, sought) or is_hash:
            return kernel_hash
        names[name] = kernel_hash
    raise CommandError(f"{bundle.path} has no kernel {kernel!r}", hint=f"it has {', '.join(names) or 'none'}")


def _identity_of(device: str) -> tuple[str, dict[str, str] | None]:
    """The key of a device of this machine and what this machine compiles for it with; of any other the name as it is,
    and None: nothing is known of its toolchain."""
    if device != "cpu" and (not device.startswith("cuda") or "/" in device):
        return device, None
    from deuteron.compiler import get_device  # lazy: help starts without the compiler
    from deuteron.tuner.records import (  # lazy: help starts without the tuner
        DeviceFingerprint,
        current_toolchain,
    )

    here = get_device(device)
    return DeviceFingerprint.of(here.properties).key, current_toolchain(here)
