"""Shape operations: with fitting layouts they only rename registers."""

from __future__ import annotations

from ...ir.core import Op
from ...tile.program import NumPrograms, ProgramId
from ...tile.shape import Arange, Broadcast, ExpandDims, Join, Permute, Reshape, Splat, Split
from .lowering import RULES, Lowering, reach_of, rule


@rule(ProgramId)
def _program_id(state: Lowering, op: ProgramId) -> None:
    state.define(op.result, [state.machine.program_id(state, op.axis)])


@rule(NumPrograms)
def _num_programs(state: Lowering, op: NumPrograms) -> None:
    state.define(op.result, [state.machine.num_programs(state, op.axis)])


@rule(Arange)
def _arange(state: Lowering, op: Arange) -> None:
    layout = op.result.type.layout
    if layout is None:
        return state.define(op.result, [str(op.start)])
    thread = state.coordinate(layout, 0)
    reach = reach_of([*layout.flat_lane, *layout.flat_warp])
    offsets = layout.register_offsets()

    def element(i: int) -> str:
        index = state.add_bits(thread, reach, offsets[i])
        if not op.start:
            return index
        if not index.startswith("%"):
            return str(int(index) + op.start)
        return state.text.op(f"add nsw i32 {index}, {op.start}")

    return state.define_lazily(op.result, [], element)


@rule(Splat)
def _splat(state: Lowering, op: Splat) -> None:
    scalar = state.values[op.x]
    state.define_lazily(op.result, [scalar], lambda _: scalar[0])


def _renamed(state: Lowering, op: Op) -> None:
    """Registers stay in place; where the operand is a scalar all registers are that one."""
    source = state.values[op.operands[0]]
    last = len(source) - 1
    state.define_lazily(op.results[0], [source], lambda i: source[min(i, last)])


for _kind in (ExpandDims, Broadcast, Permute, Reshape):
    RULES(_kind)(_renamed)


@rule(Join)
def _join(state: Lowering, op: Join) -> None:
    sides = [state.values[op.lhs], state.values[op.rhs]]
    state.define_lazily(op.result, sides, lambda i: sides[i & 1][i >> 1])


@rule(Split)
def _split(state: Lowering, op: Split) -> None:
    source = state.values[op.x]
    first, second = op.results
    state.define_lazily(first, [source], lambda i: source[2 * i])
    state.define_lazily(second, [source], lambda i: source[2 * i + 1])
