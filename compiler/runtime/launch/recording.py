"""Launches of instrumented kernels.

While somebody asks for records, kernels are compiled with them (:attr:`..variant.variant.Variant.records`) and
every launch that has scopes waits for its end.
"""

from __future__ import annotations

from typing import Any

from ...epoch import Switch
from ...launch_recipe import LaunchRecipe
from ..arrays.arguments import readers
from .hooks import LaunchEvent
from .loaded import Loaded
from .records import RecordSettings, head_of, read_buffer, words_of

#: Whether launches record now, and how: read when a kernel needs a new specialisation, and at instrumented launches.
recording: Switch[RecordSettings | None] = Switch(None)


def run_observed(
    loaded: Loaded,
    recipe: LaunchRecipe,
    event: LaunchEvent,
    values: tuple[Any, ...],
    stream: int | None,
) -> None:
    """The launch that hooks observe; of an instrumented kernel wait for its end and leave its records in ``event``."""
    if not recipe.scopes:
        loaded.timed_launch(event, values, stream)
        return
    programs, warps = loaded.tracks(event.grid)
    settings = recording.value or RecordSettings()
    ring = settings.ring(programs, warps, recipe.records)
    buffer = loaded.device.empty((words_of(programs * warps, ring, recipe.records),), "i64")
    buffer.fill(head_of(settings, ring))
    loaded.device.synchronize()  # the launch may be on another stream
    _, address = readers[type(buffer)](buffer)
    loaded.timed_launch(event, (*values, address), stream)
    loaded.device.synchronize()
    event.records = read_buffer(buffer.to_numpy(), recipe, warps, loaded.ticks_per_ns())
