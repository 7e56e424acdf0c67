"""Launches that follow a recipe, as the runtime's do: descriptors from arguments, grids of persistent programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from deuteron.compiler.launch_recipe import Guard, HostExpression, LaunchRecipe, TensorMap
from deuteron.compiler.record_buffer import RecordForm
from deuteron.compiler.runtime.launch.records import LaunchRecords, RecordSettings, head_of, read_buffer, words_of
from deuteron.compiler.targets.nvptx import PtxProgram
from deuteron.compiler.tile.records import RECORDS

from .machine import Argument, simulate
from .schedule import Order
from .tensor_map import SimulatedTensorMap
from .values import LANES, SMS, SimulationError


def simulate_launch(
    compiled: Callable[[frozenset[Guard]], PtxProgram],
    grid: tuple[int, ...],
    arguments: Sequence[np.ndarray | int | float],
    order: Order = range,
    programs: Sequence[tuple[int, int, int]] | None = None,
) -> PtxProgram:
    """Run the program that ``compiled`` gives for the guards that ``arguments`` break, as its recipe says: of the grid
    only ``programs``, unless that is None.

    Returns the program. Raises SimulationError for whatever :func:`~.machine.simulate` finds, and where only some
    programs of a persistent kernel, of which each does the work of many, are to run.
    """
    program = _fitting(compiled, arguments)
    if programs is not None and program.recipe.persistent:
        raise SimulationError("a program of a persistent kernel cannot run without the others")
    _run(program, grid, arguments, [], order, programs)
    return program


def simulate_recorded(
    compiled: Callable[[frozenset[Guard]], PtxProgram],
    instrumented: LaunchRecipe,
    grid: tuple[int, ...],
    arguments: Sequence[np.ndarray | int | float],
    settings: RecordSettings | None = None,
    order: Order = range,
) -> LaunchRecords:
    """As :func:`simulate_launch`, for a program that records; returns what it recorded. ``instrumented`` has its scopes
    and the form of its records. One step of a warp is a cycle, and a nanosecond."""
    program = _fitting(compiled, arguments)
    programs, warps = int(np.prod(_launched(program.recipe, grid))), program.recipe.threads // LANES
    words = empty_buffer(settings or RecordSettings(), instrumented.records, programs, warps)
    _run(program, grid, arguments, [words], order)
    return read_buffer(words, instrumented, warps)


def empty_buffer(settings: RecordSettings, form: RecordForm, programs: int, warps: int) -> np.ndarray:
    """The buffer of records as a kernel finds it."""
    ring = settings.ring(programs, warps, form)
    return np.resize(head_of(settings, ring), words_of(programs * warps, ring, form))


def _fitting(
    compiled: Callable[[frozenset[Guard]], PtxProgram], arguments: Sequence[np.ndarray | int | float]
) -> PtxProgram:
    """The program without the guards that ``arguments`` break. A grid breaks none: the code is right on any."""
    denied: frozenset[Guard] = frozenset()
    while True:
        program = compiled(denied)
        known = _named(program, arguments)
        broken = {guard for guard in program.recipe.argument_guards if not guard.holds(int(known[guard.parameter]))}
        if not broken:
            return program
        denied |= broken


def _named(program: PtxProgram, arguments: Sequence[np.ndarray | int | float]) -> dict[str, np.ndarray | int | float]:
    names = [name for name in program.parameters if name != RECORDS]
    return dict(zip(names, arguments, strict=True))


def _launched(recipe: LaunchRecipe, grid: tuple[int, ...]) -> tuple[int, int, int]:
    if recipe.persistent:
        return min(int(np.prod(grid)), SMS * recipe.occupancy), 1, 1
    x, y, z, *_ = (*grid, 1, 1, 1)
    return x, y, z


def _run(
    program: PtxProgram,
    grid: tuple[int, ...],
    arguments: Sequence[np.ndarray | int | float],
    records: list[np.ndarray],
    order: Order,
    programs: Sequence[tuple[int, int, int]] | None = None,
) -> None:
    recipe, known = program.recipe, _named(program, arguments)
    passed: list[Argument] = [*arguments, *records, *(_tensor_map(made, known) for made in recipe.descriptors)]
    if recipe.persistent:
        passed += list((*grid, 1, 1, 1)[:3])
    launched, warps = _launched(recipe, grid), recipe.threads // LANES
    simulate(program.llvm, launched, passed, warps, program.shared_bytes, order, recipe.cluster, programs)


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
