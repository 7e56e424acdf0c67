"""Labels: which elements of which values nobody may rely on, followed from operation to operation.

A label is the number of a reason, 0 for elements that are fine; where an operation combines elements, the largest label
wins. Elements that cannot change a result pass none on: the side that a select leaves out, and the other operand of
``and`` with false, ``or`` with true and an integer product with zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..ir.core import Op, Value
from ..targets.interpreter.numbers import Array
from ..targets.interpreter.program import Program, evaluates
from ..tile import elementwise as e
from ..tile import movement, reduction, shape
from ..tile.map import MapElementwise
from ..tile.matmul import Dot

Labels = Array | None

#: Operations that move elements without looking at them: their rules move labels as well.
MOVES = (
    shape.Splat,
    shape.ExpandDims,
    shape.Broadcast,
    shape.Reshape,
    shape.Permute,
    shape.Join,
    shape.Split,
    movement.Butterfly,
)


def labels_of(program: Program, value: Value) -> Array:
    """The labels of a value, zeros for one without."""
    held = program.held[value]
    return np.zeros(held.array.shape, np.int32) if held.labels is None else held.labels


class _LabelsOf:
    """A program whose values are their own labels, for rules that only move elements."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def get(self, value: Value) -> Array:
        return labels_of(self._program, value)


def propagate(op: Op, program: Program) -> Sequence[Labels]:
    """The labels of the results of an operation that touches no memory, one entry a result."""
    if all(program.held[v].labels is None for v in op.operands):
        return [None] * len(op.results)
    if isinstance(op, MOVES):
        return [np.asarray(made, np.int32) for made in evaluates.find(op)(op, _LabelsOf(program))]
    rule = _RULES.get(type(op), _together)
    return rule(op, program)


def _together(op: Op, program: Program) -> Sequence[Labels]:
    """Element by element the largest label of all operands."""
    largest = np.zeros((), np.int32)
    for value in op.operands:
        largest = np.maximum(largest, labels_of(program, value))
    return [np.broadcast_to(largest, r.type.shape) for r in op.results]


def _select(op: e.Select, program: Program) -> Sequence[Labels]:
    chosen = np.where(program.get(op.condition), labels_of(program, op.on_true), labels_of(program, op.on_false))
    return [np.maximum(labels_of(program, op.condition), chosen)]


def _absorbing(op: e.And | e.Or | e.Mul, program: Program) -> Sequence[Labels]:
    (together,) = _together(op, program)
    if together is None or (isinstance(op, e.Mul) and op.lhs.type.is_float):
        return [together]
    full = np.invert(np.zeros((), program.get(op.lhs).dtype))
    decides = full if isinstance(op, e.Or) else np.zeros_like(full)
    settled = np.zeros(op.result.type.shape, np.bool_)
    for value in (op.lhs, op.rhs):
        settled |= (program.get(value) == decides) & (labels_of(program, value) == 0)
    return [np.where(settled, np.int32(0), together)]


def _dot(op: Dot, program: Program) -> Sequence[Labels]:
    a, b = labels_of(program, op.a), labels_of(program, op.b)
    rows, columns = a.max(axis=-1)[..., :, None], b.max(axis=-2)[..., None, :]
    return [np.maximum(np.maximum(rows, columns), labels_of(program, op.acc))]


def _gather(op: movement.Gather, program: Program) -> Sequence[Labels]:
    index = program.get(op.index) & (op.src.type.shape[op.axis] - 1)
    taken = np.take_along_axis(labels_of(program, op.src), index, op.axis)
    return [np.maximum(taken, labels_of(program, op.index))]


def _inputs(op: reduction.Reduce | reduction.Scan, program: Program) -> Array:
    return np.asarray(np.maximum.reduce([labels_of(program, v) for v in op.inputs]))


def _reduce(op: reduction.Reduce, program: Program) -> Sequence[Labels]:
    return [_inputs(op, program).max(axis=op.axis)] * len(op.results)


def _scan(op: reduction.Scan, program: Program) -> Sequence[Labels]:
    parts = np.moveaxis(_inputs(op, program), op.axis, 0)
    if op.reverse:
        made = np.maximum.accumulate(parts[::-1], axis=0)[::-1]
    else:
        made = np.maximum.accumulate(parts, axis=0)
    return [np.moveaxis(made, 0, op.axis)] * len(op.results)


def _histogram(op: reduction.Histogram, program: Program) -> Sequence[Labels]:
    counted = labels_of(program, op.x)
    if op.mask is not None:
        counted = np.where(program.get(op.mask), counted, 0)
        counted = np.maximum(counted, labels_of(program, op.mask))
    return [np.full((op.bins,), counted.max(initial=0), np.int32)]


_RULES: dict[type[Op], Callable[..., Sequence[Labels]]] = {
    e.Select: _select,
    e.And: _absorbing,
    e.Or: _absorbing,
    e.Mul: _absorbing,
    Dot: _dot,
    movement.Gather: _gather,
    reduction.Reduce: _reduce,
    reduction.Scan: _scan,
    reduction.Histogram: _histogram,
    MapElementwise: _together,
}
