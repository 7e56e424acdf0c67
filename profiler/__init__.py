"""Scopes, metrics and kernel times of a program, as a tree (``import deuteron.profiler as proton``).

Files and functions are those of Triton's Proton; :mod:`deuteron.profiler.viewer` prints them.
"""

from . import context, data, language, mode, specs
from .api import DEFAULT_PROFILE_NAME, activate, deactivate, finalize, profile, start
from .errors import (
    CuptiError,
    EmptyProfile,
    MalformedProfile,
    MetricError,
    MetricNotFound,
    ProfileFileError,
    ProfilerError,
    UnknownSession,
    UsageError,
)
from .hooks import LaunchMetadata
from .profile import Profile
from .samples import KernelSamples, LineSamples, sample_lines
from .scopes import cpu_timed_scope, enter_scope, exit_scope, scope
from .states import enter_state, exit_state, metadata_state, state
from .tree import Node

__all__ = [
    "DEFAULT_PROFILE_NAME",
    "CuptiError",
    "EmptyProfile",
    "KernelSamples",
    "LaunchMetadata",
    "LineSamples",
    "MalformedProfile",
    "MetricError",
    "MetricNotFound",
    "Node",
    "Profile",
    "ProfileFileError",
    "ProfilerError",
    "UnknownSession",
    "UsageError",
    "activate",
    "context",
    "cpu_timed_scope",
    "data",
    "deactivate",
    "enter_scope",
    "enter_state",
    "exit_scope",
    "exit_state",
    "finalize",
    "language",
    "metadata_state",
    "mode",
    "profile",
    "sample_lines",
    "scope",
    "specs",
    "start",
    "state",
]
