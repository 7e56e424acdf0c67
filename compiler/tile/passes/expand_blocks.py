"""Boxes of arrays to pointers and masks, the reverse of :mod:`.access`: for targets that have nothing better."""

from __future__ import annotations

import math

from ...ir.core import Block, Function, Op, Value
from ...ir.types import I32, I64, Scalar
from .. import elementwise as e
from .. import shape as s
from ..axis import AxisFacts, analyze
from ..blocks import BlockLoad, BlockStore
from ..memory import Load, Store
from .cse import cse
from .dce import dce
from .fold import fold
from .licm import licm


def expand_blocks(function: Function) -> Function:
    """Replace every block_load and block_store by loads and stores, in place; other functions stay as they are."""
    if not any(isinstance(op, BlockLoad | BlockStore) for op in function.walk()):
        return function
    replaced: dict[Value, Value] = {}
    _block(function.body, replaced, analyze(function))
    function.replace_uses(replaced)
    for step in (fold, cse, licm, cse, dce):
        step(function)
    return function


def _block(block: Block, replaced: dict[Value, Value], facts: AxisFacts) -> None:
    ops: list[Op] = []
    for op in block.ops:
        for nested in op.blocks:
            _block(nested, replaced, facts)
        if isinstance(op, BlockLoad | BlockStore):
            expansion = _Expansion(op, facts)
            made = expansion.access()
            ops.extend(expansion.ops)
            if isinstance(op, BlockLoad):
                made.results[0].name = op.result.name
                replaced[op.result] = made.results[0]
        else:
            ops.append(op)
    block.ops = ops


class _Expansion:
    """The operations that stand for one box. Addresses are 64 bits wide.

    Indices are compared in the wider type of offset and size; what wraps there is below zero, outside the array.
    """

    def __init__(self, op: BlockLoad | BlockStore, facts: AxisFacts) -> None:
        self.op = op
        self.facts = facts
        self.shape = op.shape if isinstance(op, BlockLoad) else op.value.type.shape
        self.leading = len(op.sizes) - len(self.shape)
        self.ops: list[Op] = []

    def add(self, op: Op) -> Value:
        op.location = self.op.location
        self.ops.append(op)
        return op.results[0] if op.results else self.op.base

    def access(self) -> Op:
        """Append the load or store, and return it."""
        op = self.op
        pointer, mask = self.pointer(), self.mask()
        if isinstance(op, BlockStore):
            self.add(Store(pointer, op.value, mask, op.cache, op.eviction))
        else:
            other = self.padding(op) if mask is not None else None
            self.add(Load(pointer, mask, other, op.cache, op.eviction))
        return self.ops[-1]

    def padding(self, op: BlockLoad) -> Value:
        if op.result.type.is_pointer:
            return self.add(e.Constant(0, op.result.type))
        value = math.nan if op.padding == "nan" else 0.0 if op.result.type.is_float else 0
        return self.add(e.Constant(value, op.result.type))

    def pointer(self) -> Value:
        """The scalar part first, so that it stays scalar: base + sum(offset * stride), then coordinate * stride."""
        base = self.op.base
        for offset, stride in zip(self.op.offsets, self.op.strides, strict=True):
            product = self.add(e.Mul(self.cast(offset, I64), self.cast(stride, I64)))
            base = self.add(e.AddPtr(base, product))
        if not self.shape:
            return base
        pointers = self.add(s.Splat(base, self.shape))
        for dim in range(len(self.shape)):
            step = self.along(self.cast(self.coordinates(dim), I64), dim)
            stride = self.cast(self.op.strides[self.leading + dim], I64)
            step = self.add(e.Mul(step, self.add(s.Splat(stride, step.type.shape))))
            pointers = self.add(e.AddPtr(pointers, self.add(s.Broadcast(step, self.shape))))
        if isinstance(self.op, BlockLoad) and self.op.alignment > 1:
            rows = tuple(self.op.alignment if _is_one(stride) else 1 for stride in self.op.strides[self.leading :])
            pointers = self.add(e.Hint(pointers, rows))
        return pointers

    def mask(self) -> Value | None:
        whole: Value | None = None
        for dim, checked in enumerate(self.op.checked):
            if checked:
                inside = self.inside(dim)
                whole = inside if whole is None else self.add(e.And(whole, inside))
        return whole

    def inside(self, dim: int) -> Value:
        """Which elements of the tile lie within the array along one of its dimensions."""
        offset, size = self.op.offsets[dim], self.op.sizes[dim]
        wide = max(_signed(offset.type.scalar), _signed(size.type.scalar), key=lambda t: t.bits)
        offset, size = self.cast(offset, wide), self.cast(size, wide)
        known = self.facts[self.op.offsets[dim]].nonnegative or bool(self.op.proven and self.op.proven[dim])
        tile_dim = dim - self.leading
        if tile_dim < 0:
            within = self.limited(offset, size, known)
            return self.add(s.Splat(within, self.shape)) if self.shape else within
        index = self.cast(self.coordinates(tile_dim), wide)
        if known:  # a sum could wrap back into the array, this difference cannot: neither side is negative
            held = self.add(e.Max(size, self.add(e.Constant(0, size.type))))
            size = self.add(e.Sub(held, offset))
        else:
            index = self.add(e.Add(self.add(s.Splat(offset, index.type.shape)), index))
        within = self.limited(index, self.add(s.Splat(size, index.type.shape)), known)
        return self.add(s.Broadcast(self.along(within, tile_dim), self.shape))

    def limited(self, index: Value, size: Value, known: bool) -> Value:
        """``index < size``, and ``0 <= index`` unless that is known."""
        below = self.add(e.Compare(index, size, "lt"))
        if known:
            return below
        zero = self.add(e.Constant(0, index.type))
        return self.add(e.And(below, self.add(e.Compare(index, zero, "ge"))))

    def coordinates(self, dim: int) -> Value:
        return self.add(s.Arange(0, self.shape[dim]))

    def along(self, line: Value, dim: int) -> Value:
        """A tile of one dimension as dimension ``dim`` of the shape, of size 1 along the others."""
        sizes = tuple(n if d == dim else 1 for d, n in enumerate(self.shape))
        for d in range(len(sizes)):
            if d != dim:
                line = self.add(s.ExpandDims(line, d))
        return line

    def cast(self, value: Value, to: Scalar) -> Value:
        return value if value.type.elem == to else self.add(e.Cast(value, to))


def _is_one(value: Value) -> bool:
    return isinstance(value.op, e.Constant) and value.op.value == 1


def _signed(scalar: Scalar) -> Scalar:
    """A signed type of at least 32 bits that holds the integers of ``scalar`` (of u64: those that sizes reach)."""
    return I32 if scalar.bits < 32 or scalar == I32 else I64
