"""Profiling modes: the default, and ``periodic_flushing`` (write and drop every completed phase)."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import UsageError

_ELSEWHERE = {
    "pcsampling": "sampling of program counters is not part of deuteron",
    "default": "measuring inside kernels is not part of deuteron",
    "mma": "measuring inside kernels is not part of deuteron",
}
_FORMATS = ("hatchet", "hatchet_msgpack", "chrome_trace")


@dataclass(frozen=True, slots=True)
class Mode:
    """A parsed mode: ``""``, or ``periodic_flushing`` with the format of its files ("" is the data's default)."""

    name: str = ""
    format: str = ""

    def __str__(self) -> str:
        return f"{self.name}:format={self.format}" if self.format else self.name


def PeriodicFlushing(format: str = "hatchet") -> Mode:  # noqa: N802 - the name Proton's users write
    """The mode that writes ``<name>.part_<N>.<format>`` after each completed phase and drops the phase."""
    return parse_mode(f"periodic_flushing:format={format}")


def parse_mode(text: str | Mode | None) -> Mode:
    """Parse ``""`` or ``periodic_flushing[:format=hatchet|hatchet_msgpack|chrome_trace]``. Raises UsageError."""
    if isinstance(text, Mode):
        return text
    if not text:
        return Mode()
    name, *options = text.split(":")
    if name in _ELSEWHERE:
        raise UsageError(f"mode {name!r} is not supported: {_ELSEWHERE[name]}", hint="leave mode out")
    if name != "periodic_flushing":
        raise UsageError(f"unknown mode {name!r}", hint="'' or 'periodic_flushing[:format=hatchet]'")
    chosen = ""
    for option in options:
        key, _, value = option.partition("=")
        if key != "format" or value not in _FORMATS:
            raise UsageError(
                f"unknown option {option!r} of mode periodic_flushing",
                hint=f"format={'|'.join(_FORMATS)}",
            )
        chosen = value
    return Mode(name, chosen)
