"""Rewrites of tile IR that only the CPU wants, on a copy of the function."""

from __future__ import annotations

from ...ir.core import Block, Function, FunctionParameter, Op, Value, uses
from ...ir.types import F32, Scalar, Tile
from ...tile import control, elementwise, matmul, reduction
from .carried import offset_carried_tiles
from .formats import is_narrow
from .processor import Processor
from .products import Products


def prepare(function: Function, processor: Processor) -> Function:
    """A copy of ``function`` with products as ``processor`` computes them, sums of narrow floats in f32 and carried
    pointer tiles as offsets."""
    env: dict[Value, Value] = {}
    copy = Function(function.name)
    copy.body = function.body.clone(env)
    copy.parameters = [FunctionParameter(p.name, env[p.value], p.divisibility) for p in function.parameters]
    _rewrite(copy.body, {}, Products(copy, processor))
    fuse_accumulation(copy)
    return copy


def _rewrite(block: Block, replaced: dict[Value, Value], products: Products) -> None:
    """Rewrite operations in order; ``replaced`` maps values that got another definition."""
    before, block.ops = block.ops, []
    for op in before:
        op.replace_operands(replaced)
        if isinstance(op, matmul.Dot):
            replaced[op.result] = products.rewrite(block, op)
            continue
        if isinstance(op, reduction.Reduce | reduction.Scan) and _accumulates_narrow(op):
            replaced |= zip(op.results, _accumulated_in_f32(block, op), strict=True)
            continue
        tail: list[Op] = []
        if isinstance(op, control.For):
            op, tail = offset_carried_tiles(block, op, replaced)
        block.ops.append(op)
        for nested in op.blocks:
            with products.inside(block, op):
                _rewrite(nested, replaced, products)
        block.ops += tail


def _accumulates_narrow(op: reduction.Reduce | reduction.Scan) -> bool:
    """Whether it makes sums and products, some of them of floats below 32 bits, and nothing else."""
    combined = op.combine.ops[:-1]
    added = bool(combined) and all(isinstance(inner, elementwise.Add | elementwise.Mul) for inner in combined)
    return added and any(_in_f32(x.type) != x.type for x in op.inputs)


def _in_f32(type: Tile) -> Tile:
    return type.with_elem(F32) if isinstance(type.elem, Scalar) and is_narrow(type.elem) else type


def _accumulated_in_f32(block: Block, op: reduction.Reduce | reduction.Scan) -> list[Value]:
    """Append the operation on f32 to ``block``, rounded once: here one element comes after the other, and a long sum
    that is rounded with each of them stops where an element is less than half of its last place."""

    def append(added: Op) -> Op:
        added.location = op.location
        block.ops.append(added)
        return added

    def cast(x: Value, to: Tile) -> Value:
        return x if x.type.elem == to.elem else append(elementwise.Cast(x, to.scalar)).result

    combine = Block()
    env = {arg: combine.add_argument(_in_f32(arg.type), arg.name) for arg in op.combine.args}
    combine.ops = [inner.clone(env) for inner in op.combine.ops]
    made = append(op.clone({}, inputs=tuple(cast(x, _in_f32(x.type)) for x in op.inputs), combine=combine))
    return [cast(wide, x.type) for wide, x in zip(made.results, op.inputs, strict=True)]


def fuse_accumulation(function: Function) -> None:
    """x + dot(a, b, 0) -> dot(a, b, x) where the product has no other reader."""
    readers = uses(function)
    fused: dict[Value, Value] = {}
    for op in list(function.walk()):
        if not isinstance(op, elementwise.Add) or not op.result.type.rank:
            continue
        for product, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            dot = product.op
            if isinstance(dot, matmul.Dot) and len(readers[product]) == 1 and _is_zero(dot.acc):
                if _move_behind(function.body, dot, op, other):
                    fused[op.result] = product
                break
    if fused:
        function.replace_uses(fused)


def _is_zero(value: Value) -> bool:
    return isinstance(value.op, elementwise.Constant) and value.op.value == 0


def _move_behind(block: Block, dot: matmul.Dot, add: elementwise.Add, acc: Value) -> bool:
    """Put the product where the sum was, accumulating onto ``acc``; False if they are in different blocks."""
    home = block.holder_of(add)
    if dot not in home.ops:
        return False
    home.ops.remove(dot)
    home.ops[home.ops.index(add)] = dot
    dot.acc = acc
    return True
