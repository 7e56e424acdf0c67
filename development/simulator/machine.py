"""Launches: grids of clusters, clusters of programs, programs of warps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from .clocks import Clocks
from .memory import GlobalMemory
from .parse import Kernel, parse_kernel
from .schedule import Order, run_cluster
from .tensor_map import SimulatedTensorMap
from .values import LANES, Array, SimulationError, split_type
from .warp import Cluster, Program

Argument = np.ndarray | int | float | SimulatedTensorMap


def simulate(
    llvm: str,
    grid: tuple[int, ...],
    arguments: Sequence[Argument],
    num_warps: int,
    shared_bytes: int = 0,
    order: Order = range,
    cluster: int = 1,
    programs: Sequence[tuple[int, int, int]] | None = None,
) -> None:
    """Run the kernel in ``llvm`` for every program of ``grid``; arrays among ``arguments`` are changed in place.

    ``arguments``: arrays for pointers (one that is given twice is one), tensor maps for descriptors, and numbers.
    ``order(n)``: in which order n warps run, asked for every round of turns (and which of n asynchronous operations
    ends first). ``cluster``: programs that run together, along the first axis of the grid; other programs run one
    after the other. ``programs``: those of the grid that run, in this order; None for all. Of a cluster the first one
    stands for all.

    Raises:
        SimulationError: an access outside the arrays, not aligned, or to shared memory that was never written; two
            accesses to the same byte with nothing to order them; warps that wait for each other; barriers and
            asynchronous operations that are not used as PTX demands.
        KernelAssertionError: an assertion of the kernel failed.
    """
    kernel = parse_kernel(llvm)
    whole = (*grid, 1, 1, 1)[:3]
    if whole[0] % cluster:
        raise SimulationError(f"{whole[0]} programs cannot be split into clusters of {cluster}")
    clocks = Clocks(num_warps * LANES * cluster)
    memory = GlobalMemory([array for a in arguments for array in _arrays(a)], clocks)
    values = _argument_values(kernel, arguments, memory)
    with np.errstate(all="ignore"):
        every = itertools.product(range(0, whole[0], cluster), *(range(n) for n in whole[1:]))
        for first in every if programs is None else programs:
            clocks.begin(num_warps * LANES * cluster)
            together = Cluster(memory, clocks)
            for rank in range(cluster):
                ids = (first[0] + rank, *first[1:])
                together.programs.append(Program(together, rank, ids, whole, num_warps, shared_bytes))
            for program in together.programs:
                for warp in program.warps:
                    warp.env.update(values)
            run_cluster(kernel, together, order)
    memory.read_back()


def _arrays(argument: Argument) -> list[np.ndarray]:
    if isinstance(argument, SimulatedTensorMap):
        return [argument.array]
    return [argument] if isinstance(argument, np.ndarray) else []


def _argument_values(kernel: Kernel, arguments: Sequence[Argument], memory: GlobalMemory) -> dict[str, Array]:
    values: dict[str, Array] = {}
    for (name, type), argument in zip(kernel.parameters, arguments, strict=True):
        if isinstance(argument, SimulatedTensorMap):
            number: int | float = memory.add_tensor_map(argument)
        else:
            number = memory.start(argument) if isinstance(argument, np.ndarray) else argument
        values[name] = np.full(LANES, _in_range(number, dtype := split_type(type)[1]), dtype)
    return values


def _in_range(number: int | float, dtype: np.dtype[np.generic]) -> int | float:
    """The number whose bits an integer register holds: LLVM's have no sign, NumPy's do."""
    if dtype.kind != "i":
        return number
    half = 1 << 8 * dtype.itemsize - 1
    return (int(number) + half) % (2 * half) - half
