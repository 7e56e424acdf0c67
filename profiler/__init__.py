"""Scopes, metrics and kernel times of a program, as a tree (``import deuteron.profiler as proton``).

Files and functions are those of Triton's Proton; :mod:`deuteron.profiler.viewer` prints them. Names are imported when
they are first used: who reads a profile needs no compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import context as context
    from . import data as data
    from . import hooks as hooks
    from . import language as language
    from . import mode as mode
    from . import specs as specs
    from . import viewer as viewer
    from .api import DEFAULT_PROFILE_NAME as DEFAULT_PROFILE_NAME
    from .api import activate as activate
    from .api import deactivate as deactivate
    from .api import finalize as finalize
    from .api import profile as profile
    from .api import start as start
    from .errors import CuptiError as CuptiError
    from .errors import EmptyProfile as EmptyProfile
    from .errors import MalformedProfile as MalformedProfile
    from .errors import MetricError as MetricError
    from .errors import MetricNotFound as MetricNotFound
    from .errors import ProfileFileError as ProfileFileError
    from .errors import ProfilerError as ProfilerError
    from .errors import UnknownSession as UnknownSession
    from .errors import UsageError as UsageError
    from .hooks import LaunchMetadata as LaunchMetadata
    from .profiles import Profile as Profile
    from .samples import KernelSamples as KernelSamples
    from .samples import LineSamples as LineSamples
    from .samples import sample_lines as sample_lines
    from .scopes import cpu_timed_scope as cpu_timed_scope
    from .scopes import enter_scope as enter_scope
    from .scopes import exit_scope as exit_scope
    from .scopes import scope as scope
    from .states import enter_state as enter_state
    from .states import exit_state as exit_state
    from .states import metadata_state as metadata_state
    from .states import state as state
    from .tree import Node as Node

_HOMES = {
    "api": "DEFAULT_PROFILE_NAME activate deactivate finalize profile start",
    "errors": (
        "CuptiError EmptyProfile MalformedProfile MetricError MetricNotFound ProfileFileError ProfilerError "
        "UnknownSession UsageError"
    ),
    "hooks": "LaunchMetadata",
    "profiles": "Profile",
    "samples": "KernelSamples LineSamples sample_lines",
    "scopes": "cpu_timed_scope enter_scope exit_scope scope",
    "states": "enter_state exit_state metadata_state state",
    "tree": "Node",
}
_WHERE = {name: home for home, names in _HOMES.items() for name in names.split()}
_MODULES = ("context", "data", "language", "mode", "specs")
# Reached through the package, too: ``proton.hooks.LaunchHook``.
_OTHER_MODULES = ("hooks", "viewer")

__all__ = sorted({*_WHERE, *_MODULES})


if not TYPE_CHECKING:  # to checkers a name is what is imported above, and others are errors

    def __getattr__(name: str) -> object:
        if name in _MODULES or name in _OTHER_MODULES:
            return import_module(f".{name}", __name__)
        home = _WHERE.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{home}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_MODULES, *_OTHER_MODULES})
