"""Which tile values are kept in scratch memory, decided before any code is emitted.

A tile value is recomputed wherever it is read unless that is expensive. It is expensive when its expression costs at
least :data:`WORTH_KEEPING` and it is read by more than one loop, repeated along a broadcast dimension, or read in
another region (a loop body) than its own. Products, reductions and atomics are always kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.core import Block, Function, Op, Value
from ...tile import elementwise as ops
from ...tile import matmul, memory, movement, shape
from .rule_sets import is_lazy, reads_buffer

WORTH_KEEPING = 4.0

#: Longest chain of lazy operations; emission recurses along it.
DEEPEST = 48

#: Costs in units of one vector addition; index arithmetic is nearly free because it stays scalar.
_COSTS: dict[type[Op], float] = {
    memory.Load: 4,
    ops.Div: 3,
    ops.Reciprocal: 3,
    ops.Sqrt: 3,
    ops.Rsqrt: 5,
    ops.IntDiv: 4,
    ops.Rem: 4,
    ops.MulHigh: 2,
    ops.Exp: 10,
    ops.Exp2: 8,
    ops.Exp10: 12,
    ops.Log: 10,
    ops.Log2: 10,
    ops.Log10: 12,
    ops.Sin: 14,
    ops.Cos: 14,
    ops.Tan: 16,
    ops.Atan: 14,
    ops.Atan2: 18,
    ops.Pow: 40,
    ops.Tanh: 14,
    ops.Erf: 20,
    movement.Gather: 4,
}
_FREE = (
    ops.Constant,
    ops.Hint,
    ops.Bitcast,
    ops.AddPtr,
    shape.Arange,
    shape.Splat,
    shape.ExpandDims,
    shape.Broadcast,
    shape.Permute,
    shape.Reshape,
    shape.Split,
    movement.Butterfly,
)


def dot_source(a: Value) -> Value:
    """The tile behind a transposed left operand: the kernel reads that one with swapped strides."""
    return a.op.x if isinstance(a.op, shape.Permute) else a


def _read_transposed(op: Op, operand: Value) -> bool:
    """Whether a product reads what is behind this transposed operand in its place."""
    return isinstance(op, matmul.Dot) and operand is op.a and dot_source(operand) is not operand


@dataclass(slots=True)
class Plan:
    """The decisions for one function, and what they were made from."""

    #: Tiles that go to scratch at their first read; emission adds those that an operation turned out to need there.
    kept: set[Value] = field(default_factory=set)
    #: Tiles that go to scratch where they are defined.
    at_once: set[Value] = field(default_factory=set)
    #: How often each value is read.
    uses: dict[Value, int] = field(default_factory=dict)
    #: The block that defines each value.
    home: dict[Value, Block] = field(default_factory=dict)
    #: Index vectors that are looked at when they are stored, whether they count up by one.
    checked: set[Value] = field(default_factory=set)


@dataclass(slots=True)
class _Consumers:
    """Who computes a value: operations that are no part of another one's expression.

    ``again``: one of them does so more than once, along a broadcast dimension or in another region, as loops are.
    """

    ops: set[Op] = field(default_factory=set)
    again: bool = False

    @property
    def many(self) -> bool:
        """Whether the value is computed more than once unless it is kept."""
        return self.again or len(self.ops) > 1

    def add(self, other: _Consumers) -> None:
        """Let them compute this value, too."""
        self.ops |= other.ops
        self.again |= other.again


def make_plan(function: Function) -> Plan:
    """Decide for all values of ``function``."""
    plan = Plan()
    ordered: list[tuple[Op, Block]] = []
    _visit(function.body, plan, ordered)
    costs = _costs(ordered)
    consumers: dict[Value, _Consumers] = {}
    for op, block in reversed(ordered):
        mine = _consumers_through(op, plan, costs, consumers)
        for operand in op.operands:
            if operand.type.rank and not _read_transposed(op, operand):
                others = consumers.setdefault(operand, _Consumers())
                others.add(mine)
                others.again |= _repeats(op) or plan.home.get(operand) is not block
        plan.kept.update(v for v in reads_buffer(op) if v.type.rank)
    plan.at_once = _ends_of_long_chains(ordered)
    plan.checked = {v for v in plan.kept if _wraps_around(v)}
    return plan


def _consumers_through(op: Op, plan: Plan, costs: dict[Value, float], consumers: dict[Value, _Consumers]) -> _Consumers:
    """Who computes the operands of ``op``, whose readers have been seen: itself or, where it is a part of their
    expressions, who computes its results. Keeps these if that is worth it."""
    if not is_lazy(op):
        return _Consumers({op})
    made = _Consumers()
    for result in op.results:
        known = consumers.get(result, _Consumers())
        made.add(known)
        if known.many and costs[result] >= WORTH_KEEPING:
            plan.kept.add(result)
    return _Consumers({op}) if any(result in plan.kept for result in op.results) else made


def _ends_of_long_chains(ordered: list[tuple[Op, Block]]) -> set[Value]:
    depths: dict[Value, int] = {}
    found: set[Value] = set()
    for op, _ in ordered:
        if not is_lazy(op):
            continue
        depth = 1 + max((depths.get(v, 0) for v in op.operands), default=0)
        if depth > DEEPEST:
            depth = 0
            found.update(op.results)
        depths.update(dict.fromkeys(op.results, depth))
    return found


def _wraps_around(value: Value) -> bool:
    """Whether these are indices along one dimension, taken modulo something: contiguous but for a jump."""
    if not value.type.is_integer or sum(n > 1 for n in value.type.shape) != 1:
        return False
    while isinstance(value.op, shape.ExpandDims | shape.Reshape | ops.Hint | ops.Cast):
        value = value.op.x
    return isinstance(value.op, ops.Rem)


def _visit(block: Block, plan: Plan, ordered: list[tuple[Op, Block]]) -> None:
    for arg in block.args:
        plan.home[arg] = block
    for op in block.ops:
        for operand in op.operands:
            plan.uses[operand] = plan.uses.get(operand, 0) + 1
        for result in op.results:
            plan.home[result] = block
        ordered.append((op, block))
        for nested in op.blocks:
            _visit(nested, plan, ordered)


def _repeats(op: Op) -> bool:
    return isinstance(op, shape.Broadcast) and op.x.type.size < op.results[0].type.size


def _costs(ordered: list[tuple[Op, Block]]) -> dict[Value, float]:
    costs: dict[Value, float] = {}
    for op, _ in ordered:
        if isinstance(op, _FREE):
            own = 0.0
        else:
            floating = bool(op.results) and op.results[0].type.is_float
            own = _COSTS.get(type(op), 1.0 if floating else 0.25)
        behind = sum(costs.get(v, 0.0) for v in set(op.operands)) if is_lazy(op) else 0.0
        if _repeats(op) and behind >= WORTH_KEEPING:
            behind = 0.0  # its operand will be kept
        for result in op.results:
            costs[result] = own + behind if is_lazy(op) and result.type.rank else 0.0
    return costs
