"""Run-time conditionals: both branches are compiled and what they change is merged."""

from __future__ import annotations

import ast

from ..errors import TypeMismatch
from ..ir.core import Block
from ..ir.types import Tile
from ..language.arithmetic import constant
from ..language.promotion import type_of_number
from ..language.tensor import tensor
from ..tile import control
from .expressions import evaluate, scalar_condition
from .frame import Frame, Undefined

#: Leaves of a value: the tensors that a region can carry.
Leaves = list[tensor]


def same_constant(a: object, b: object) -> bool:
    """Whether two compile-time values are one."""
    if isinstance(a, tensor) or isinstance(b, tensor):
        return a is b
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(same_constant(x, y) for x, y in zip(a, b, strict=True))
    return a is b or (type(a) is type(b) and a == b)


def leaf_types(name: str, a: object, b: object) -> list[Tile]:
    """The types in which two values of one variable meet; raises TypeMismatch."""
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return [t for x, y in zip(a, b, strict=True) for t in leaf_types(name, x, y)]
    types = [_type(name, x) for x in (a, b)]
    if types[0] == types[1]:
        return [types[0]]
    for number, other in ((a, types[1]), (b, types[0])):
        if not isinstance(number, tensor) and _joins(number, other):
            return [other]
    raise TypeMismatch(
        f"{name!r} is {types[0]} on one path and {types[1]} on the other",
        hint="give it one type and shape before, with tl.full or .to()",
    )


def _type(name: str, value: object) -> Tile:
    if isinstance(value, tensor):
        return value.type
    if isinstance(value, bool | int | float):
        return Tile(type_of_number(value))
    shown = value.why if isinstance(value, Undefined) else repr(value)
    raise TypeMismatch(f"{name!r} has no type that a branch or loop can change: {shown}")


def _joins(number: object, type: Tile) -> bool:
    if type.is_pointer or not isinstance(number, bool | int | float):
        return False
    return type.is_float or (not isinstance(number, float) and type.is_integer)


def leaves(value: object, types: list[Tile]) -> Leaves:
    """The tensors of a value, in ``types``; numbers become constants at the point of insertion."""
    remaining = list(types)

    def flatten(part: object) -> Leaves:
        if isinstance(part, tuple):
            return [leaf for item in part for leaf in flatten(item)]
        type = remaining.pop(0)
        if isinstance(part, tensor):
            return [part]
        if not isinstance(part, bool | int | float):
            raise TypeMismatch(f"{part!r} cannot become {type}")
        return [constant(part, type.scalar, type.shape)]

    return flatten(value)


def rebuild(like: object, parts: list[tensor]) -> object:
    """A value structured as ``like`` from its leaves, which are taken from the front of ``parts``."""
    if isinstance(like, tuple):
        return tuple(rebuild(item, parts) for item in like)
    return parts.pop(0)


def runtime_if(
    frame: Frame, node: ast.If, condition: tensor, then: list[ast.stmt], otherwise: list[ast.stmt]
) -> tuple[bool, object]:
    """Compile both branches; returns (whether they return from the function, with what value)."""
    from .statements import execute

    condition = scalar_condition(frame, node.test, condition)
    blocks = (Block(), Block())
    scopes = (dict(frame.scope), dict(frame.scope))
    outcomes = []
    for block, scope, body in zip(blocks, scopes, (then, otherwise), strict=True):
        with frame.branch(block, scope):
            outcomes.append(execute(frame, body))
    returned = [o is not None for o in outcomes]
    if any(returned):
        values = [o.value if o is not None else None for o in outcomes]
        names, pairs = ["return value"], [(values[0], values[1])]
        if values[0] is None and values[1] is None:
            names, pairs = [], []
    else:
        names = [n for n in scopes[0] if n in scopes[1] and not same_constant(scopes[0][n], scopes[1][n])]
        pairs = [(scopes[0][n], scopes[1][n]) for n in names]
    merged = _emit_if(frame, condition, blocks, names, pairs)
    if any(returned):
        return True, merged[0] if merged else None
    for name, value in zip(names, merged, strict=True):
        scopes[0][name] = value
    for name in scopes[0].keys() ^ scopes[1].keys():
        scopes[0][name] = Undefined("only one branch of the 'if' above defines it", "give it a value before the 'if'")
    frame.scope.update(scopes[0])
    return False, None


def _emit_if(
    frame: Frame,
    condition: tensor,
    blocks: tuple[Block, Block],
    names: list[str],
    pairs: list[tuple[object, object]],
) -> list[object]:
    """Yield the pairs from the branches and return the merged values."""
    kept = []
    for name, pair in zip(names, pairs, strict=True):
        undefined = next((v for v in pair if isinstance(v, Undefined)), None)
        kept.append(undefined if undefined else leaf_types(name, *pair))
    for side, block in enumerate(blocks):
        with frame.builder.into(block):
            yielded = [
                leaf.value
                for pair, types in zip(pairs, kept, strict=True)
                if isinstance(types, list)
                for leaf in leaves(pair[side], types)
            ]
            frame.builder.emit(control.Yield(tuple(yielded)))
    op = frame.builder.emit(control.If(condition.value, *blocks))
    results = [tensor(r) for r in op.results]
    return [
        rebuild(pair[0], results) if isinstance(types, list) else types for pair, types in zip(pairs, kept, strict=True)
    ]


def conditional_expression(frame: Frame, node: ast.IfExp, condition: tensor) -> object:
    """``a if condition else b`` with a run-time scalar condition: only one side is evaluated when the kernel runs."""
    condition = scalar_condition(frame, node.test, condition)
    blocks, values = (Block(), Block()), []
    for block, side in zip(blocks, (node.body, node.orelse), strict=True):
        with frame.branch(block, dict(frame.scope)):
            values.append(evaluate(frame, side))
    (merged,) = _emit_if(frame, condition, blocks, ["the conditional expression"], [(values[0], values[1])])
    return merged
