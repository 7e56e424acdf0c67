"""cp.async: copies of 4 to 16 bytes that each thread starts for itself (PTX ISA, "cp.async").

A copy goes through the generic proxy, and is over for the thread that started it when that waits for the group it
committed it to, or for others when the mbarrier that it arrives at completes.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from . import mbarrier
from .clocks import Actor
from .statements import Assembly, Maker, Run, Statement
from .values import LANES, SimulationError
from .warp import Lanes, Warp

_SIZES = {"ca": (4, 8, 16), "cg": (16,)}


def _row(warp: Warp) -> int:
    """The agents that copy for the lanes of a warp."""
    first = int(warp.agents[0])
    name = f"a cp.async of warp {warp.number}"
    return warp.program.cluster.agent("cp.async", first, name, LANES, generic=True, awaited=False)


def _copy(statement: Statement, assembly: Assembly) -> Run:
    to, source, size = (
        assembly.place(statement.operands[0]),
        assembly.place(statement.operands[1]),
        statement.operands[2],
    )
    count = int(size)
    if count not in _SIZES[statement.opcode.split(".")[2]]:
        raise SimulationError(f"{statement.opcode} cannot copy {count} bytes")
    given = assembly.read(statement.operands[3]) if len(statement.operands) > 3 else None

    def run(warp: Warp, lanes: Lanes) -> None:
        row = _row(warp)
        present = np.full(LANES, count) if given is None else given(warp).astype(np.int64)
        if (present[lanes] < 0).any() or (present[lanes] > count).any():
            raise SimulationError(f"{statement.opcode} of {int(present[lanes].max())} of {count} bytes")
        places, sources = to(warp), source(warp)
        if (places[lanes] % count).any() or (sources[lanes & (present > 0)] % count).any():
            raise SimulationError(f"{statement.opcode} of {count} bytes is not aligned")
        data = np.zeros((LANES, count), np.uint8)
        for size in np.unique(present[lanes & (present > 0)]):
            here = lanes & (present == size)
            actor = Actor(warp.clocks, warp.agents[here], row)
            data[here, :size] = warp.memory.read(sources[here][:, None] + np.arange(size), actor)
        actor = Actor(warp.clocks, warp.agents[lanes], row)
        warp.shared.write(places[lanes][:, None] + np.arange(count), data[lanes], actor)

    return run


def _commit(statement: Statement, assembly: Assembly) -> Run:
    def run(warp: Warp, lanes: Lanes) -> None:
        _row(warp)
        for lane in np.flatnonzero(lanes):
            warp.copy_groups[lane].append(warp.clocks.time)
        warp.clocks.time += 1

    return run


def _wait(statement: Statement, assembly: Assembly) -> Run:
    everything = "wait_all" in statement.opcode
    most = 0 if everything else int(statement.operands[0])

    def run(warp: Warp, lanes: Lanes) -> None:
        row = _row(warp)
        ended = {}
        for lane in np.flatnonzero(lanes):
            groups = warp.copy_groups[lane]
            if everything:
                groups.append(warp.clocks.time)
            if len(groups) > most:
                ended[int(lane)] = groups[len(groups) - most - 1]
        waiting = np.array([*ended], np.int32)
        warp.clocks.end_own(row, waiting, warp.agents[waiting], np.array([*ended.values()], np.int32))

    return run


def _arrive(statement: Statement, assembly: Assembly) -> Run:
    """cp.async.mbarrier.arrive: each lane arrives when the copies that it has started are over."""
    if not statement.has("noinc"):
        raise SimulationError(f"the simulator knows {statement.opcode} with .noinc only")
    address = assembly.place(statement.operands[0])

    def run(warp: Warp, lanes: Lanes) -> None:
        row, clocks = _row(warp), warp.clocks
        for where in np.unique(address(warp)[lanes]):
            here = np.flatnonzero(lanes & (address(warp) == where)).astype(np.int32)
            barrier = mbarrier.find(warp, int(where), warp.agents[here])
            ended = clocks.finished(row, here, clocks.time)
            warp.program.cluster.in_flight.append(partial(barrier.arrive, len(here), ended))

    return run


MAKERS: dict[str, Maker] = {
    "cp.async.mbarrier.arrive": _arrive,
    "cp.async.commit_group": _commit,
    "cp.async.wait_": _wait,
    "cp.async.ca.": _copy,
    "cp.async.cg.": _copy,
}
