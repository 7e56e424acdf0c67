"""Binding values to names."""

from __future__ import annotations

import ast

from ..ir.types import I64, U64
from ..language.aggregate import Aggregate
from ..language.context import warn
from ..language.promotion import fits, type_of_number
from ..language.tensor import tensor
from ..language.typed import Typed, typed_number
from .frame import Frame


def assign(frame: Frame, target: ast.expr, value: object) -> None:
    """Bind ``value`` to a name or to a tuple of targets."""
    match target:
        case ast.Name(id=name):
            frame.scope.names[name] = value
            if isinstance(value, tensor) and not value.value.name:
                value.value.name = name
        case ast.Starred(value=ast.Name(id=name)):
            raise frame.error(target, f"*{name} cannot be assigned", "take a part of the tuple: values[1:]")
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            for starred in (part for part in targets if isinstance(part, ast.Starred)):
                assign(frame, starred, value)
            for part, item in zip(targets, _unpacked(frame, target, value, len(targets)), strict=True):
                assign(frame, part, item)
        case ast.Attribute(value=ast.Name(id=name), attr=field) if isinstance(frame.scope.names.get(name), Aggregate):
            _set_field(frame, target, name, field, value)
        case _:
            raise frame.error(
                target,
                "only names can be assigned",
                "write to memory with tl.store(pointer, value)",
            )


def assign_typed(frame: Frame, target: ast.expr, value: object) -> None:
    """Bind what a statement assigns: numbers get types, as in Triton, but for names that are announced as constexpr,
    and in functions of compile-time values."""
    if frame.source.compile_time:
        assign(frame, target, value)
        return
    match target:
        case ast.Name(id=name) if name in frame.announced:
            frame.announced.remove(name)
            assign(frame, target, value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(value, tuple) and len(value) >= len(parts):
            for part, item in zip(parts, _unpacked(frame, target, value, len(parts)), strict=True):
                assign_typed(frame, part, item)
        case _:
            assign(frame, target, typed(value))


def _unpacked(frame: Frame, target: ast.expr, value: object, count: int) -> tuple[object, ...]:
    """The first ``count`` items of a tuple. As Triton does, it leaves the others out, with a warning."""
    if not isinstance(value, tuple) or len(value) < count:
        shown = f"{len(value)} values" if isinstance(value, tuple) else repr(value)
        raise frame.error(target, f"cannot unpack {shown} into {count} names")
    if len(value) > count:
        where = frame.source.locate(target)
        warn(f"{count} names take the first of {len(value)} values, as in Triton", where)
    return value[:count]


def typed(value: object, plain: tuple[int, ...] = ()) -> object:
    """A value with types for the numbers that it is or, as a tuple, has, but for the items ``plain``."""
    if isinstance(value, tuple):
        items = (item if at in plain else typed(item) for at, item in enumerate(value))
        return tuple.__new__(type(value), items)
    if isinstance(value, Typed) or not isinstance(value, int | float):
        return value
    if isinstance(value, int) and not fits(value, I64) and not fits(value, U64):
        return value  # there is no type for it
    return typed_number(value, type_of_number(value))


def _set_field(frame: Frame, target: ast.expr, name: str, field: str, value: object) -> None:
    """``self.field = value``, which an ``__init__`` may do with the instance that it makes."""
    held = frame.scope.names[name]
    assert isinstance(held, Aggregate)  # noqa: S101 -- the caller looked
    if not frame.source.makes(name):
        held = held.closed()
    with frame.at(target):
        frame.scope.names[name] = held.with_field(field, value)
