"""Launches on tile IR as it comes from the source, before any pass, so that every access in it is the author's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..ir.core import Function
from ..runtime.variant.pipeline import lowered
from ..runtime.variant.variant import Variant
from ..targets.interpreter.launch import bind
from ..targets.interpreter.memory import Memory
from ..targets.interpreter.program import Held


class SourceLaunch(NamedTuple):
    """A function, the arrays of one launch as the interpreter's memory, and its arguments in that memory."""

    function: Function
    memory: Memory
    held: list[Held]


class SourceFunctions:
    """The functions of variants, each lowered once."""

    def __init__(self) -> None:
        self._made: dict[str, Function] = {}

    def bound(self, variant: Variant, arguments: Mapping[str, Any]) -> SourceLaunch:
        """What the programs of a launch need.

        Raises:
            CompilationError: the kernel is wrong before it runs.
            LaunchError: arguments do not fit.
        """
        function, memory = self._function(variant), Memory()
        return SourceLaunch(function, memory, [bind(p, arguments[p.name], memory) for p in function.parameters])

    def _function(self, variant: Variant) -> Function:
        made = self._made.get(variant.key)
        if made is None:
            made = lowered(variant)
            self._made[variant.key] = made
        return made
