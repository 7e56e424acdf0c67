"""Kernel source text to tile IR. Text is parsed, never executed."""

from .lower import lower
from .source import Argument, Inlinable, KernelSource

__all__ = ["Argument", "Inlinable", "KernelSource", "lower"]
