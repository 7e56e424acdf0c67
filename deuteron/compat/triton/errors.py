"""Triton's names of errors."""

from deuteron.compiler.errors import DeuteronError as TritonError

__all__ = ["TritonError"]
