"""Kernel source text to tile IR. Text is parsed, never executed."""

from ..language.inline import Inlinable
from ..source.arguments import Argument
from ..source.kernel import KernelSource
from .lower import lower

__all__ = ["Argument", "Inlinable", "KernelSource", "lower"]
