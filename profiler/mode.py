"""Profiling modes: the default, ``periodic_flushing`` (write and drop every completed phase), ``pcsampling`` (where
warps of kernels are) and those of in-kernel records (:mod:`.instrumentation`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from deuteron.compiler.runtime.launch.records import RecordSettings

from .errors import UsageError
from .instrumentation import KERNEL_MODES, parse_kernel_options
from .sources.pc_sampling import PERIODS

_FORMATS = ("hatchet", "hatchet_msgpack", "chrome_trace")
_NAMES = (
    "'', 'periodic_flushing[:format=hatchet]' or 'pcsampling[:interval=1000]'; with backend='instrumentation' "
    "'default[:option=value...]'"
)
_INTERVAL = 1000


@dataclass(frozen=True, slots=True)
class Mode:
    """A parsed mode: ``""``; ``periodic_flushing`` with the format of its files ("" is the data's default);
    ``pcsampling`` with ``interval``, the cycles between samples, 0 for other modes; or ``default``, with how kernels
    record."""

    name: str = ""
    format: str = ""
    records: RecordSettings | None = None
    interval: int = 0

    @property
    def period(self) -> int | None:
        """Of ``pcsampling`` the power of two that is nearest to the interval, by ratio: 10 for 1000 cycles; None for
        other modes."""
        return round(math.log2(self.interval)) if self.interval else None

    def __str__(self) -> str:
        if self.interval:
            return f"{self.name}:interval={self.interval}"
        return f"{self.name}:format={self.format}" if self.format else self.name


def PeriodicFlushing(format: str = "hatchet") -> Mode:  # noqa: N802 - the name Proton's users write
    """The mode that writes ``<name>.part_<N>.<format>`` after each completed phase and drops the phase."""
    return parse_mode(f"periodic_flushing:format={format}")


def Default(**options: object) -> Mode:  # noqa: N802 - the name Proton's users write
    """The mode of ``backend="instrumentation"``; options as :func:`.instrumentation.parse_kernel_options`."""
    texts = (f"{name}={value}" for name, value in options.items())
    return parse_mode(":".join(["default", *texts]), "instrumentation")


def MMA(**options: object) -> Mode:  # noqa: N802 - the name Proton's users write
    """A mode of Proton's that no session takes: :func:`deuteron.profiler.start` says why."""
    del options
    return Mode("mma")


def PCSampling(interval: int = _INTERVAL) -> Mode:  # noqa: N802 - the name Proton's users write
    """The mode that samples where warps of kernels are, every ``interval`` cycles of the GPU, or the nearest power of
    two. Raises UsageError for what CUPTI does not take."""
    return parse_mode(f"pcsampling:interval={interval}")


def parse_mode(text: str | Mode | None, backend: str | None = None) -> Mode:
    """Parse ``""``, ``periodic_flushing[:format=hatchet|hatchet_msgpack|chrome_trace]``,
    ``pcsampling[:interval=cycles]``, or with the backend "instrumentation" ``""`` or ``default[:option=value...]``.
    Raises UsageError."""
    if not isinstance(text, Mode | str | None):
        raise UsageError(f"unknown mode {text!r}", hint=_NAMES)
    if isinstance(text, Mode) and text.name == "mma":
        text = text.name
    mode = text if isinstance(text, Mode) else _parse(text or "", backend)
    misfit = f"the mode {str(mode) or 'without a name'!r} does not fit the backend {backend!r}"
    if mode.interval and backend not in (None, "cupti"):
        raise UsageError(misfit, hint="GPUs are sampled: leave backend out, or 'cupti'")
    if (mode.records is not None) != (backend == "instrumentation"):
        raise UsageError(misfit, hint="in-kernel records need backend='instrumentation' and the mode 'default'")
    return mode


def _parse(text: str, backend: str | None) -> Mode:
    name, *options = text.split(":")
    if name == "pcsampling":
        return Mode(name, interval=_interval(options))
    if name in KERNEL_MODES or (not name and backend == "instrumentation"):
        return Mode("default", records=parse_kernel_options(name or "default", options))
    if not name and not options:
        return Mode()
    if name != "periodic_flushing":
        raise UsageError(f"unknown mode {name!r}", hint=_NAMES)
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


def _interval(options: Sequence[str]) -> int:
    """Cycles between samples."""
    cycles = _INTERVAL
    for option in options:
        key, _, value = option.partition("=")
        if key != "interval" or not value.isascii() or not value.isdecimal():
            raise UsageError(f"unknown option {option!r} of mode pcsampling", hint=f"interval={_INTERVAL}, in cycles")
        cycles = int(value)
    least, most = 1 << PERIODS[0], 1 << PERIODS[-1]
    if not least <= cycles <= most:
        raise UsageError(f"samples every {cycles} cycles cannot be had", hint=f"an interval from {least} to {most}")
    return cycles
