"""Expressions of a kernel: evaluated at compile time where everything is known, emitted as operations where not."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterator

from ..language import arithmetic, conditions, shapes
from ..language.aggregate import OPERATORS, Aggregate
from ..language.arithmetic import operand
from ..language.dictionaries import known_key, mapping
from ..language.extent import bounded, gathered
from ..language.structure import Structure
from ..language.tensor import Operand, tensor
from ..language.truth import decides, joined
from ..language.typed import TypedFloat, TypedInt
from ..printable import shown
from ..source import constants
from ..source.namespace import HelperModule
from . import known
from .assignment import assign_typed
from .attributes import described, read_attribute
from .calls import call
from .dispatch import evaluate, expression
from .frame import Frame
from .python_calls import attribute, is_programs


@expression(ast.Constant)
def _constant(frame: Frame, node: ast.Constant) -> object:
    if isinstance(node.value, int | float | str | bool | None):
        return node.value
    raise frame.error(node, f"the literal {node.value!r} has no type in the kernel language")


@expression(ast.Name)
def _name(frame: Frame, node: ast.Name) -> object:
    return _no_module(frame, node, frame.lookup(node))


@expression(ast.NamedExpr)
def _named(frame: Frame, node: ast.NamedExpr) -> object:
    assign_typed(frame, node.target, evaluate(frame, node.value))
    return frame.lookup(node.target)


@expression(ast.Tuple)
def _tuple(frame: Frame, node: ast.Tuple) -> object:
    with frame.at(node):
        return gathered(_items(frame, node.elts))


@expression(ast.List)
def _list(frame: Frame, node: ast.List) -> object:
    with frame.at(node):
        return gathered(_items(frame, node.elts))


@expression(ast.Dict)
def _dict(frame: Frame, node: ast.Dict) -> object:
    entries: dict[Hashable, object] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            raise frame.error(node, "** is not supported in a dict")
        with frame.at(key):
            known_as = known_key(evaluate(frame, key))
        entries[known_as] = evaluate(frame, value)
    with frame.at(node):
        return mapping(entries)


def _items(frame: Frame, nodes: list[ast.expr]) -> Iterator[object]:
    for node in nodes:
        if isinstance(node, ast.Starred):
            inner = evaluate(frame, node.value)
            if not isinstance(inner, tuple):
                raise frame.error(node, "only a tuple can be unpacked with *")
            yield from inner
        else:
            yield evaluate(frame, node)


@expression(ast.Slice)
def _slice(frame: Frame, node: ast.Slice) -> object:
    parts = [evaluate(frame, p) if p else None for p in (node.lower, node.upper, node.step)]
    return slice(*parts)


_BINARY = {
    ast.Add: arithmetic.add,
    ast.Sub: arithmetic.sub,
    ast.Mult: arithmetic.mul,
    ast.Div: arithmetic.truediv,
    ast.FloorDiv: arithmetic.floordiv,
    ast.Mod: arithmetic.mod,
    ast.BitAnd: arithmetic.bit_and,
    ast.BitOr: arithmetic.bit_or,
    ast.BitXor: arithmetic.bit_xor,
    ast.LShift: arithmetic.shift_left,
    ast.RShift: arithmetic.shift_right,
}


_UNARY: dict[type[ast.unaryop], Callable[[Operand], tensor]] = {
    ast.USub: arithmetic.negate,
    ast.Invert: arithmetic.invert,
    ast.Not: conditions.logical_not,
}

#: Methods of aggregates behind operators.
_METHODS: dict[type[ast.operator], str] = {
    kind: f"__{name}__"
    for kind, name in zip(
        (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
        + (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.MatMult),
        OPERATORS,
        strict=True,
    )
}

_SIGNS: dict[type[ast.operator], str] = {ast.Pow: "**", ast.MatMult: "@"}


def apply_binary(frame: Frame, node: ast.AST, op: ast.operator, lhs: object, rhs: object) -> object:
    """``lhs op rhs`` for any mix of tensors and compile-time values."""
    if isinstance(lhs, Aggregate):
        return lhs.operate(_METHODS[type(op)], rhs)
    for side in (lhs, rhs):
        if isinstance(side, Structure):
            raise frame.error(
                node, f"a {side} cannot be combined with other values", "tl.advance moves a block pointer"
            )
    emit = _BINARY.get(type(op))
    if not isinstance(lhs, tensor) and not isinstance(rhs, tensor):
        if emit is not None and known.concerns(lhs, rhs):
            return known.combined(frame, emit, operand(lhs), operand(rhs))
        return constants.binary(op, lhs, rhs)
    if emit is None:
        raise frame.error(
            node,
            f"{_SIGNS.get(type(op), type(op).__name__)} is not defined for tensors",
            "use libdevice.pow(x, y) or x * x for powers and tl.dot for matrix products",
        )
    return emit(operand(lhs), operand(rhs))


@expression(ast.BinOp)
def _binop(frame: Frame, node: ast.BinOp) -> object:
    lhs, rhs = evaluate(frame, node.left), evaluate(frame, node.right)
    with frame.at(node):
        return apply_binary(frame, node, node.op, lhs, rhs)


@expression(ast.UnaryOp)
def _unaryop(frame: Frame, node: ast.UnaryOp) -> object:
    value = evaluate(frame, node.operand)
    with frame.at(node):
        emit = _UNARY.get(type(node.op))
        if isinstance(value, tensor):
            return value if emit is None else emit(value)
        if emit is not None and known.concerns(value):
            return known.combined(frame, emit, operand(value))
        return constants.unary(node.op, value)


_PREDICATES: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}


@expression(ast.Compare)
def _compare(frame: Frame, node: ast.Compare) -> object:
    lhs = evaluate(frame, node.left)
    result: object = None
    for i, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
        rhs = evaluate(frame, right)
        with frame.at(node):
            step = _compare_pair(frame, node, op, lhs, rhs)
            result = step if i == 0 else _both(result, step)
        lhs = rhs
    return result


def _both(a: object, b: object) -> object:
    if isinstance(a, tensor) or isinstance(b, tensor):
        return conditions.logical_and(operand(a), operand(b))
    return a and b


def _compare_pair(frame: Frame, node: ast.Compare, op: ast.cmpop, lhs: object, rhs: object) -> object:
    if isinstance(op, ast.Is | ast.IsNot):
        if isinstance(lhs, tensor) or isinstance(rhs, tensor):
            return isinstance(op, ast.IsNot)  # a tensor is nothing but itself
        return constants.compare(op, lhs, rhs)
    if not isinstance(lhs, tensor) and not isinstance(rhs, tensor):
        if type(op) in _PREDICATES and known.concerns(lhs, rhs):
            return known.combined(frame, conditions.compare, operand(lhs), operand(rhs), _PREDICATES[type(op)])
        return constants.compare(op, lhs, rhs)
    if type(op) not in _PREDICATES:
        raise frame.error(node, "'in' is not defined for tensors")
    return conditions.compare(operand(lhs), operand(rhs), _PREDICATES[type(op)])


@expression(ast.BoolOp)
def _boolop(frame: Frame, node: ast.BoolOp) -> object:
    by = isinstance(node.op, ast.Or)
    first, *others = node.values
    result = evaluate(frame, first)
    for other in others:
        if decides(result, by):
            break
        value = evaluate(frame, other)
        with frame.at(node):
            result = joined(result, value, by)
    return result


@expression(ast.Subscript)
def _subscript(frame: Frame, node: ast.Subscript) -> object:
    value, key = evaluate(frame, node.value), evaluate(frame, node.slice)
    with frame.at(node):
        if isinstance(value, tensor | TypedInt | TypedFloat):
            return shapes.index(arithmetic.as_tensor(value), key)
        if isinstance(value, Aggregate):
            return value.operate("__getitem__", key)
        if isinstance(value, mapping):
            return value[key]
        if isinstance(value, tuple | str) and isinstance(key, int | slice):
            try:
                return value[key]
            except IndexError:
                raise frame.error(node, f"index {key} is outside {len(value)} elements") from None
            except (TypeError, ValueError) as error:
                raise frame.error(node, str(error)) from None
        hint = "use tl.static_range for an index known at compile time"
        shown = described(value)
        raise frame.error(node, f"cannot index {shown} with {key!r}", hint if isinstance(key, tensor) else None)


@expression(ast.Attribute)
def _attribute(frame: Frame, node: ast.Attribute) -> object:
    return _no_module(frame, node, _member(frame, node))


def _member(frame: Frame, node: ast.Attribute) -> object:
    owner = node.value
    if isinstance(owner, ast.Name):
        value = frame.lookup(owner)
    else:
        value = _member(frame, owner) if isinstance(owner, ast.Attribute) else evaluate(frame, owner)
    with frame.at(node):
        if is_programs(frame.source, value):
            return attribute(value, node.attr)
        return read_attribute(value, node.attr)


def _no_module(frame: Frame, node: ast.expr, value: object) -> object:
    """``value``, which is no module of the program: what a kernel takes of those is part of its identity, and found by
    looking for ``module.name`` in its text."""
    if isinstance(value, HelperModule):
        name, kind = ast.unparse(node), "class" if isinstance(value.module, type) else "module"
        raise frame.error(node, f"the {kind} {name} is no value of the kernel language", f"write {name}.NAME")
    return value


#: Widest field of an f-string; text of a kernel may come from anywhere.
_MAX_FIELD = 64
#: Most digits of its width, which Python reads in a time that grows with their square, or not at all.
_MAX_DIGITS = 9


@expression(ast.JoinedStr)
def _joined(frame: Frame, node: ast.JoinedStr) -> object:
    text = ""
    for part in node.values:
        if not isinstance(part, ast.Constant | ast.FormattedValue):
            raise frame.error(node, "this f-string is not supported")
        text += str(part.value) if isinstance(part, ast.Constant) else _formatted(frame, part)
        with frame.at(node):
            bounded(text)
    return text


def _formatted(frame: Frame, node: ast.FormattedValue) -> str:
    value = evaluate(frame, node.value)
    spec = str(evaluate(frame, node.format_spec)) if node.format_spec else ""
    digits = "".join(c if c.isdecimal() else " " for c in spec).split()
    if any(len(d) > _MAX_DIGITS or int(d) > _MAX_FIELD for d in digits):
        raise frame.error(node, f"fields of f-strings are at most {_MAX_FIELD} wide")
    if node.conversion == ord("r"):
        value = repr(value)
    try:
        return format(value, spec) if isinstance(value, int | float | str) else str(value)
    except (ValueError, OverflowError) as error:
        raise frame.error(node, f"cannot format {shown(value)}: {error}") from error


@expression(ast.Call)
def _call(frame: Frame, node: ast.Call) -> object:
    return called(frame, node)[1]


def called(frame: Frame, node: ast.Call) -> tuple[object, object]:
    """The function that ``node`` calls, and what it returns. What the function is read from may be a call itself, with
    effects, so nothing is evaluated twice."""
    function = evaluate(frame, node.func)
    with frame.at(node):
        args = gathered(_items(frame, node.args))
    kwargs: dict[str, object] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise frame.error(node, "** is not supported in calls")
        kwargs[keyword.arg] = evaluate(frame, keyword.value)
    with frame.at(node):
        return function, call(frame, node, function, args, kwargs)


def is_compile_time(value: object) -> bool:
    """Whether ``value`` is known at compile time."""
    if isinstance(value, tuple):
        return all(is_compile_time(v) for v in value)
    return not isinstance(value, tensor)
