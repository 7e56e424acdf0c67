"""Times as people read them, in terminals and on pages alike."""

from __future__ import annotations

_KERNEL_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))
_CLOCK_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def time_text(ns: float) -> str:
    """The time of a kernel, given in ns: three digits and the fitting unit, ``12.3 us``."""
    for size, unit in _KERNEL_UNITS:
        if ns >= size:
            return f"{_digits(ns / size)} {unit}"
    return f"{_digits(ns)} ns"


def _digits(value: float) -> str:
    """Three, and whole numbers from where these are 1000, which Python writes as 1e+03."""
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def duration_text(seconds: float) -> str:
    """How long something took or how long ago it was: ``3.2 s``, ``45 s``, then whole minutes, hours, days."""
    for size, unit in _CLOCK_UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
