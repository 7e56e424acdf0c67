"""Matrix products: outer products accumulated in vector registers."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Value
from ...ir.types import BF16
from ...llvm.typed import Typed, constant, vector_type
from ...tile import matmul, shape
from ...tile.elementwise import Constant
from .arena import Buffer
from .chunk import llvm_element
from .expressions import tiles_read
from .loops import Nest
from .lower import CpuLowering
from .nests import compute_into, materialise
from .pack import Pack
from .plan import dot_source
from .processor import Processor
from .rule_sets import buffers, statements

#: Steps along the inner dimension in one iteration; more was not faster and takes longer to compile.
UNROLL = 2


@dataclass(frozen=True, slots=True)
class Blocking:
    """The part of the product that stays in registers: ``rows`` x ``vectors`` accumulators of ``lanes``."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """Columns."""
        return self.vectors * self.lanes


def choose_blocking(m: int, n: int, element_bytes: int, processor: Processor) -> Blocking:
    """Enough accumulators to hide the latency of fma, few enough to leave registers for operands.

    Two fma per cycle of latency 4 need 8: of 32 registers 8 x 2 are accumulators, of 16 registers 6 x 2. The columns
    are a power of two and divide ``n``; the rows need not divide ``m``.
    """
    lanes = max(1, min(n, processor.vector_bytes // element_bytes))
    accumulators = 16 if processor.registers >= 32 else 12
    rows = min(m, accumulators // min(n // lanes, 2))
    vectors = min(n // lanes, 1 << (accumulators // rows).bit_length() - 1)
    return Blocking(rows, vectors, lanes)


@buffers(matmul.Dot)
def multiplied(op: matmul.Dot) -> tuple[Value, ...]:
    """Both operands, of a transposed left one what is behind it."""
    return (dot_source(op.a), op.b)


@statements(matmul.Dot)
def dot(low: CpuLowering, op: matmul.Dot) -> None:
    """a @ b + acc. "tf32" and "tf32x3" are computed like "ieee": in full f32.

    Pairs of bf16 are multiplied by AVX512-BF16, which takes subnormal numbers for zero and rounds each sum of two.
    """
    if not low.live.uses.get(op.result):
        return
    # A transposed operand that another reader had stored let go of what is behind it.
    source = op.a if op.a in low.stored else dot_source(op.a)
    left, right = materialise(low, source), low.in_memory(op, op.b)
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
    for leaf, same_place in tiles_read(acc, low.stored).items():
        held = low.stored.get(leaf)
        if held is None or not same_place or leaf not in dying or leaf is acc:
            continue
        if held.shape == acc.type.shape and leaf.type.elem.bytes == acc.type.elem.bytes:
            compute_into(low, acc, held.buffer)
            low.stored.pop(leaf, None)
            return held.buffer
    buffer = low.allocate(acc)
    compute_into(low, acc, buffer)
    return buffer


class _Product:
    """The loops of one product: columns, rows, then the inner dimension, unrolled.

    Inner indices count units: one element, or the pair of neighbours that one instruction multiplies.
    """

    def __init__(self, low: CpuLowering, op: matmul.Dot, a: Buffer, b: Buffer, c: Buffer, transposed: bool) -> None:
        packed = op.b.op
        if not isinstance(packed, Pack):
            raise AssertionError("the right operand of a product is packed")
        self.low, self.e = low, low.e
        self.buffers = (a, b, c)
        self.m, self.n = op.acc.type.shape
        self.group = packed.group
        self.k = op.a.type.shape[1] // self.group
        self.row_stride, self.inner_stride = (1, self.m) if transposed else (self.k, 1)
        self.factor, self.element = op.a.type.scalar, llvm_element(op.acc.type.elem)
        self.size = op.acc.type.elem.bytes
        self.blocking = choose_blocking(self.m, self.n, self.size, low.processor)
        self.vector = vector_type(self.element, self.blocking.lanes)
        self.unit = self.element if self.group == 1 else f"i{8 * self.size}"
        self.nest = Nest(low.blocks)

    def emit(self, *, start_at_zero: bool) -> None:
        tile, nest = self.blocking, self.nest
        a, b, c = (self.low.base(buffer) for buffer in self.buffers)
        column, _ = nest.open(self.n // tile.width, tile.width)
        b = nest.move(self.e, b, column, self.k, self.unit)
        c = nest.move(self.e, c, column, 1, self.element)
        rest = self.m % tile.rows
        for first, count, rows in ((0, self.m // tile.rows, tile.rows), (self.m - rest, 1, rest)):
            if rows:
                row, _ = nest.open(count, rows, first)
                self._rows(
                    rows,
                    nest.move(self.e, a, row, self.row_stride, self.unit),
                    b,
                    nest.move(self.e, c, row, self.n, self.element),
                    start_at_zero,
                )
                nest.close()
        nest.close()
        self.low.blocks.enter(nest.levels[0].current)

    def _rows(self, rows: int, a: Typed, b: Typed, c: Typed, start_at_zero: bool) -> None:
        """``rows`` rows of one panel, in registers over the whole inner dimension."""
        tile, nest = self.blocking, self.nest
        with nest.at(nest.depth):
            tiles = [(i, j) for i in range(rows) for j in range(tile.vectors)]
            places = [self._at(c, i * self.n + j * tile.lanes, self.element) for i, j in tiles]
            if start_at_zero:
                sums = [constant(self.vector, 0) for _ in places]
            else:
                sums = [self.e.load(self.vector, p, self.size) for p in places]
        unroll = min(UNROLL, self.k)
        inner, inside = nest.open(self.k // unroll, unroll, 0, sums)
        a = nest.move(self.e, a, inner, self.inner_stride, self.unit)
        b = nest.move(self.e, b, inner, tile.width, self.unit)
        for step in range(unroll):
            inside = self._outer_product(a, b, step, inside)
        sums = nest.close(inside)
        with nest.at(nest.depth):
            for place, total in zip(places, sums, strict=True):
                self.e.store(total, place, self.size)

    def _outer_product(self, a: Typed, b: Typed, step: int, sums: list[Typed]) -> list[Typed]:
        tile, e = self.blocking, self.e
        following: list[Typed] = []
        with self.nest.at(self.nest.depth):
            columns = [self._load_columns(b, step * tile.width + j * tile.lanes) for j in range(tile.vectors)]
            for i in range(len(sums) // tile.vectors):
                place = self._at(a, i * self.row_stride + step * self.inner_stride, self.unit)
                left = e.splat(e.load(self.unit, place, self.factor.bytes), tile.lanes)
                for right in columns:
                    following.append(self._multiply_add(left, right, sums[len(following)]))
        return following

    def _load_columns(self, b: Typed, at: int) -> Typed:
        type = vector_type(self.unit, self.blocking.lanes)
        return self.e.load(type, self._at(b, at, self.unit), self.factor.bytes)

    def _multiply_add(self, x: Typed, y: Typed, z: Typed) -> Typed:
        if self.group > 1:
            return self._multiply_pairs(x, y, z)
        if self.element in ("float", "double"):
            return self.e.fma(x, y, z)
        return self.e.binary("add", self.e.binary("mul", x, y), z)

    def _multiply_pairs(self, x: Typed, y: Typed, z: Typed) -> Typed:
        """z + x[0] * y[0] + x[1] * y[1] in each lane of 32 bits."""
        lanes, bits = z.lanes, 32 * z.lanes
        factors = vector_type("bfloat" if self.factor == BF16 else "i16", 2 * lanes)
        pairs = [(factors, self.e.function.op(f"bitcast {v} to {factors}")) for v in (x, y)]
        if self.factor == BF16:
            name = f"llvm.x86.avx512bf16.dpbf16ps.{bits}"
        elif self.low.processor.int16_pairs == "dot":
            name = f"llvm.x86.avx512.vpdpwssd.{bits}"
        else:
            name = {128: "llvm.x86.sse2.pmadd.wd", 256: "llvm.x86.avx2.pmadd.wd"}.get(
                bits, "llvm.x86.avx512.pmaddw.d.512"
            )
            made = Typed(z.type, self.e.function.call(z.type, name, pairs))
            return self.e.binary("add", made, z)
        return Typed(z.type, self.e.function.call(z.type, name, [(z.type, z.name), *pairs]))

    def _at(self, pointer: Typed, count: int, element: str) -> Typed:
        if not count:
            return pointer
        return self.e.offset(pointer, Typed("i64", str(count)), element)
