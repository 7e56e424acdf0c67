"""Identities on the operations that change shapes."""

from __future__ import annotations

from ...ir.core import Op, Value
from .. import elementwise as e
from .. import shape as s
from .registry import Replacement, Rewriter, rule


@rule(s.Splat, s.Broadcast, s.ExpandDims, s.Reshape, s.Permute)
def reshaped_constant(op: Op, new: Rewriter) -> Replacement:
    """splat(c) -> c of the new shape, and so for broadcast, expand_dims, reshape, permute"""
    source = op.operands[0].op
    if not isinstance(source, e.Constant):
        return None
    return new(e.Constant(source.value, op.result.type))


@rule(s.Broadcast, s.ExpandDims, s.Reshape, s.Permute)
def reshaped_splat(op: Op, new: Rewriter) -> Replacement:
    """broadcast(splat(x)) -> splat(x), and so for expand_dims, reshape, permute"""
    source = op.operands[0].op
    if not isinstance(source, s.Splat):
        return None
    return new(s.Splat(source.x, op.result.type.shape))


@rule(s.Splat, s.Broadcast, s.Reshape)
def same_shape(op: s.Splat | s.Broadcast | s.Reshape, new: Rewriter) -> Replacement:
    """reshape(x) -> x, if the shape stays"""
    return op.x if op.x.type.shape == op.shape else None


@rule(s.Permute)
def permute_nothing(op: s.Permute, new: Rewriter) -> Replacement:
    """permute(x, 0 1 2) -> x"""
    return op.x if op.order == tuple(range(len(op.order))) else None


@rule(s.Permute)
def permute_chain(op: s.Permute, new: Rewriter) -> Replacement:
    """permute(permute(x, p), q) -> permute(x, p q)"""
    inner = op.x.op
    if not isinstance(inner, s.Permute):
        return None
    return new(s.Permute(inner.x, tuple(inner.order[d] for d in op.order)))


@rule(s.Reshape)
def reshape_chain(op: s.Reshape, new: Rewriter) -> Replacement:
    """reshape(reshape(x)) -> reshape(x)"""
    inner = op.x.op
    return new(s.Reshape(inner.x, op.shape)) if isinstance(inner, s.Reshape) else None


@rule(s.Broadcast)
def broadcast_chain(op: s.Broadcast, new: Rewriter) -> Replacement:
    """broadcast(broadcast(x)) -> broadcast(x)"""
    inner = op.x.op
    return new(s.Broadcast(inner.x, op.shape)) if isinstance(inner, s.Broadcast) else None


@rule(s.Split)
def split_join(op: s.Split, new: Rewriter) -> Replacement:
    """split(join(x, y)) -> x, y"""
    inner = op.x.op
    return (inner.lhs, inner.rhs) if isinstance(inner, s.Join) else None


def splat_through(op: Op, new: Rewriter) -> Replacement:
    """f(splat(x), splat(y)) -> splat(f(x, y)), for every elementwise f; constants count as splats"""
    if isinstance(op, e.Hint):  # speaks of the tile's own dimensions
        return None
    shape = op.results[0].type.shape
    operands = op.operands
    if not shape or not any(isinstance(v.op, s.Splat) for v in operands):
        return None
    if any(not isinstance(v.op, s.Splat | e.Constant) for v in operands):
        return None
    scalars: dict[Value, Value] = {}
    for value in operands:
        source = value.op
        if isinstance(source, s.Splat):
            scalars[value] = source.x
        elif isinstance(source, e.Constant):
            scalars[value] = new(e.Constant(source.value, source.type.with_shape(())))
    return new(s.Splat(new(op.clone(scalars)), shape))


@rule(e.AddPtr)
def addptr_splats(op: e.AddPtr, new: Rewriter) -> Replacement:
    """(splat(p) + i) + splat(n) -> splat(p + n) + i, so that the uniform part stays scalar"""
    inner, offset = op.pointer.op, op.offset.op
    if not isinstance(inner, e.AddPtr) or not isinstance(offset, s.Splat):
        return None
    base = inner.pointer.op
    if not isinstance(base, s.Splat) or new.uses(op.pointer) != 1:
        return None
    uniform = new(e.AddPtr(base.x, offset.x))
    return new(e.AddPtr(new(s.Splat(uniform, base.shape)), inner.offset))


for _op in list(vars(e).values()):
    if isinstance(_op, type) and issubclass(_op, Op) and _op.elementwise and _op.mnemonic:
        rule(_op)(splat_through)
