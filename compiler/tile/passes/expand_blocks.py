"""Boxes as tiles of pointers with masks."""

from __future__ import annotations

from ...ir.builder import Builder
from ...ir.core import Block, Function, Value
from ...ir.types import I64, Tile
from .. import elementwise as e
from .. import memory
from .. import shape as s
from ..blocks import BlockLoad, BlockStore


def expand_blocks(function: Function) -> Function:
    """Replace every box by pointers and masks."""
    _expand(function.body)
    return function


def _expand(block: Block) -> None:
    replaced: dict[Value, Value] = {}
    out = Block()
    builder = Builder(out)
    for op in block.ops:
        op.map_operands(lambda v: replaced.get(v, v))
        for nested in op.blocks:
            for inner in nested.walk():
                inner.map_operands(lambda v: replaced.get(v, v))
            _expand(nested)
        builder.location = op.location
        if isinstance(op, BlockLoad):
            pointers, mask = _pointers(op, op.shape, builder)
            other = None
            if mask is not None:
                number = float("nan") if op.padding == "nan" else 0
                type = op.result.type
                other = builder.emit(e.Constant(float(number) if type.is_float else 0, type)).result
            load = builder.emit(memory.Load(pointers, mask, other, op.cache, op.eviction, False))
            replaced[op.result] = load.result
        elif isinstance(op, BlockStore):
            pointers, mask = _pointers(op, op.value.type.shape, builder)
            builder.emit(memory.Store(pointers, op.value, mask, op.cache, op.eviction))
        else:
            out.ops.append(op)
    block.ops = out.ops


def _pointers(op: BlockLoad | BlockStore, shape: tuple[int, ...], b: Builder) -> tuple[Value, Value | None]:
    leading = len(op.sizes) - len(shape)
    pointer: Value = b.emit(s.Splat(op.base, shape)).result
    mask: Value | None = None
    for d, (size, stride, offset, checked) in enumerate(zip(op.sizes, op.strides, op.offsets, op.checked, strict=True)):
        wide = [v if v.type.elem == I64 else b.emit(e.Cast(v, I64)).result for v in (size, stride, offset)]
        spread = [b.emit(s.Splat(v, shape)).result for v in wide]
        index = spread[2]
        if d >= leading:
            axis = d - leading
            line: Value = b.emit(e.Cast(b.emit(s.Arange(0, shape[axis])).result, I64)).result
            for place in range(len(shape)):
                if place != axis:
                    line = b.emit(s.ExpandDims(line, place)).result
            if line.type.shape != shape:
                line = b.emit(s.Broadcast(line, shape)).result
            index = b.emit(e.Add(index, line)).result
        pointer = b.emit(e.AddPtr(pointer, b.emit(e.Mul(index, spread[1])).result)).result
        if checked:
            zero = b.emit(e.Constant(0, Tile(I64, shape))).result
            for inside in (e.Compare(index, zero, "ge"), e.Compare(index, spread[0], "lt")):
                flag = b.emit(inside).result
                mask = flag if mask is None else b.emit(e.And(mask, flag)).result
    return pointer, mask
