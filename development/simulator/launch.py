"""Launches that follow a recipe, as the runtime's do: descriptors from arguments, grids of persistent programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from deuteron.compiler.launch_recipe import Guard, HostExpression, TensorMap
from deuteron.compiler.targets.nvptx import PtxProgram

from .machine import Argument, simulate
from .schedule import Order
from .tensor_map import SimulatedTensorMap
from .values import LANES, SimulationError

#: Processors of the simulated GPU: fewer than the programs of most grids.
PROCESSORS = 3


def simulate_launch(
    compiled: Callable[[frozenset[Guard]], PtxProgram],
    grid: tuple[int, ...],
    arguments: Sequence[np.ndarray | int | float],
    order: Order = range,
) -> PtxProgram:
    """Run the program that ``compiled`` gives for the guards that ``arguments`` break, as its recipe says.

    Returns the program. Raises SimulationError for whatever :func:`~.machine.simulate` finds.
    """
    denied: frozenset[Guard] = frozenset()
    while True:
        program = compiled(denied)
        known = dict(zip(program.parameters, arguments, strict=True))
        broken = {guard for guard in program.recipe.guards if not guard.holds(int(known[guard.parameter]))}
        if not broken:
            break
        denied |= broken
    recipe = program.recipe
    passed: list[Argument] = [*arguments, *(_tensor_map(made, known) for made in recipe.descriptors)]
    whole = (*grid, 1, 1, 1)[:3]
    launched = whole
    if recipe.persistent:
        launched = (min(int(np.prod(whole)), PROCESSORS * recipe.occupancy), 1, 1)
        passed += list(whole)
    warps = recipe.threads // LANES
    simulate(program.llvm, launched, passed, warps, program.shared_bytes, order, recipe.cluster)
    return program


def _tensor_map(made: TensorMap, known: dict[str, np.ndarray | int | float]) -> SimulatedTensorMap:
    array = known[made.base]
    if not isinstance(array, np.ndarray):
        raise SimulationError(f"{made.base} is not an array")
    sizes, strides = (tuple(_evaluate(e, known) for e in side) for side in (made.sizes, made.strides))
    return SimulatedTensorMap(array, sizes, strides, made.box, made.swizzle, made.padding)


def _evaluate(expression: HostExpression, known: dict[str, np.ndarray | int | float]) -> int:
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return int(known[expression])
    operator, left, right = expression
    x, y = _evaluate(left, known), _evaluate(right, known)
    match operator:
        case "+":
            return x + y
        case "*":
            return x * y
        case "//":
            return int(x / y)
        case "max":
            return max(x, y)
        case _:
            raise SimulationError(f"unknown operator {operator!r}")
