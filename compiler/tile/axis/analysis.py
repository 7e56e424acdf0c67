"""Dataflow analysis, forward: every operation once, loops until their carried values are stable."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...ir.core import Block, Effect, Function, Value
from ..control import For, If, While, handed_on
from ..debug import Assume
from ..elementwise import Compare, Constant
from .info import AxisInfo, power_of_two_in, unknown
from .rules import RULES
from .steps import TypicalSteps


class AxisFacts:
    """The facts of a function by value; values that were not analysed know nothing. ``begins``: what the carried values
    of loops are first; ``steps``: how far apart neighbours mostly are."""

    def __init__(self, nonnegative: Collection[Value] = ()) -> None:
        self.known: dict[Value, AxisInfo] = {}
        self.begins: dict[Value, Value] = {}
        self.steps = TypicalSteps(self.begins, self.known)
        self.nonnegative = nonnegative

    def __getitem__(self, value: Value) -> AxisInfo:
        info = self.known.get(value)
        info = unknown(value.type) if info is None else info
        return info._replace(nonnegative=True) if value in self.nonnegative else info


def analyze(function: Function, nonnegative: Collection[Value] = ()) -> AxisFacts:
    """The axis facts of every value of ``function``, at the tile or the GPU stage; ``nonnegative``: scalars that the
    caller takes for not below zero: parameters, results of operations."""
    facts = AxisFacts(nonnegative)
    for parameter in function.parameters:
        info = unknown(parameter.value.type)
        promised = power_of_two_in(parameter.divisibility)
        facts.known[parameter.value] = info._replace(divisibility=(promised,))
    _block(function.body, facts)
    return facts


def _block(block: Block, facts: AxisFacts) -> None:
    for op in block.ops:
        if (rule := RULES.get(type(op))) is not None:
            infos = rule(op, *map(facts.__getitem__, op.operands))
            facts.known.update(zip(op.results, infos, strict=False))
            continue
        match op:
            case For():
                _for(op, facts)
            case While():
                _while(op, facts)
            case If():
                _if(op, facts)
            case Assume():
                _assume(op, block, facts)
            case _ if op.effect is Effect.CONTROL:
                for nested in op.blocks:
                    _block(nested, facts)


def _assume(op: Assume, block: Block, facts: AxisFacts) -> None:
    """``tl.assume(x >= 0)``, of an ``x`` of the same block: of another it may be computed and this not be reached."""
    if not isinstance(said := op.condition.op, Compare) or said.predicate not in ("ge", "gt"):
        return
    least = said.rhs.op
    if isinstance(least, Constant) and least.value >= 0 and any(said.lhs in other.results for other in block.ops):
        facts.known[said.lhs] = facts[said.lhs]._replace(nonnegative=True)


def _for(op: For, facts: AxisFacts) -> None:
    lower, step = facts[op.lower], facts[op.step]
    facts.known[op.body.args[0]] = unknown(op.lower.type)._replace(
        divisibility=(min(lower.divisibility[0], step.divisibility[0]),),
        nonnegative=lower.nonnegative and step.nonnegative,
    )

    facts.begins.update(zip(op.carried, op.inits, strict=True))

    def once(carried: Sequence[AxisInfo]) -> list[AxisInfo]:
        facts.known.update(zip(op.carried, carried, strict=True))
        _block(op.body, facts)
        return _yielded(op.body, facts)

    facts.known.update(zip(op.results, _fixpoint(op.inits, once, facts), strict=True))


def _while(op: While, facts: AxisFacts) -> None:
    facts.begins.update(zip(op.carried, op.inits, strict=True))

    def once(carried: Sequence[AxisInfo]) -> list[AxisInfo]:
        facts.known.update(zip(op.carried, carried, strict=True))
        _block(op.before, facts)
        facts.known.update(zip(op.body.args, _yielded(op.before, facts), strict=True))
        _block(op.body, facts)
        return _yielded(op.body, facts)

    _fixpoint(op.inits, once, facts)
    facts.known.update(zip(op.results, _yielded(op.before, facts), strict=True))


def _if(op: If, facts: AxisFacts) -> None:
    _block(op.then, facts)
    _block(op.otherwise, facts)
    then, otherwise = _yielded(op.then, facts), _yielded(op.otherwise, facts)
    for result, a, b in zip(op.results, then, otherwise, strict=True):
        facts.known[result] = a.join(b)


def _fixpoint(
    inits: tuple[Value, ...],
    once: Callable[[Sequence[AxisInfo]], list[AxisInfo]],
    facts: AxisFacts,
) -> list[AxisInfo]:
    """Facts of loop-carried values: those of ``inits``, weakened until one more round keeps them.

    The last round ran with exactly the facts that are returned, so what it left about the body is right.
    """
    held = [facts[v] for v in inits]
    rounds = 0
    while True:
        merged = [a.join(b) for a, b in zip(held, once(held), strict=True)]
        if merged == held:
            return held
        rounds += 1
        # A value that loses one factor of two a round (x // 2) would take thirty.
        held = [
            new if new == old or rounds < 4 else unknown(v.type)
            for new, old, v in zip(merged, held, inits, strict=True)
        ]


def _yielded(block: Block, facts: AxisFacts) -> list[AxisInfo]:
    return [facts[v] for v in handed_on(block)]
