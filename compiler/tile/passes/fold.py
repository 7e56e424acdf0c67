"""Folding: applies the rules of :data:`RULE_MODULES` until none fires."""

from __future__ import annotations

from collections import Counter

from ...ir.core import Block, Function, Op, Value
from ...ir.types import Scalar
from ..control import Condition, Yield
from ..elementwise import Constant
from . import block_rules, control_rules, rules, shape_rules
from .numbers import evaluate
from .registry import RULES, Rewriter


def fold(function: Function) -> Function:
    """Evaluate constant operations and apply algebraic identities, in place."""
    while _Folder(function).run():
        pass
    return function


class _Folder(Rewriter):
    """One sweep over a function, front to back; new operations are folded as they appear."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.replaced: dict[Value, Value] = {}
        self.out: list[Op] = []
        self.changed = False
        self.location = None
        self._counts: Counter[Value] | None = None

    def run(self) -> bool:
        self.block(self.function.body)
        return self.changed

    def block(self, block: Block) -> None:
        outer, self.out = self.out, []
        for op in block.ops:
            self.visit(op)
        block.ops, self.out = self.out, outer

    def visit(self, op: Op) -> None:
        """Fold ``op``, which comes next; what it reads may have been replaced."""
        if self.replaced and not self.replaced.keys().isdisjoint(op.operands):
            op.map_operands(self.resolve)
        self.location = op.location
        results = self.simplify(op)
        if results is None:
            for nested in op.blocks:
                self.block(nested)
            self.out.append(op)
        else:
            self.changed = True
            self.replaced.update(zip(op.results, results, strict=True))

    def resolve(self, value: Value) -> Value:
        return self.replaced.get(value, value)

    def simplify(self, op: Op) -> tuple[Value, ...] | None:
        """The values that replace the results of ``op``; None if no rule fires."""
        if op.elementwise and (folded := self.constant(op)) is not None:
            return (folded,)
        for rule in RULES.get(type(op), ()):
            made = rule(op, self)
            if made is not None:
                results = (made,) if isinstance(made, Value) else made
                for old, new in zip(op.results, results, strict=True):
                    new.name = new.name or old.name
                return results
        return None

    def constant(self, op: Op) -> Value | None:
        values = []
        for operand in op.operands:
            source = operand.op
            if not isinstance(source, Constant) or not isinstance(source.type.elem, Scalar):
                return None
            values.append(source.value)
        if not values or not isinstance(op.results[0].type.elem, Scalar):
            return None
        number = evaluate(op, values)
        return None if number is None else self(Constant(number, op.results[0].type))

    def __call__(self, op: Op) -> Value:
        op.location = op.location or self.location
        results = self.simplify(op)
        if results is None:
            self.out.append(op)
            results = op.results
        return results[0]

    def place(self, op: Op) -> None:
        op.location = op.location or self.location
        for nested in op.blocks:
            self.block(nested)
        self.out.append(op)

    def inline(self, block: Block, arguments: tuple[Value, ...]) -> tuple[Value, ...]:
        self.replaced.update(zip(block.args, arguments, strict=True))
        for op in block.ops:
            if isinstance(op, Yield | Condition):
                op.map_operands(self.resolve)
                return op.values
            self.visit(op)
        return ()

    def uses(self, value: Value) -> int:
        if self._counts is None:
            self._counts = Counter(v for op in self.function.walk() for v in op.operands)
        return self._counts[value]


#: The modules whose import fills the table of rules.
RULE_MODULES = (rules, shape_rules, block_rules, control_rules)
