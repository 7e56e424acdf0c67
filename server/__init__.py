"""The service: REST API, database, dispatch of jobs to workers, bundles and pages.

The names load what they need when they are used: ``import deuteron.server`` is cheap. The client and the settings work
on every installation; the rest needs the extra ``server`` and raises :class:`~deuteron.compiler.errors.MissingExtra`
without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from deuteron.compiler.extras import require_extras

if TYPE_CHECKING:
    from .app import create_app
    from .client import Client
    from .listen import serve
    from .settings import Settings, SettingsError
    from .store import ServiceStore
    from .worker import run_worker

__all__ = ["Client", "Settings", "SettingsError", "ServiceStore", "create_app", "run_worker", "serve"]

_HOMES = {
    "Client": "client",
    "Settings": "settings",
    "SettingsError": "settings",
    "ServiceStore": "store",
    "create_app": "app",
    "run_worker": "worker",
    "serve": "listen",
}
_ON_EVERY_INSTALLATION = frozenset({"Client", "Settings", "SettingsError"})


if not TYPE_CHECKING:  # to checkers a name is what is imported above, and others are errors

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name not in _ON_EVERY_INSTALLATION:
            require_extras("server", by=f"deuteron.server.{name}")
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
