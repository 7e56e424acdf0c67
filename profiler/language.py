"""Scopes inside kernels: ``import deuteron.profiler.language as pl``.

A session with ``backend="instrumentation"`` measures them; all other launches run code without a trace of them.
"""

from __future__ import annotations

from deuteron.compiler.language.records import enter_scope, exit_scope, scope

from .errors import UsageError

__all__ = ["disable_semantic", "enable_semantic", "enter_scope", "exit_scope", "scope"]


def enable_semantic(semantic_name: str) -> None:
    """Nothing: scopes are always part of Triton's language here. Raises UsageError for another language."""
    if semantic_name != "triton":
        raise UsageError(f"there is no language {semantic_name!r} here", hint="'triton' is the only one")


def disable_semantic(semantic_name: str) -> None:
    """Nothing: a kernel without scopes is one that does not name any."""
    del semantic_name
