"""Operands of products in the order in which the product reads them.

A panel holds ``width`` columns, as many as the product keeps in registers, so that the innermost loop reads memory from
front to back (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008). Where
an instruction multiplies pairs of 16-bit numbers, two neighbours along the inner dimension are one unit of 32 bits.
"""

from __future__ import annotations

from ...ir.core import Op, Value
from ...ir.types import Tile
from ...llvm.typed import Emitter, Typed, vector_type
from .chunk import Coord
from .emission import Emission
from .loops import Nest
from .lower import CpuLowering
from .nests import materialise, run_nest
from .rule_sets import buffers, statements


class Pack(Op, mnemonic="cpu_pack"):
    """The tile [K, N] as panels: [N / width, K / group, width, group] in memory. Only products read it.

    ``transposed``: ``x`` is [N, K] and packed as [K, N].
    """

    x: Value
    width: int
    group: int = 1
    transposed: bool = False

    def infer(self) -> tuple[Tile, ...]:
        """Result: the packed [K, N]; ``width`` divides N and ``group`` K."""
        shape = self.x.type.shape
        k, n = shape[::-1] if self.transposed else shape
        if n % self.width or k % self.group:
            raise self.fail(f"panels of {self.width} columns in groups of {self.group} rows do not cover {[k, n]}")
        return (self.x.type.with_shape((k, n)),)


@buffers(Pack)
def transposed(op: Pack) -> tuple[Value, ...]:
    """What is transposed from memory to memory."""
    return (op.x,) if op.transposed else ()


@statements(Pack)
def pack(low: CpuLowering, op: Pack) -> None:
    """Compute the tile into panels, without a copy in row-major order unless it is transposed."""
    if not low.live.uses.get(op.result):
        return
    if op.transposed:
        _Transposition(low, op).emit()
    else:
        _interleave_rows(low, op)


def _interleave_rows(low: CpuLowering, op: Pack) -> None:
    x, elem, (k, n) = op.x, op.x.type.elem, op.x.type.shape
    lanes = min(op.width, low.chunk_lanes(elem))
    buffer = low.allocate(op.result)

    def nest(emission: Emission) -> list[Typed]:
        row, _ = emission.open(k // op.group, op.group)
        panel, _ = emission.open(n // op.width, op.width)
        inside, _ = emission.open(op.width // lanes, lanes, stride=int(lanes > 1))
        column = emission.shifted(panel, inside)
        rows = [row, *(emission.shifted(row, _constant(g)) for g in range(1, op.group))]
        vectors = [emission.to_memory(emission.vector(x, (r, column)), elem) for r in rows]
        place = emission.address(buffer, elem, [(row, op.width), (panel, k), (inside, op.group)])
        with emission.nest.at(emission.nest.depth):
            _store_interleaved(emission.e, vectors, place, elem.bytes)
        emission.unwind(3)
        return []

    run_nest(low, [(x, False)], lanes, op.result.type.size // (lanes * op.group), nest, unroll=True)
    low.define_stored(op.result, buffer)


def _store_interleaved(e: Emitter, vectors: list[Typed], place: Typed, align: int) -> None:
    lanes = vectors[0].lanes
    if not lanes:
        for index, scalar in enumerate(vectors):
            e.store(scalar, e.offset(place, Typed("i64", str(index)), scalar.type), align)
    elif len(vectors) == 1:
        e.store(vectors[0], place, align)
    else:
        order = [i + half * lanes for i in range(lanes) for half in (0, 1)]
        e.store(e.shuffle(vectors[0], vectors[1], order), place, align)


def _constant(number: int) -> Coord:
    return Coord(Typed("i32", str(number)), 0, 0, number & -number)


class _Transposition:
    """Squares of units from [N, K / group] to panels, each transposed in registers."""

    def __init__(self, low: CpuLowering, op: Pack) -> None:
        self.low, self.op, self.e = low, op, low.e
        self.k, self.n = op.result.type.shape[0] // op.group, op.result.type.shape[1]
        self.align = op.x.type.elem.bytes
        self.unit = f"i{8 * op.group * self.align}"
        self.side = min(low.processor.vector_bytes // (op.group * self.align), op.width, self.k)
        self.source = materialise(low, op.x).buffer
        self.buffer = low.allocate(op.result)
        self.nest = Nest(low.blocks)

    def emit(self) -> None:
        low, op, nest, side = self.low, self.op, self.nest, self.side
        start, to = low.base(self.source), low.base(self.buffer)
        panel, _ = nest.open(self.n // op.width, op.width)
        start, to = self._move(start, panel, self.k), self._move(to, panel, self.k)
        inside, _ = nest.open(op.width // side, side)
        start, to = self._move(start, inside, self.k), self._move(to, inside, 1)
        row, _ = nest.open(self.k // side, side)
        start, to = self._move(start, row, 1), self._move(to, row, op.width)
        with nest.at(nest.depth):
            type = vector_type(self.unit, side)
            rows = [self.e.load(type, self._at(start, i * self.k), self.align) for i in range(side)]
            for index, column in enumerate(_transposed(self.e, rows)):
                self.e.store(column, self._at(to, index * op.width), self.align)
        for _ in range(3):
            nest.close()
        low.blocks.enter(nest.levels[0].current)
        low.define_stored(op.result, self.buffer)

    def _move(self, pointer: Typed, index: Coord, stride: int) -> Typed:
        return self.nest.move(self.e, pointer, index, stride, self.unit)

    def _at(self, pointer: Typed, units: int) -> Typed:
        return self.e.offset(pointer, Typed("i64", str(units)), self.unit)


def _transposed(e: Emitter, rows: list[Typed]) -> list[Typed]:
    """The columns of a square of n rows of n lanes, by log2(n) rounds in which blocks off the diagonal are swapped."""
    size, half = len(rows), 1
    while half < size:
        swapped = list(rows)
        for i in range(size):
            if i & half:
                continue
            upper = [lane + size - half if lane & half else lane for lane in range(size)]
            lower = [lane + size if lane & half else lane + half for lane in range(size)]
            swapped[i] = e.shuffle(rows[i], rows[i + half], upper)
            swapped[i + half] = e.shuffle(rows[i], rows[i + half], lower)
        rows, half = swapped, 2 * half
    return rows
