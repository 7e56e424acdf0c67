"""Kernel source text to tile IR. Text is parsed, never executed."""

from ..language.inline import Inlinable
from ..source.kernel import Argument, KernelSource
from .lower import lower

__all__ = ["Argument", "Inlinable", "KernelSource", "lower"]
