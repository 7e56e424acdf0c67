"""Numbers and instants as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

_TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def duration(time_ns: float | None) -> str:
    """Three significant digits and a unit: 12.3 µs."""
    if time_ns is None:
        return "–"
    factor, unit = next((entry for entry in _TIME_UNITS if time_ns >= entry[0]), _TIME_UNITS[-1])
    value = time_ns / factor
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"


def settings_text(config: Mapping[str, object]) -> str:
    """A configuration or a shape on one line: BLOCK=128, num_warps=4."""
    return ", ".join(f"{name}={value}" for name, value in config.items())


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    """How long ago: 5 s, 3 min, 2 h, 4 d."""
    if moment is None:
        return "–"
    seconds = max(0, int(((now or datetime.now(UTC)) - moment).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
