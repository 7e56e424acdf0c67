"""Matrix products: outer products accumulated in vector registers."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Value
from ...llvm.typed import Typed, constant, vector_type
from ...tile import matmul, shape
from ...tile.elementwise import Constant
from .arena import Buffer
from .chunk import llvm_element
from .loops import Nest
from .lower import CpuLowering, statements
from .plan import dot_source

#: Steps along the inner dimension in one iteration; more was not faster and takes longer to compile.
UNROLL = 2


@dataclass(frozen=True, slots=True)
class Blocking:
    """The part of the product that stays in registers: ``rows`` x ``vectors`` accumulators of ``lanes``."""

    rows: int
    vectors: int
    lanes: int


def choose_blocking(m: int, n: int, element_bytes: int, vector_bytes: int) -> Blocking:
    """Enough accumulators to hide the latency of fma, few enough to leave registers for operands.

    With 32 registers (AVX-512) 16 accumulators: two fma per cycle of latency 4 need 8. With 16 registers, 8.
    """
    lanes = min(n, vector_bytes // element_bytes)
    budget = 16 if vector_bytes == 64 else 8
    vectors = min(n // lanes, 2)
    rows = min(m, budget // vectors)
    vectors = min(n // lanes, budget // rows)
    return Blocking(rows, vectors, lanes)


@statements(matmul.Dot)
def dot(low: CpuLowering, op: matmul.Dot) -> None:
    """a @ b + acc. "tf32" and "tf32x3" are computed like "ieee": in full f32."""
    if not low.live.uses.get(op.result):
        return
    source = dot_source(op.a)
    left, right = low.store(source), low.store(op.b)
    zero = isinstance(op.acc.op, Constant) and op.acc.op.value == 0
    buffer = low.allocate(op.result) if zero else accumulator(low, op.acc)
    transposed = source is not op.a and isinstance(op.a.op, shape.Permute) and op.a.op.order == (1, 0)
    _Product(low, op, left.buffer, right.buffer, buffer, transposed).emit(start_at_zero=zero)
    low.define_stored(op.result, buffer)


def accumulator(low: CpuLowering, acc: Value) -> Buffer:
    """A buffer that holds ``acc`` and may be overwritten: in place if nobody reads what it is made of again."""
    dying = low.live.dying([acc])
    if acc in low.stored and acc in dying:
        return low.stored.pop(acc).buffer
    for leaf, same_place in low.expression(acc).items():
        held = low.stored.get(leaf)
        if held is None or not same_place or leaf not in dying or leaf is acc:
            continue
        if held.shape == acc.type.shape and leaf.type.elem.bytes == acc.type.elem.bytes:
            low.write(acc, held.buffer)
            low.stored.pop(leaf, None)
            return held.buffer
    buffer = low.allocate(acc)
    low.write(acc, buffer)
    return buffer


class _Product:
    """The loops of one product: columns, rows, then the inner dimension, unrolled."""

    def __init__(self, low: CpuLowering, op: matmul.Dot, a: Buffer, b: Buffer, c: Buffer, transposed: bool) -> None:
        self.low, self.e = low, low.e
        self.buffers = (a, b, c)
        (self.m, self.k), self.n = op.a.type.shape, op.b.type.shape[1]
        self.row_stride, self.inner_stride = (1, self.m) if transposed else (self.k, 1)
        self.element = llvm_element(op.acc.type.elem)
        self.size = op.acc.type.elem.bytes
        self.blocking = choose_blocking(self.m, self.n, self.size, low.vector_bytes)
        self.vector = vector_type(self.element, self.blocking.lanes)
        self.nest = Nest(low.blocks)

    def emit(self, *, start_at_zero: bool) -> None:
        tile, nest = self.blocking, self.nest
        width = tile.vectors * tile.lanes
        a, b, c = (self._base(buffer) for buffer in self.buffers)
        column, _ = nest.open(self.n // width, width)
        b = self._move(b, column.base, 1)
        c = self._move(c, column.base, 1)
        row, _ = nest.open(self.m // tile.rows, tile.rows)
        a = self._move(a, row.base, self.row_stride)
        c = self._move(c, row.base, self.n)
        with nest.at(nest.depth):
            places = [self._at(c, i * self.n + j * tile.lanes) for i, j in self._tiles()]
            if start_at_zero:
                sums = [constant(self.vector, 0) for _ in places]
            else:
                sums = [self.e.load(self.vector, p, self.size) for p in places]
        unroll = min(UNROLL, self.k)
        inner, inside = nest.open(self.k // unroll, unroll, 0, sums)
        a = self._move(a, inner.base, self.inner_stride)
        b = self._move(b, inner.base, self.n)
        for step in range(unroll):
            inside = self._outer_product(a, b, step, inside)
        sums = nest.close(inside)
        with nest.at(nest.depth):
            for place, total in zip(places, sums, strict=True):
                self.e.store(total, place, self.size)
        nest.close()
        nest.close()
        self.low.blocks.enter(nest.levels[0].current)

    def _tiles(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(self.blocking.rows) for j in range(self.blocking.vectors)]

    def _outer_product(self, a: Typed, b: Typed, step: int, sums: list[Typed]) -> list[Typed]:
        tile, e = self.blocking, self.e
        following = []
        with self.nest.at(self.nest.depth):
            columns = [
                e.load(self.vector, self._at(b, step * self.n + j * tile.lanes), self.size) for j in range(tile.vectors)
            ]
            for i in range(tile.rows):
                place = self._at(a, i * self.row_stride + step * self.inner_stride)
                left = e.splat(e.load(self.element, place, self.size), tile.lanes)
                for j in range(tile.vectors):
                    total = sums[i * tile.vectors + j]
                    following.append(self._multiply_add(left, columns[j], total))
        return following

    def _multiply_add(self, x: Typed, y: Typed, z: Typed) -> Typed:
        if self.element in ("float", "double"):
            return self.e.fma(x, y, z)
        return self.e.binary("add", self.e.binary("mul", x, y), z)

    def _base(self, buffer: Buffer) -> Typed:
        return self.e.offset(self.low.scratch, Typed("i64", str(buffer.offset)), "i8")

    def _move(self, pointer: Typed, index: Typed, stride: int) -> Typed:
        with self.nest.at(self.nest.depth):
            if stride != 1:
                index = self.e.binary("mul nuw nsw", index, Typed("i32", str(stride)))
            return self.e.offset(pointer, index, self.element)

    def _at(self, pointer: Typed, elements: int) -> Typed:
        if not elements:
            return pointer
        return self.e.offset(pointer, Typed("i64", str(elements)), self.element)
