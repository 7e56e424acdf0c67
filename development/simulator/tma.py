"""TMA: copies of boxes between arrays and shared memory (PTX ISA, "cp.async.bulk.tensor").

What a copy reads and writes is checked when it starts, with what the thread that starts it knows; until somebody has
waited for it, no access of anybody to these bytes is ordered with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from . import mbarrier
from .clocks import Actor
from .statements import Assembly, Maker, Read, Run, Statement, vector
from .tensor_map import SimulatedTensorMap, swizzled
from .values import SimulationError
from .warp import Lanes, Program, Warp

_ALIGNMENT = 128
#: What a store writes at least, wherever a row ends.
CHUNK_BYTES = 16
_MODIFIERS = {
    "tile", "global", "shared::cluster", "shared::cta", "mbarrier::complete_tx::bytes", "multicast::cluster",
    "L2::cache_hint", "bulk_group",
}  # fmt: skip
_TENSOR = re.compile(r"\[\s*(\S+?)\s*,\s*(\{.*\})\s*\]")


class _Box:
    """The operand ``[tensor map, {coordinates}]``, coordinates innermost first."""

    def __init__(self, token: str, dimensions: int, assembly: Assembly) -> None:
        match = _TENSOR.fullmatch(token)
        if match is None:
            raise SimulationError(f"cannot read the box {token!r}")
        self._address = assembly.read(match[1])
        self._coordinates = [assembly.read(c) for c in vector(match[2])]
        if len(self._coordinates) != dimensions:
            raise SimulationError(f"{len(self._coordinates)} coordinates for a box of {dimensions} dimensions")

    def find(self, warp: Warp, lane: int) -> tuple[SimulatedTensorMap, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The descriptor, and address in global memory and presence of each element of the box."""
        tensor_map = warp.memory.tensor_map(int(self._address(warp)[lane]))
        if len(tensor_map.box) != len(self._coordinates):
            raise SimulationError(f"a tensor map of {len(tensor_map.box)} dimensions with {len(self._coordinates)}")
        offsets, inside = tensor_map.elements([int(c(warp)[lane]) for c in reversed(self._coordinates)])
        return tensor_map, offsets + warp.memory.start(tensor_map.array), inside


def _dimensions(statement: Statement) -> int:
    _, _, _, _, dimensions, *modifiers = statement.opcode.split(".")
    if unknown := set(modifiers) - _MODIFIERS:
        raise SimulationError(f"the simulator does not know {', '.join(sorted(unknown))} of {statement.opcode}")
    return int(dimensions.removesuffix("d"))


def _bytes_in_shared(tensor_map: SimulatedTensorMap, address: int) -> npt.NDArray[np.int64]:
    """(elements, bytes of one): where the box at ``address`` has its elements, in the order of the box."""
    if address % _ALIGNMENT:
        raise SimulationError(
            f"a TMA copy of shared memory at {address:#x}, which is not aligned to {_ALIGNMENT} bytes"
        )
    item = tensor_map.array.dtype.itemsize
    return swizzled(address + np.arange(tensor_map.bytes), tensor_map.swizzle).reshape(-1, item)


def _bytes_in_global(addresses: npt.NDArray[np.int64], item: int) -> npt.NDArray[np.int64]:
    return addresses[:, None] + np.arange(item)


# Loads -------------------------------------------------------------------------------------------------------


def _load(statement: Statement, assembly: Assembly) -> Run:
    to, source, barrier, *rest = statement.operands
    box, address, mbar = _Box(source, _dimensions(statement), assembly), assembly.place(to), assembly.place(barrier)
    mask = assembly.read(rest[0]) if statement.has("multicast::cluster") else None

    def run(warp: Warp, lanes: Lanes) -> None:
        for lane in np.flatnonzero(lanes).tolist():
            thread = warp.agents[lane : lane + 1]
            tensor_map, elements, inside = box.find(warp, lane)
            data = np.tile(tensor_map.pad(), (inside.size, 1))
            where = inside.reshape(-1)
            for program, place, bar in _targets(warp, int(address(warp)[lane]), int(mbar(warp)[lane]), mask, lane):
                object = program.mbarriers.get(bar)
                if object is None:
                    raise SimulationError(f"a TMA load names an mbarrier at {bar:#x}, where none was made")
                object.check_made(thread)
                if not object.fenced:
                    raise SimulationError(f"no fence.mbarrier_init between the making of {object} and its use by TMA")
                row = _loading(program, object)
                actor = Actor(warp.clocks, thread, row)
                if where.any():
                    indices = _bytes_in_global(elements.reshape(-1)[where], data.shape[1])
                    data[where] = warp.memory.read(indices.reshape(1, -1), actor).reshape(indices.shape)
                indices = _bytes_in_shared(tensor_map, place)
                program.shared.write(indices.reshape(1, -1), data.reshape(1, -1), actor)
                mbarrier.complete_later(program.cluster, object, tensor_map.bytes, row)

    return run


