"""Launches of instrumented kernels.

While somebody asks for records, kernels are compiled with them (:attr:`..variant.variant.Variant.instrumented`) and
every launch that has scopes waits for its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import knobs
from ..arrays.arguments import readers
from .hooks import LaunchEvent
from .loaded import Loaded
from .records import RecordSettings, empty_buffer, read_buffer


class _Recording:
    """Whether launches record now, and how: read when a kernel needs a new specialisation, and at instrumented
    launches."""

    __slots__ = ("settings",)

    def __init__(self) -> None:
        self.settings: RecordSettings | None = None


recording = _Recording()


def record_launches(settings: RecordSettings | None) -> None:
    """Let launches from now on record, or, for None, not."""
    if settings != recording.settings:
        recording.settings = settings
        knobs.epoch.value += 1  # kernels forget what they have prepared


def run_observed(
    loaded: Loaded,
    scopes: Sequence[tuple[str, ...]],
    event: LaunchEvent,
    values: tuple[Any, ...],
    stream: int | None,
) -> None:
    """The launch that hooks observe; of an instrumented kernel, whose ``scopes`` these are, wait for its end and leave
    its records in ``event``."""
    if not scopes:
        loaded.timed_launch(event, values, stream)
        return
    programs, warps = loaded.tracks(event.grid)
    buffer = loaded.device.array(empty_buffer(recording.settings or RecordSettings(), programs, warps))
    _, address = readers[type(buffer)](buffer)
    loaded.timed_launch(event, (*values, address), stream)
    loaded.device.synchronize()
    event.records = read_buffer(buffer.to_numpy(), scopes, warps, loaded.ticks_per_ns())
