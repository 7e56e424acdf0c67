"""Tables of rules: one per operation and target, or stage, and an explicit word where there is none.

``tests/compiler/test_completeness.py`` walks operations x targets and demands one or the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ..errors import UnsupportedOp
from .core import Op

RuleT = TypeVar("RuleT", bound=Callable[..., object])


class RuleSet(Generic[RuleT]):
    """The rules of one target, by operation class."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.rules: dict[type[Op], RuleT] = {}
        self.reasons: dict[type[Op], str] = {}

    def __call__(self, *ops: type[Op]) -> Callable[[RuleT], RuleT]:
        """Register the decorated function as the rule for ``ops``."""

        def register(rule: RuleT) -> RuleT:
            for op in ops:
                if op in self.rules or op in self.reasons:
                    raise TypeError(f"{self.target} has two rules for {op.mnemonic}")
                self.rules[op] = rule
            return rule

        return register

    def unsupported(self, op: type[Op], because: str) -> None:
        """Declare that the target has no rule for ``op``."""
        self.reasons[op] = because

    def extended(self, target: str) -> RuleSet[RuleT]:
        """A copy for ``target``, which adds rules of its own."""
        made: RuleSet[RuleT] = RuleSet(target)
        made.rules.update(self.rules)
        made.reasons.update(self.reasons)
        return made

    def find(self, op: Op) -> RuleT:
        """The rule for ``op``; raises UnsupportedOp with the reason."""
        rule = self.rules.get(type(op))
        if rule is None:
            why = self.reasons.get(type(op), "no rule is registered")
            raise UnsupportedOp(f"{op.mnemonic} is not available on {self.target}: {why}", location=op.location)
        return rule
