"""Scopes inside kernels: ``import deuteron.profiler.language as pl``.

A session with ``backend="instrumentation"`` measures them; all other launches run code without a trace of them.
"""

from __future__ import annotations

from deuteron.compiler.language.records import enter_scope, exit_scope, scope

__all__ = ["enter_scope", "exit_scope", "scope"]
