"""Targets: the interpreter defines every operation, ``cpu`` and ``nvptx`` turn functions into machine code."""

from ..target import Target
from .rules import RuleSet

__all__ = ["RuleSet", "Target"]
