"""What a folding rule is, and the table of all of them.

A rule is a function of an operation and a :class:`Rewriter`; its docstring states the law (``x + 0 -> x``). It returns
None if the law does not apply, else what replaces the operation: a value, or one value per result (none for
operations without results, which are thereby removed).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from ...errors import Location
from ...ir.core import Block, Op, Value

Replacement = Value | tuple[Value, ...] | None
Rule = Callable[..., Replacement]
RuleT = TypeVar("RuleT", bound=Rule)

RULES: dict[type[Op], list[Rule]] = {}


class Rewriter(ABC):
    """What rules build with: calling it with a new operation puts that before the one being rewritten."""

    location: Location | None

    @abstractmethod
    def __call__(self, op: Op) -> Value:
        """Insert ``op`` (folded itself) and return its first result."""

    @abstractmethod
    def place(self, op: Op) -> None:
        """Insert ``op``: as it is, though its regions are folded."""

    @abstractmethod
    def inline(self, block: Block, arguments: tuple[Value, ...]) -> tuple[Value, ...]:
        """Move the operations of ``block`` here; returns what its terminator hands out."""

    @abstractmethod
    def uses(self, value: Value) -> int:
        """How many operands read ``value``, when the sweep began."""


def rule(*ops: type[Op]) -> Callable[[RuleT], RuleT]:
    """Register the decorated function as a rule for ``ops``, tried after those registered before."""

    def register(function: RuleT) -> RuleT:
        for op in ops:
            RULES.setdefault(op, []).append(function)
        return function

    return register
