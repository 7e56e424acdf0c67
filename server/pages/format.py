"""Numbers and instants as people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from deuteron.tuner.time_text import duration_text, time_text


def optional_time(time_ns: float | None) -> str:
    """:func:`time_text`, and a dash where nothing was measured."""
    return "–" if time_ns is None else time_text(time_ns)


def settings_text(config: Mapping[str, object]) -> str:
    """A configuration or a shape on one line: BLOCK=128, num_warps=4."""
    return ", ".join(f"{name}={value}" for name, value in config.items())


def sizes_of(shape_key: str) -> list[int]:
    """The numbers of a shape, to sort by: K=512 comes before K=1024. Of one that was stored under odd names, too."""
    return [int(digits) for digits in re.findall(r"=([0-9]{1,20})(?=,|$)", shape_key)]


def ago(moment: datetime | None) -> str:
    """How long ago: 5 s, 3 min, 2 h, 4 d."""
    if moment is None:
        return "–"
    seconds = max(0.0, (datetime.now(UTC) - moment).total_seconds())
    return f"{duration_text(seconds)} ago"
