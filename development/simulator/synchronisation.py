"""Statements that order: mbarriers, barriers of threads and clusters, fences; and small ones of blocks of assembly."""

from __future__ import annotations

import numpy as np

from . import mbarrier
from .barriers import Wait
from .intrinsics import elect, synchronise_warp
from .statements import Assembly, Maker, Run, Statement, require_all, uniform
from .values import SimulationError
from .warp import CLUSTER_SHIFT, WARPS_OF_A_GROUP, Lanes, Warp

# mbarriers ---------------------------------------------------------------------------------------------------


def _init(statement: Statement, assembly: Assembly) -> Run:
    address, count = assembly.place(statement.operands[0]), assembly.read(statement.operands[1])

    def run(warp: Warp, lanes: Lanes) -> None:
        for lane in np.flatnonzero(lanes):
            mbarrier.make(warp, int(lane), int(address(warp)[lane]), int(count(warp)[lane]))

    return run


def _destroy(statement: Statement, assembly: Assembly) -> Run:
    address = assembly.place(statement.operands[0])

    def run(warp: Warp, lanes: Lanes) -> None:
        for lane in np.flatnonzero(lanes):
            mbarrier.destroy(warp, int(address(warp)[lane]), warp.agents[lane : lane + 1])

    return run


def _arrive(statement: Statement, assembly: Assembly) -> Run:
    """mbarrier.arrive, with expected bytes or with a count where it has a third operand; every lane arrives."""
    if statement.operands[0] != "_" or statement.has("relaxed"):
        raise SimulationError(f"the simulator does not know {statement.opcode} with a state, nor a relaxed one")
    address = assembly.place(statement.operands[1])
    number = assembly.read(statement.operands[2]) if len(statement.operands) > 2 else None
    expects = statement.has("expect_tx")
    if expects and number is None:
        raise SimulationError(f"{statement.opcode} without a number of bytes")

    def run(warp: Warp, lanes: Lanes) -> None:
        for where in np.unique(address(warp)[lanes]):
            here = lanes & (address(warp) == where)
            threads = warp.agents[here]
            barrier = mbarrier.find(warp, int(where), threads)
            arrivals = len(threads)
            if expects and number is not None:
                barrier.expect(int(number(warp)[here].sum()))
            elif number is not None:
                arrivals = int(number(warp)[here].sum())
            barrier.arrive(arrivals, warp.clocks.release(threads))

    return run


def _expect(statement: Statement, assembly: Assembly) -> Run:
    address, size = assembly.place(statement.operands[0]), assembly.read(statement.operands[1])

    def run(warp: Warp, lanes: Lanes) -> None:
        for lane in np.flatnonzero(lanes):
            barrier = mbarrier.find(warp, int(address(warp)[lane]), warp.agents[lane : lane + 1])
            barrier.expect(int(size(warp)[lane]))

    return run


def _wait(statement: Statement, assembly: Assembly) -> Run:
    """The loop around mbarrier.try_wait.parity: what follows runs when the phase is complete."""
    address, parity = assembly.place(statement.operands[1]), assembly.read(statement.operands[2])

    def run(warp: Warp, lanes: Lanes) -> Wait | None:
        if not lanes.any():
            return None
        where = uniform(address(warp), lanes, "the address of an mbarrier to wait for")
        threads = warp.agents[lanes]
        if where >> CLUSTER_SHIFT:
            raise SimulationError(f"{warp} waits for an mbarrier of another program")
        wanted = uniform(parity(warp), lanes, "the parity to wait for")
        if wanted not in (0, 1):
            raise SimulationError(f"{warp} waits for parity {wanted}")
        return mbarrier.find(warp, where, threads).wait(threads, wanted)

    return run


def _map_address(statement: Statement, assembly: Assembly) -> Run:
    """mapa: the address of another program's shared memory."""
    to, address, rank = statement.operands[0], *(assembly.read(o) for o in statement.operands[1:])

    def run(warp: Warp, lanes: Lanes) -> None:
        ranks = rank(warp).astype(np.int64)
        if ((ranks[lanes] < 0) | (ranks[lanes] >= len(warp.program.cluster.programs))).any():
            raise SimulationError(
                f"{warp} asks for program {int(ranks[lanes].max())} of its cluster, which there is not"
            )
        warp.registers[to] = (ranks + 1 << CLUSTER_SHIFT) | address(warp)

    return run


# Barriers and fences -----------------------------------------------------------------------------------------


def _barrier(statement: Statement, assembly: Assembly) -> Run:
    number = assembly.read(statement.operands[0])
    count = assembly.read(statement.operands[1]) if len(statement.operands) > 1 else None
    waits = statement.has("sync")
    if not waits and not statement.has("arrive"):
        raise SimulationError(f"the simulator does not know {statement.opcode}")

    def run(warp: Warp, lanes: Lanes) -> Wait | None:
        require_all(warp, lanes, statement)
        threads = None if count is None else uniform(count(warp), lanes, "the number of threads of a barrier")
        which = uniform(number(warp), lanes, "the number of a barrier")
        return warp.program.barriers.arrive(warp, which, threads, waits=waits)

    return run


