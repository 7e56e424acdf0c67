"""What can go wrong in the tuner. Every class derives from :class:`deuteron.compiler.errors.DeuteronError`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deuteron.compiler.errors import DeuteronError


class TunerError(DeuteronError):
    """Base of the tuner's errors."""


class SchemaError(TunerError):
    """JSON (or a literal in a kernel file) does not have the expected form; the message names the field."""


class ExpressionError(TunerError):
    """An expression cannot be parsed or evaluated. Shows the text with a caret under the culprit."""

    def __init__(self, message: str, *, text: str, column: int | None = None, hint: str | None = None) -> None:
        shown = message if column is None else f"{message}\n    {text}\n    {' ' * column}^"
        super().__init__(shown, hint=hint)
        self.text = text
        self.column = column


class SpaceError(TunerError):
    """A search space is malformed, or no configuration satisfies its constraints."""


class StrategyError(TunerError):
    """A strategy is unknown, misused, or needs a package that is not installed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a workload or a job: ``where`` is the field (``workload.grid[0]``), ``hint`` what
    would have worked."""

    where: str
    message: str
    hint: str | None = None


class WorkloadError(TunerError):
    """A workload contradicts itself or its kernel. ``faults``: everything that is wrong with it, where several things
    are known; the message is the first one's."""

    def __init__(self, message: str, *, hint: str | None = None, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message, hint=hint)
        self.faults = tuple(faults)


class JobError(TunerError):
    """A tuning job cannot run as asked: no shape, unknown dtype, default configuration that fails."""


class JournalError(TunerError):
    """The journal of a local search cannot be used."""


class BundleError(TunerError):
    """A bundle file is truncated, corrupt, or of another version."""


class UntrustedBundle(BundleError):
    """A bundle was altered after it was signed, or nobody whom this machine trusts vouches for it."""


class KeyFileError(TunerError):
    """A key that signs or checks bundles cannot be read, written or used."""


class RecordNotFound(TunerError):
    """A strict lookup found no configuration for exactly this kernel, device, shape and dtype."""


class ShapeMismatch(TunerError):
    """A lookup names other dims than the kernel was tuned over; the hint lists them."""
