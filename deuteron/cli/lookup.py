"""Finding a configuration in a bundle or at a service, for ``deuteron cache lookup``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deuteron.tuner.workloads import BUILTINS, builtin_workload

from .errors import CommandError
from .kernel_file import read_kernel
from .output import format_config
from .settings import connect

if TYPE_CHECKING:
    from deuteron.tuner import Bundle, ConfigRecord
    from deuteron.tuner.records import Predictor

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
    """Look in a file, for a device of this machine. A name that several texts have stands for the newest.

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
    kernel_hash, remark = _hash_in(bundle, kernel)
    answer = lookup(
        bundle.index(),
        kernel_hash,
        DeviceFingerprint.of(here.properties),
        shape,
        dtype,
        strict=strict,
        toolchain=current_toolchain(here),
    )
    return Found(answer.match, answer.reason + remark, format_config(answer.config))


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


def stands_for(kernel: str, stored: ConfigRecord | Predictor) -> bool:
    """Whether ``kernel`` is the name of a stored kernel, its hash, or the beginning of that."""
    is_hash = len(kernel) >= _SHORTEST_HASH and stored.kernel_hash.startswith(kernel)
    return is_hash or kernel == stored.kernel_name


def _hash_in(bundle: Bundle, kernel: str) -> tuple[str, str]:
    """The hash of a kernel that is named, abbreviated, or given as a file or as a built-in workload, and a remark where
    that is the newest of several."""
    from deuteron.tuner.records.precedence import age  # lazy: help starts without the tuner

    of_file = _hash_of_file(kernel)
    if of_file is not None:
        return of_file, ""
    sought = builtin_workload(kernel).kernel.name if kernel in BUILTINS else kernel
    stored: list[ConfigRecord | Predictor] = [*bundle.records(), *bundle.predictors()]
    known = [one for one in stored if stands_for(kernel, one) or one.kernel_name == sought]
    if not known:
        names = dict.fromkeys(one.kernel_name for one in stored)
        raise CommandError(f"{bundle.path} has no kernel {kernel!r}", hint=f"it has {', '.join(names) or 'none'}")
    newest, texts = max(known, key=age).kernel_hash, {one.kernel_hash for one in known}
    if len(texts) == 1:
        return newest, ""
    others = ", ".join(sorted(text[:12] for text in texts - {newest}))
    return newest, f"; {kernel} is the newest of {len(texts)} texts, {newest[:12]} (the others: {others})"


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