def _warp_barrier(statement: Statement, assembly: Assembly) -> Run:
    def run(warp: Warp, lanes: Lanes) -> None:
        synchronise_warp(warp)

    return run


def _cluster_arrive(statement: Statement, assembly: Assembly) -> Run:
    def run(warp: Warp, lanes: Lanes) -> None:
        require_all(warp, lanes, statement)
        warp.program.cluster.barrier.arrive(warp)

    return run


def _cluster_wait(statement: Statement, assembly: Assembly) -> Run:
    return lambda warp, lanes: warp.program.cluster.barrier.wait(warp)


def _fence_made(statement: Statement, assembly: Assembly) -> Run:
    return lambda warp, lanes: mbarrier.fence_made(warp, warp.agents[lanes])


def _trap(statement: Statement, assembly: Assembly) -> Run:
    """A kernel that finds something wrong with itself."""

    def run(warp: Warp, lanes: Lanes) -> None:
        raise SimulationError(f"warp {warp.number} stops at a trap")

    return run


def _fence_proxy(statement: Statement, assembly: Assembly) -> Run:
    def run(warp: Warp, lanes: Lanes) -> None:
        warp.clocks.fence(warp.agents[lanes])
        mbarrier.fence_made(warp, warp.agents[lanes])

    return run


# Others ------------------------------------------------------------------------------------------------------


def _set_registers(statement: Statement, assembly: Assembly) -> Run:
    """setmaxnreg: all warps of a group of four must do the same, which is looked at when they have ended."""
    count = int(statement.operands[0])
    if count % 8 or not 24 <= count <= 256:
        raise SimulationError(f"{statement.opcode} takes a multiple of 8 from 24 to 256, not {count}")

    def run(warp: Warp, lanes: Lanes) -> None:
        require_all(warp, lanes, statement)
        warp.register_budgets.append(f"{statement.opcode} {count}")

    return run


def check_register_budgets(warps: list[Warp]) -> None:
    """Raises SimulationError if warps of one group of four set different budgets."""
    for first in range(0, len(warps), WARPS_OF_A_GROUP):
        group = warps[first : first + WARPS_OF_A_GROUP]
        if any(warp.register_budgets != group[0].register_budgets for warp in group):
            raise SimulationError(f"the warps {group[0].number} to {group[-1].number} disagree on setmaxnreg")


def _elect(statement: Statement, assembly: Assembly) -> Run:
    leader, chosen = statement.operands[0].split("|")

    def run(warp: Warp, lanes: Lanes) -> None:
        warp.registers[leader], warp.registers[chosen] = elect(warp)

    return run


def _set_predicate(statement: Statement, assembly: Assembly) -> Run:
    compare = {"eq": np.equal, "ne": np.not_equal}[statement.opcode.split(".")[1]]
    to, x, y = statement.operands[0], *(assembly.read(o) for o in statement.operands[1:])

    def run(warp: Warp, lanes: Lanes) -> None:
        warp.registers[to] = compare(x(warp), y(warp))

    return run


def _select(statement: Statement, assembly: Assembly) -> Run:
    to, yes, no, which = statement.operands[0], *(assembly.read(o) for o in statement.operands[1:])

    def run(warp: Warp, lanes: Lanes) -> None:
        warp.registers[to] = np.where(which(warp), yes(warp), no(warp)).astype(np.int32)

    return run


def _move(statement: Statement, assembly: Assembly) -> Run:
    to, value = statement.operands[0], assembly.read(statement.operands[1])

    def run(warp: Warp, lanes: Lanes) -> None:
        warp.registers[to] = value(warp)

    return run


def _nothing(statement: Statement, assembly: Assembly) -> Run:
    return lambda warp, lanes: None


#: What begins with these names; the first that fits counts.
MAKERS: dict[str, Maker] = {
    "mbarrier.init.": _init,
    "mbarrier.inval.": _destroy,
    "mbarrier.arrive.": _arrive,
    "mbarrier.expect_tx.": _expect,
    "mbarrier.try_wait.parity.": _wait,
    "mbarrier.test_wait.parity.": _wait,
    "mapa.": _map_address,
    "fence.mbarrier_init.": _fence_made,
    "fence.proxy.async": _fence_proxy,
    "bar.warp.sync": _warp_barrier,
    "trap": _trap,
    "bar.sync": _barrier,
    "bar.arrive": _barrier,
    "barrier.cluster.arrive": _cluster_arrive,
    "barrier.cluster.wait": _cluster_wait,
    "barrier.": _barrier,
    "setmaxnreg.": _set_registers,
    "elect.sync": _elect,
    "setp.": _set_predicate,
    "selp.": _select,
    "mov.": _move,
    "griddepcontrol.": _nothing,
    "prefetch.": _nothing,
    "fence.": _nothing,
}
