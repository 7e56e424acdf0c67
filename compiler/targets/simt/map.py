"""Functions of scalars mapped over tiles: each thread runs them for one element after the other."""

from __future__ import annotations

from ...tile.map import MapElementwise
from .lowering import Lowering, rule


@rule(MapElementwise)
def _map(state: Lowering, op: MapElementwise) -> None:
    """The body once for each register. Threads may take different ways through it: nothing in it waits for others."""
    inputs = [state.values[v] for v in op.inputs]
    end = op.body.terminator
    made: list[list[str | None]] = [[None] * len(inputs[0]) for _ in op.results]
    for register in inputs[0].unique():
        for argument, source in zip(op.body.args, inputs, strict=True):
            state.define(argument, [source[register]])
        state.lower_block(op.body)
        for names, value in zip(made, end.operands if end is not None else (), strict=True):
            names[register] = state.scalar(value)
    for result, names in zip(op.results, made, strict=True):
        state.define(result, names)
