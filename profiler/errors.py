"""Errors of the profiler. All derive from :class:`~deuteron.compiler.errors.DeuteronError`."""

from __future__ import annotations

from deuteron.compiler.errors import DeuteronError


class ProfilerError(DeuteronError):
    """Something about a profile, a profiling session or the viewer is wrong."""


class UsageError(ProfilerError, ValueError):
    """A profiler function was called in a way that has no meaning (also a ``ValueError``)."""


class MetricError(ProfilerError, ValueError):
    """A metric's value does not fit its name or the values it is to be added to (also a ``ValueError``)."""


class UnknownSession(ProfilerError, IndexError):
    """A session id or phase does not exist (also an ``IndexError``)."""


class MalformedProfile(ProfilerError):
    """A file is not a profile, or is damaged; the message names the place inside the file."""


class ProfileFileError(ProfilerError):
    """A profile file cannot be read or written; the message carries the system's reason."""


class MetricNotFound(ProfilerError):
    """The viewer was asked for a metric that the profile does not have."""


class EmptyProfile(ProfilerError):
    """Nothing is left to show: the profile has no metrics, or the filters removed every frame."""


class CuptiError(ProfilerError):
    """libcupti is missing, too old, in use by another profiler, or reported an error."""
