"""Launches: grids of programs, programs of warps, warps from barrier to barrier."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .memory import GlobalMemory, SimulatedMemory
from .parse import Kernel, parse_kernel
from .values import LANES, Array, Held, SimulationError, split_type

Argument = np.ndarray | int | float


class Warp:
    """The state of one warp of one program."""

    def __init__(self, number: int, program: tuple[int, ...], grid: tuple[int, ...]) -> None:
        self.number = number
        self.program = program
        self.grid = grid
        self.env: dict[str, Held] = {}
        self.threads = np.arange(LANES, dtype=np.int32) + number * LANES
        self.shared: SimulatedMemory
        self.memory: GlobalMemory
        self.waiting = False


def simulate(
    llvm: str,
    grid: tuple[int, ...],
    arguments: Sequence[Argument],
    num_warps: int,
    shared_bytes: int = 0,
    order: Callable[[int], Sequence[int]] = range,
) -> None:
    """Run the kernel in ``llvm`` for every program of ``grid``; arrays among ``arguments`` are changed in place.

    ``order(num_warps)``: in which order warps run between two barriers.

    Raises:
        SimulationError: an access outside the arrays, not aligned, or to shared memory that was never written; two
            threads that touch the same byte with no barrier between; warps that do not meet at a barrier; branches
            that diverge inside a warp.
    """
    kernel = parse_kernel(llvm)
    whole = (*grid, 1, 1, 1)[:3]
    memory = GlobalMemory([a for a in arguments if isinstance(a, np.ndarray)])
    values = _argument_values(kernel, arguments, memory)
    with np.errstate(all="ignore"):
        for program in itertools.product(*(range(n) for n in whole)):
            shared = SimulatedMemory("shared memory", shared_bytes, initialised=False)
            shared.valid[:] = True
            warps = []
            for number in range(num_warps):
                warp = Warp(number, program, whole)
                warp.shared, warp.memory = shared, memory
                warp.env.update(values)
                warps.append(warp)
            _run_program(kernel, warps, list(order(num_warps)))
    memory.read_back()


def _argument_values(kernel: Kernel, arguments: Sequence[Argument], memory: GlobalMemory) -> dict[str, Array]:
    starts = iter(memory.starts)
    values: dict[str, Array] = {}
    for (name, type), argument in zip(kernel.parameters, arguments, strict=True):
        number = next(starts) if isinstance(argument, np.ndarray) else argument
        values[name] = np.full(LANES, number, split_type(type)[1])
    return values


def _run_program(kernel: Kernel, warps: list[Warp], order: list[int]) -> None:
    runs = [_run_warp(kernel, warp) for warp in warps]
    alive = set(order)
    while alive:
        ended = {number for number in order if number in alive and next(runs[number], None) is None}
        if ended and ended != alive:
            raise SimulationError("some warps wait at a barrier that others never reach")
        alive -= ended
        for memory in (warps[0].shared, warps[0].memory):
            memory.log.barrier()


def _run_warp(kernel: Kernel, warp: Warp) -> Iterator[bool]:
    """Run to the end, yielding at each barrier."""
    label, before = "entry", ""
    while label:
        block = kernel.blocks[label]
        chosen = [phi(warp, before) for phi in block.phis]
        for (name, _), value in zip(block.phi_names, chosen, strict=True):
            warp.env[name] = value
        for step in block.steps:
            if step is None:
                yield True
            else:
                step(warp)
        before, label = label, block.next(warp)
