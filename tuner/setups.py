"""What trials were measured with, which says whether a later run may go on from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from .codec import canonical_json
from .records import DeviceFingerprint, current_toolchain
from .trial import Trial

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import Device

#: Trials of an earlier run, each with its shape and dtype.
Finished: TypeAlias = Iterable[tuple[Mapping[str, int], str, Trial]]


def setup_of(device: Device) -> str:
    """What trials of this device and toolchain have in common: a digest of what their records are kept under."""
    key, toolchain = DeviceFingerprint.of(device.properties).key, current_toolchain(device)
    return hashlib.sha256(canonical_json([key, toolchain]).encode()).hexdigest()[:16]


def measured_with(setup: str, finished: Finished) -> list[tuple[Mapping[str, int], str, Trial]]:
    """The trials that a run with this setup goes on from. Those of another GPU, or of code by another compiler, would
    be handed out as this one's."""
    return [(shape, dtype, trial) for shape, dtype, trial in finished if trial.setup in (None, setup)]