def _loading(program: Program, object: mbarrier.MBarrier) -> int:
    owner = (program.rank << 24) | object.address
    name = f"a TMA load with {object}"
    return program.cluster.agent("TMA load", owner, name, generic=False, awaited=True)


def _targets(warp: Warp, address: int, bar: int, mask: Read | None, lane: int) -> Iterator[tuple[Program, int, int]]:
    """Shared memory and barrier in each program that gets the box: the same places in all of them."""
    program, place = warp.program.reach(address)
    owner, offset = warp.program.reach(bar)
    if program is not owner:
        raise SimulationError("a TMA load and its mbarrier are in different programs")
    if mask is None:
        yield program, place, offset
        return
    programs = warp.program.cluster.programs
    chosen = int(mask(warp)[lane]) & 0xFFFF
    if chosen >> len(programs):
        raise SimulationError(f"a multicast to the programs {chosen:#b} of a cluster of {len(programs)}")
    for other in programs:
        if chosen >> other.rank & 1:
            yield other, place, offset


# Stores ------------------------------------------------------------------------------------------------------


def _store(statement: Statement, assembly: Assembly) -> Run:
    to, source, *_ = statement.operands
    box, address = _Box(to, _dimensions(statement), assembly), assembly.place(source)

    def run(warp: Warp, lanes: Lanes) -> None:
        for lane in np.flatnonzero(lanes).tolist():
            thread = warp.agents[lane : lane + 1]
            tensor_map, elements, inside = box.find(warp, lane)
            if tensor_map.sizes[-1] * tensor_map.array.dtype.itemsize % CHUNK_BYTES:
                # Seen on an H200: what lies between the end of the row and that of the chunk is overwritten.
                raise SimulationError(f"a TMA store writes {CHUNK_BYTES} bytes at once, beyond rows of other lengths")
            program, place = warp.program.reach(int(address(warp)[lane]))
            if program is not warp.program:
                raise SimulationError("a TMA store of another program's shared memory")
            indices = _bytes_in_shared(tensor_map, place)
            reading, writing = (Actor(warp.clocks, thread, row) for row in _storing(warp, int(thread[0])))
            data = program.shared.read(indices.reshape(1, -1), reading).reshape(indices.shape)
            where = inside.reshape(-1)
            if where.any():
                targets = _bytes_in_global(elements.reshape(-1)[where], indices.shape[1])
                warp.memory.write(targets.reshape(1, -1), data[where].reshape(1, -1), writing)

    return run


def _storing(warp: Warp, thread: int) -> tuple[int, int]:
    """The agents that read shared memory and write global memory for the stores of a thread."""
    agent = warp.program.cluster.agent
    return (
        agent("TMA store reads", thread, f"a TMA store of thread {thread}", generic=False, awaited=True),
        agent("TMA store writes", thread, f"a TMA store of thread {thread}", generic=False, awaited=False),
    )


def _commit(statement: Statement, assembly: Assembly) -> Run:
    def run(warp: Warp, lanes: Lanes) -> None:
        for thread in warp.agents[lanes]:
            reads, writes = _storing(warp, int(thread))
            ends = warp.clocks.finished(reads), warp.clocks.finished(writes)
            warp.bulk_groups.setdefault(int(thread), []).append(ends)

    return run


def _wait(statement: Statement, assembly: Assembly) -> Run:
    most, reads_only = int(statement.operands[0]), statement.has("read")

    def run(warp: Warp, lanes: Lanes) -> None:
        for thread in warp.agents[lanes]:
            groups = warp.bulk_groups.get(int(thread), [])
            for reads, writes in groups[: max(0, len(groups) - most)]:
                warp.clocks.acquire(np.array([thread]), reads)
                if not reads_only:
                    warp.clocks.acquire(np.array([thread]), writes)

    return run


def _copy(statement: Statement, assembly: Assembly) -> Run:
    """A load names shared memory first, a store global memory."""
    return (_load if statement.operands[0].count("{") == 0 else _store)(statement, assembly)


MAKERS: dict[str, Maker] = {
    "cp.async.bulk.tensor.": _copy,
    "cp.async.bulk.commit_group": _commit,
    "cp.async.bulk.wait_group": _wait,
    "prefetch.tensormap": lambda statement, assembly: lambda warp, lanes: None,
}
