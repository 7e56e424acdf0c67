"""Which operands the products of this processor take: their element types, and the right one packed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...ir.core import Block, Function, Op, Value
from ...ir.types import BF16, F32, I16, I32, Scalar
from ...tile import control, elementwise, matmul, memory, shape
from ...tile.axis import analyze
from .matmul import choose_blocking
from .pack import Pack
from .processor import Processor

#: Lanes of 32 bits in the shortest registers that pairs are multiplied in (128 bits).
SHORTEST = 4


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a product is computed: the element type of both operands and of the sums; ``group`` factors a lane."""

    elem: Scalar
    acc: Scalar
    group: int


class Products:
    """Rewrites products one by one; knows in which loops the rewriting stands."""

    def __init__(self, function: Function, processor: Processor) -> None:
        facts = analyze(function)
        loads = [op for op in function.walk() if isinstance(op, memory.Load) and op.result.type.rank == 2]
        self.contiguity = {op.result: facts[op.pointer].contiguity for op in loads}
        self.processor = processor
        self._around: list[tuple[Block, Op]] = []

    @contextmanager
    def inside(self, block: Block, op: Op) -> Iterator[None]:
        """While the regions of ``op``, the last operation of ``block`` so far, are rewritten."""
        self._around.append((block, op))
        yield
        self._around.pop()

    def rewrite(self, block: Block, op: matmul.Dot) -> Value:
        """Append the product to ``block``, with converted operands (and back for an f16 accumulator)."""
        kind = self._kind(op)
        m, n = op.acc.type.shape
        blocking = choose_blocking(m, n, kind.acc.bytes, self.processor)
        acc = op.acc
        a = self._left(self._place(op.a, block), op.a, kind)
        b = self._right(self._place(op.b, block), op.b, kind, blocking.width)
        made = matmul.Dot(a, b, _Placed(block).cast(acc, kind.acc), op.precision)
        made.location = op.location
        block.ops.append(made)
        return _Placed(block).cast(made.result, acc.type.scalar)

    def _kind(self, op: matmul.Dot) -> _Kind:
        elem, acc = op.a.type.scalar, op.acc.type.scalar
        if acc.bits < 32:
            acc = F32
        (_, k), n = op.a.type.shape, op.b.type.shape[1]
        short: Scalar | None = None
        if elem.bits == 8:
            short = I16 if elem.is_integer else BF16  # exact, and so are the products
        elif elem == BF16:
            short = BF16
        if short is not None and k > 1 and n >= SHORTEST and self.processor.multiplies_pairs(short):
            return _Kind(short, acc, 2)
        return _Kind(I32 if elem.is_integer else F32 if elem.bits < 64 else elem, acc, 1)

    def _left(self, at: _Placed, a: Value, kind: _Kind) -> Value:
        """[M, K] in row-major order, or a permutation of [K, M]: the product reads that with swapped strides."""
        source, transposed = self._source(at, a, kind.elem)
        if not transposed:
            return source
        if kind.group > 1:
            source = at.add(Pack(source, source.type.shape[1], kind.group))
        return at.permute(source)

    def _right(self, at: _Placed, b: Value, kind: _Kind, width: int) -> Value:
        source, transposed = self._source(at, b, kind.elem)
        return at.add(Pack(source, width, kind.group, transposed))

    def _source(self, at: _Placed, x: Value, elem: Scalar) -> tuple[Value, bool]:
        """An operand in the order in which memory holds it, converted, and whether that is transposed."""
        if isinstance(x.op, shape.Permute) and x.op.order == (1, 0):
            return at.cast(x.op.x, elem), True
        if self._long_axis(x) == 0:
            return at.cast(at.permute(x), elem), True
        return at.cast(x, elem), False

    def _place(self, value: Value, block: Block) -> _Placed:
        """Where to prepare an operand: as far out of the loops around ``block`` as it is known."""
        place = _Placed(block)
        for outer, op in reversed(self._around):
            inside = value in place.block.args or value.op in place.block.ops
            if inside or not isinstance(op, control.For | control.While):
                break
            place = _Placed(outer, op)
        return place

    def _long_axis(self, value: Value) -> int | None:
        """The axis along which the memory behind an operand is contiguous; None if that is not known."""
        work, seen = [value], {value}
        while work:
            read = work.pop()
            op = read.op
            if read in self.contiguity:
                first, second = self.contiguity[read]
                if first != second:
                    return int(second > first)
            elif op is not None and op.elementwise:
                fresh = [v for v in op.operands if v.type.shape == value.type.shape and v not in seen]
                seen.update(fresh)
                work += fresh
        return None


@dataclass(slots=True)
class _Placed:
    """Adds operations at the end of ``block``, or in front of the loop that stands there."""

    block: Block
    loop: Op | None = None

    def add(self, op: Op) -> Value:
        ops = self.block.ops
        ops.insert(len(ops) if self.loop is None else ops.index(self.loop), op)
        return op.results[0]

    def cast(self, x: Value, to: Scalar) -> Value:
        if x.type.elem == to:
            return x
        if isinstance(x.op, elementwise.Constant) and not isinstance(x.op.value, bool):
            return self.add(elementwise.Constant(x.op.value, x.type.with_elem(to)))
        return self.add(elementwise.Cast(x, to))

    def permute(self, x: Value) -> Value:
        return self.add(shape.Permute(x, (1, 0)))
