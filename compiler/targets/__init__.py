"""Targets: the interpreter defines every operation, ``cpu`` and ``nvptx`` turn functions into machine code."""

from ..ir.rules import RuleSet
from ..target import Target

__all__ = ["RuleSet", "Target"]
