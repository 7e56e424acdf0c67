"""Profiling modes: the default, ``periodic_flushing`` (write and drop every completed phase), and those of in-kernel
records (:mod:`.instrumentation`)."""

from __future__ import annotations

from dataclasses import dataclass

from deuteron.compiler.runtime.launch.records import RecordSettings

from .errors import UsageError
from .instrumentation import KERNEL_MODES, parse_kernel_options

_FORMATS = ("hatchet", "hatchet_msgpack", "chrome_trace")
_REFUSED = ("mma", "pcsampling")
_NAMES = "'' or 'periodic_flushing[:format=hatchet]'; with backend='instrumentation' 'default[:option=value...]'"


@dataclass(frozen=True, slots=True)
class Mode:
    """A parsed mode: ``""``; ``periodic_flushing`` with the format of its files ("" is the data's default); or
    ``default``, with how kernels record."""

    name: str = ""
    format: str = ""
    records: RecordSettings | None = None

    def __str__(self) -> str:
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


def PCSampling(interval: int = 1000) -> Mode:  # noqa: N802 - the name Proton's users write
    """A mode of Proton's that no session takes: :func:`deuteron.profiler.start` says why."""
    del interval
    return Mode("pcsampling")


def parse_mode(text: str | Mode | None, backend: str | None = None) -> Mode:
    """Parse ``""``, ``periodic_flushing[:format=hatchet|hatchet_msgpack|chrome_trace]``, or with the backend
    "instrumentation" ``""`` or ``default[:option=value...]``. Raises UsageError."""
    if isinstance(text, Mode) and text.name in _REFUSED:
        text = text.name
    mode = text if isinstance(text, Mode) else _parse(text or "", backend)
    if (mode.records is not None) != (backend == "instrumentation"):
        raise UsageError(
            f"the mode {str(mode) or 'without a name'!r} does not fit the backend {backend!r}",
            hint="in-kernel records need backend='instrumentation' and the mode 'default'",
        )
    return mode


def _parse(text: str, backend: str | None) -> Mode:
    name, *options = text.split(":")
    if name == "pcsampling":
        raise UsageError(
            "mode 'pcsampling' is not supported: program counters are sampled of one kernel, not of a program",
            hint="leave mode out; deuteron.profiler.sample_lines(kernel, grid, *args) samples a kernel",
        )
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
