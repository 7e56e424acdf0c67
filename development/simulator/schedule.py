"""Who runs when: warps take turns and run from wait to wait, and so do asynchronous operations, which end late.

Where the lanes of a warp branch apart, those of one side run until both sides meet again, at the block that every path
from there must pass (its immediate post-dominator); then those of the other side do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import numpy as np

from .barriers import Wait
from .parse import Kernel, SimulatedBlock, Split
from .synchronisation import check_register_budgets
from .values import Held, SimulationError
from .warp import Cluster, Lanes, LaneValues, Warp, choose_lanes
from .wgmma import check_products

Order = Callable[[int], Sequence[int]]
#: Which block lanes came from: one for all, or one each for some of them.
Origin = str | list[tuple[Lanes, str]]


def shuffled(seed: int) -> Order:
    """Another random order of turns every time; the same ones for the same seed."""
    random = np.random.default_rng(seed)
    return lambda count: [int(number) for number in random.permutation(count)]


def run_cluster(kernel: Kernel, cluster: Cluster, order: Order) -> None:
    """Run the programs of a cluster to their ends.

    Raises:
        SimulationError: nobody can go on, or a program ended before what it started.
    """
    warps = cluster.warps
    runs = [_run(kernel, warp, "entry", "", "") for warp in warps]
    waits: list[Wait | None] = [None] * len(warps)
    while not all(warp.ended for warp in warps):
        moved = False
        # Asynchronous operations have a turn as the warps do, in which one of them ends.
        for turn in order(len(warps) + bool(cluster.in_flight)):
            if turn == len(warps):
                if cluster.in_flight:
                    cluster.in_flight.pop(order(len(cluster.in_flight))[0])()
                    moved = True
            elif not warps[turn].ended:
                moved |= _take_turn(warps[turn], runs[turn], waits, turn)
        if not moved and not cluster.in_flight:
            raise SimulationError(_deadlock(warps, waits))
    for end in cluster.in_flight:
        end()
    for program in cluster.programs:
        check_register_budgets(program.warps)
        check_products(program)
        program.check_visitors()
    cluster.clocks.check_finished()


def _take_turn(warp: Warp, run: Generator[Wait, None, Origin], waits: list[Wait | None], turn: int) -> bool:
    wait = waits[turn]
    if wait is not None and not wait.ready():
        return False
    waits[turn] = next(run, None)
    if waits[turn] is None:
        warp.ended = True
        warp.program.barriers.warp_ended()
        warp.program.cluster.barrier.check()
    return True


def _deadlock(warps: Sequence[Warp], waits: Sequence[Wait | None]) -> str:
    lines = [f"{warp} waits at {wait.describe()}" for warp, wait in zip(warps, waits, strict=True) if wait is not None]
    ended = [str(warp) for warp in warps if warp.ended]
    return "\n".join(["no warp can go on:", *lines, *([f"{', '.join(ended)} ended"] if ended else [])])


def _run(kernel: Kernel, warp: Warp, label: str, stop: str, before: Origin) -> Generator[Wait, None, Origin]:
    """Run the active lanes from block ``label`` until they are about to enter block ``stop``; from where they do."""
    while label and label != stop:
        block = kernel.blocks[label]
        if block.phis:
            _take_phis(warp, block, before)
        for step in block.steps:
            warp.steps += 1
            wait = step(warp)
            if wait is not None:
                yield wait
                wait.finish()
        target = block.next(warp)
        if isinstance(target, Split):
            join = kernel.meeting_point(label)
            before = yield from _run_apart(kernel, warp, label, target, join)
            label = join
        else:
            before, label = label, target
    return before


def _run_apart(
    kernel: Kernel, warp: Warp, label: str, split: Split, join: str
) -> Generator[Wait, None, list[tuple[Lanes, str]]]:
    """Both sides of a branch that not all lanes take, one after the other, until they meet."""
    whole, env = warp.active, warp.env
    nested = isinstance(env, LaneValues)
    warp.env = values = env if isinstance(env, LaneValues) else LaneValues(env)
    arrivals: list[tuple[Lanes, str]] = []
    for lanes, side in ((split.taken & whole, split.yes), (~split.taken & whole, split.no)):
        warp.active = values.active = lanes
        came = yield from _run(kernel, warp, side, join, label)
        arrivals += [(lanes, came)] if isinstance(came, str) else came
    warp.active = values.active = whole
    if not nested:
        warp.env = dict(values)
    return arrivals


def _take_phis(warp: Warp, block: SimulatedBlock, before: Origin) -> None:
    chosen: list[Held]
    if isinstance(before, str):
        chosen = [phi(warp, before) for phi in block.phis]
    else:
        chosen = [phi(warp, before[0][1]) for phi in block.phis]
        for lanes, label in before[1:]:
            chosen = [choose_lanes(lanes, phi(warp, label), v) for phi, v in zip(block.phis, chosen, strict=True)]
    for (name, _), value in zip(block.phi_names, chosen, strict=True):
        warp.env[name] = value
