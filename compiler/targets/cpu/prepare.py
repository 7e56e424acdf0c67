"""Rewrites of tile IR that only the CPU wants, on a copy of the function."""

from __future__ import annotations

from ...ir.core import Block, Function, FunctionParameter, Op, Value, uses
from ...ir.types import F32, Scalar
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
            replaced[op.results[0]] = _accumulated_in_f32(block, op)
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
    """Whether it is a sum or a product of floats below 32 bits."""
    elem = op.inputs[0].type.elem
    added = isinstance(op.combine.ops[0], elementwise.Add | elementwise.Mul) and len(op.combine.ops) == 2
    return added and len(op.inputs) == 1 and isinstance(elem, Scalar) and is_narrow(elem)


def _accumulated_in_f32(block: Block, op: reduction.Reduce | reduction.Scan) -> Value:
    """Append the operation on f32 to ``block``, rounded once: here one element comes after the other, and a long sum
    that is rounded with each of them stops where an element is less than half of its last place."""
    (x,) = op.inputs
    combine = Block()
    env = {arg: combine.add_argument(arg.type.with_elem(F32), arg.name) for arg in op.combine.args}
    combine.ops = [inner.clone(env) for inner in op.combine.ops]
    wide = elementwise.Cast(x, F32)
    made = op.clone({}, inputs=(wide.result,), combine=combine)
    back = elementwise.Cast(made.results[0], x.type.scalar)
    for added in (wide, made, back):
        added.location = op.location
    block.ops += [wide, made, back]
    return back.result


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
