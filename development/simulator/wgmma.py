"""wgmma: products that four warps start together and that end later (PTX ISA, "wgmma.mma_async").

The product is computed when the last of the four warps has started it. Its registers are in flight until the warp has
waited for the group they were committed to, and so are the operands in shared memory: nobody's access to these bytes
is ordered with the product before a wait.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .barriers import Wait
from .clocks import Actor, Times
from .descriptors import MatrixDescriptor
from .statements import Assembly, Maker, Run, Statement, require_all, uniform, vector
from .tensorcore import ELEMENTS, TF32_BITS, gather_rows
from .values import LANES, Array, Held, SimulationError
from .warp import WARPS_OF_A_GROUP, Lanes, Program, Warp

_MMA = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.(f32|f16|s32)\.(\w+)\.(\w+)(\.satfinite)?")
_ROWS_OF_A_WARP = 16
_DEPTH_BYTES = 32
_RESULTS = {"f32": np.float32, "f16": np.float16, "s32": np.int32}


@dataclass(eq=False)
class Product:
    """What one warp gets of one product: ``values`` (registers, 32), once computed; ``group``: committed to which."""

    warp: Warp
    group: int
    values: Array | None = None
    #: Whether other instructions have taken registers of it.
    used: bool = False


@dataclass(frozen=True, eq=False)
class Accumulator:
    """One register of a product."""

    product: Product
    number: int

    @property
    def in_flight(self) -> bool:
        return self.product.group >= self.product.warp.products_ended

    def read(self) -> Array:
        """The value; raises SimulationError while the product is in flight."""
        if self.in_flight:
            raise SimulationError(f"an accumulator of {self.product.warp} is used while its wgmma is in flight")
        self.product.used = True
        return self.settled()

    def settled(self) -> Array:
        if self.product.values is None:
            raise SimulationError(f"{self.product.warp} needs a product that its group of warps has not started")
        value: Array = self.product.values[self.number]
        return value


@dataclass
class _Part:
    """What one warp brings to a product."""

    a: int | Array
    b: int
    accumulate: bool
    before: list[Held]
    product: Product
    #: What all four must agree on.
    what: tuple[object, ...] = ()


@dataclass
class WarpGroup:
    """Four warps, the products that some of them have started, and the groups that all have committed.

    ``started``: the parts so far, by the number of the product; ``commits``: how many warps have committed each group;
    ``ended``: what the end of each group tells.
    """

    row: int
    started: dict[int, list[_Part]] = field(default_factory=dict)
    commits: list[int] = field(default_factory=list)
    ended: list[Times] = field(default_factory=list)


def _group(warp: Warp) -> WarpGroup:
    number = warp.number // WARPS_OF_A_GROUP
    groups = warp.program.warp_groups
    if number not in groups:
        first = number * WARPS_OF_A_GROUP
        if first + WARPS_OF_A_GROUP > warp.program.num_warps:
            raise SimulationError(f"{warp} is not one of a group of four that wgmma needs")
        name = f"a wgmma of warps {first}-{first + WARPS_OF_A_GROUP - 1}"
        first_thread = int(warp.program.warps[first].agents[0])
        row = warp.program.cluster.agent("wgmma", first_thread, name, generic=False, awaited=True)
        groups[number] = WarpGroup(row)
    return groups[number]


def check_products(program: Program) -> None:
    """Raises SimulationError if only some warps of a group have started a product or committed a group of them."""
    for number, group in program.warp_groups.items():
        if group.started or len(group.ended) < len(group.commits):
            raise SimulationError(f"the warps from {number * WARPS_OF_A_GROUP} on have not all started the same wgmma")


# The product -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shape:
    """What the name of the instruction says."""

    columns: int
    depth: int
    result: str
    a: str
    b: str
    transpose_a: bool
    transpose_b: bool

    @property
    def registers(self) -> int:
        return self.columns // (4 if self.result == "f16" else 2)

    def check(self, statement: Statement) -> None:
        step = 16 if self.result == "s32" and self.columns > 32 else 8
        item = np.dtype(ELEMENTS[self.a]).itemsize
        if self.columns % step or not 8 <= self.columns <= 256 or self.depth * item != _DEPTH_BYTES:
            raise SimulationError(f"there is no {statement.opcode}")
        if item != np.dtype(ELEMENTS[self.b]).itemsize or (item != 2 and (self.transpose_a or self.transpose_b)):
            raise SimulationError(f"{statement.opcode} cannot take these operands")


def _product(statement: Statement, assembly: Assembly) -> Run:
    shape = _read_shape(statement)
    results, a, b, scale, *_ = statement.operands
    outputs = vector(results)
    if len(outputs) != shape.registers:
        raise SimulationError(f"{statement.opcode} has {shape.registers} accumulators, not {len(outputs)}")
    # Sums that the product does not add to are not read.
    before = [] if scale == "0" else [assembly.held(register) for register in outputs]
    words = [assembly.read(word) for word in vector(a)] if a.startswith("{") else []
    descriptor_a = None if words else assembly.read(a)
    descriptor_b, accumulate = assembly.read(b), assembly.read(scale)

    def run(warp: Warp, lanes: Lanes) -> None:
        require_all(warp, lanes, statement)
        group = _group(warp)
        registers = [x(warp) for x in before]
        _check_fenced(warp, registers, bool(words))
        product = Product(warp, warp.products_committed)
        part = _Part(
            gather_rows([word(warp) for word in words], shape.a)
            if descriptor_a is None
            else uniform(descriptor_a(warp), lanes, "a matrix descriptor"),
            uniform(descriptor_b(warp), lanes, "a matrix descriptor"),
            bool(uniform(accumulate(warp), lanes, "scale-d")),
            registers,
            product,
        )
        parts = _start(warp, group, shape, part)
        if len(parts) == WARPS_OF_A_GROUP:
            _compute(warp, group, shape, parts)
            del group.started[warp.products_started - 1]
        for number, register in enumerate(outputs):
            warp.registers[register] = Accumulator(product, number)

    return run


def _read_shape(statement: Statement) -> _Shape:
    match = _MMA.fullmatch(statement.opcode)
    if match is None or match[4] not in ELEMENTS or match[5] not in ELEMENTS:
        raise SimulationError(f"the simulator does not know {statement.opcode}")
    _, a, _, _, *numbers = statement.operands
    if match[3] != "s32":
        if numbers[:2] != ["1", "1"]:
            raise SimulationError(f"the simulator knows {statement.opcode} with both factors 1")
        numbers = numbers[2:]
    transposes = [number == "1" for number in numbers]
    transpose_a = transposes.pop(0) if transposes and not a.startswith("{") else False
    transpose_b = transposes.pop(0) if transposes else False
    shape = _Shape(int(match[1]), int(match[2]), match[3], match[4], match[5], transpose_a, transpose_b)
    shape.check(statement)
    return shape


def _check_fenced(warp: Warp, before: list[Held], registers: bool) -> None:
    """Accumulators that no other instruction touched pass from one product to the next without a fence."""
    chained = bool(before) and all(isinstance(x, Accumulator) and not x.product.used for x in before)
    if (registers or not chained) and not warp.registers_fenced:
        raise SimulationError(f"{warp} starts a wgmma on registers with no wgmma.fence after they were its own")


def _start(warp: Warp, group: WarpGroup, shape: _Shape, part: _Part) -> list[_Part]:
    """Adds the part of ``warp``; the parts of its product so far."""
    parts = group.started.setdefault(warp.products_started, [])
    warp.products_started += 1
    part.what = (shape, None if isinstance(part.a, np.ndarray) else part.a, part.b, part.accumulate)
    if parts and parts[0].what != part.what:
        raise SimulationError(f"{warp} starts another wgmma than {parts[0].product.warp} of its group")
    parts.append(part)
    return parts


def _compute(warp: Warp, group: WarpGroup, shape: _Shape, parts: list[_Part]) -> None:
    parts = sorted(parts, key=lambda part: part.product.warp.number)
    actor = Actor(warp.clocks, np.concatenate([p.product.warp.agents for p in parts]), group.row, together=True)
    exact = np.int64 if shape.result == "s32" else np.float64
    if isinstance(parts[0].a, int):
        a = _read_matrix(warp, actor, parts[0].a, 64, shape.depth, shape.a, shape.transpose_a)
    else:
        a = np.concatenate([np.asarray(part.a) for part in parts])
    b = _read_matrix(warp, actor, parts[0].b, shape.columns, shape.depth, shape.b, shape.transpose_b)
    product = a.astype(exact) @ b.astype(exact).T
    for number, part in enumerate(parts):
        rows, columns = _fragment(shape.columns)
        mine = product[number * _ROWS_OF_A_WARP + rows, columns]
        if part.accumulate:
            mine = mine + _before(part.before, shape.result)
        part.product.values = _packed(mine, shape.result)


def _read_matrix(
    warp: Warp, actor: Actor, bits: int, extent: int, depth: int, kind: str, transposed: bool
) -> npt.NDArray[Any]:
    dtype = np.dtype(ELEMENTS[kind])
    where = MatrixDescriptor.decode(bits).addresses(extent, depth, dtype.itemsize, transposed=transposed)
    raw = warp.shared.read((where[..., None] + np.arange(dtype.itemsize)).reshape(1, -1), actor)
    if kind == "tf32":
        raw = (raw.reshape(-1).view(np.uint32) & TF32_BITS).view(np.uint8)
    elements: Array = raw.reshape(-1).view(dtype).reshape(extent, depth)
    return elements


def _fragment(columns: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row within the warp's 16 and column of each accumulator element of each lane: (columns / 2, 32)."""
    i, lane = np.arange(columns // 2)[:, None], np.arange(LANES)[None]
    return (lane >> 2) + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * (lane & 3) + (i & 1)


def _before(held: list[Held], result: str) -> Array:
    stacked = np.stack([x.settled() if isinstance(x, Accumulator) else np.asarray(x) for x in held])
    if result != "f16":
        return stacked
    halves = stacked.view(np.float16).reshape(len(held), LANES, 2)
    return halves.transpose(0, 2, 1).reshape(-1, LANES)


def _packed(values: Array, result: str) -> Array:
    values = values.astype(_RESULTS[result])
    if result != "f16":
        return values
    pairs = np.ascontiguousarray(values.reshape(-1, 2, LANES).transpose(0, 2, 1))
    packed: Array = pairs.view(np.int32)[..., 0]
    return packed


# Groups ------------------------------------------------------------------------------------------------------


def _fence(statement: Statement, assembly: Assembly) -> Run:
    def run(warp: Warp, lanes: Lanes) -> None:
        require_all(warp, lanes, statement)
        _group(warp)
        warp.registers_fenced = True

    return run


def _commit(statement: Statement, assembly: Assembly) -> Run:
    def run(warp: Warp, lanes: Lanes) -> None:
        require_all(warp, lanes, statement)
        group = _group(warp)
        if warp.products_committed == len(group.commits):
            group.commits.append(0)
        group.commits[warp.products_committed] += 1
        if group.commits[warp.products_committed] == WARPS_OF_A_GROUP:
            group.ended.append(warp.clocks.finished(group.row))
        warp.products_committed += 1

    return run


def _wait(statement: Statement, assembly: Assembly) -> Run:
    """Products end in order, and for all warps of the group at once."""
    most = int(statement.operands[0])

    def run(warp: Warp, lanes: Lanes) -> Wait:
        require_all(warp, lanes, statement)
        group, ended = _group(warp), max(0, warp.products_committed - most)

        def finish() -> None:
            if ended > warp.products_ended:
                warp.products_ended = ended
                warp.registers_fenced = False
            if ended:
                warp.clocks.acquire(warp.agents, group.ended[ended - 1])

        describe = f"wgmma.wait_group {most}; others of its four warps have not committed the products"
        return Wait(lambda: len(group.ended) >= ended, lambda: describe, finish)

    return run


MAKERS: dict[str, Maker] = {
    "wgmma.fence.": _fence,
    "wgmma.mma_async.": _product,
    "wgmma.commit_group.": _commit,
    "wgmma.wait_group.": _wait,
}
