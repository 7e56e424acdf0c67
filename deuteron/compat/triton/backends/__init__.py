"""Targets by Triton's names. deuteron's targets are no plug-ins: ``backends`` is empty, and
:func:`triton.compiler.make_backend` describes one."""

from deuteron.compat.triton.backends import compiler as compiler

backends: dict[str, object] = {}

__all__ = ["backends"]
