"""Where two paths meet: each variable becomes one value again."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from ..errors import CompilationError, TypeMismatch
from ..ir.core import Block
from ..ir.types import I64, Pointer, Scalar, Tile
from ..language import arithmetic, conditions
from ..language.promotion import type_of_number
from ..language.structure import Structure, parts_of, rebuilt, same_form
from ..language.tensor import tensor
from ..language.typed import Typed, TypedBool
from ..source.identity import float_text
from ..tile import control
from .frame import Frame
from .scope import LastIndex, LocalScope, Undefined


class _Any:
    """The value of a variable on a path that will never read it."""

    def __repr__(self) -> str:
        return "any value"


ANY = _Any()

#: What meets, where it is no variable.
RETURNED_VALUE, TERNARY = "the returned value", "the conditional expression"
#: How messages begin that are about these.
_MISMATCHES = {
    RETURNED_VALUE: "Return type mismatch",
    TERNARY: "Ternary expression with dynamic condition has inconsistent type",
}


def same_constant(a: object, b: object) -> bool:
    """Whether two values are one: the same tensor, or equal compile-time values of one type."""
    if isinstance(a, tensor) or isinstance(b, tensor):
        return a is b
    parts, others = parts_of(a), parts_of(b)
    if parts is not None and others is not None:
        return same_form(a, b) and all(same_constant(x, y) for x, y in zip(parts, others, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return float_text(a) == float_text(b)  # nan is nan, and 0.0 is not -0.0
    if isinstance(a, Typed) and isinstance(b, Typed) and a.type != b.type:
        return False
    return a is b or (type(a) is type(b) and a == b)


def common_tile(name: str, a: object, b: object) -> Tile:
    """The type in which two tensors or numbers of one variable meet; raises TypeMismatch."""
    types = [_type(name, x) for x in (a, b)]
    if types[0] == types[1]:
        return types[0]
    for number, other in ((a, types[1]), (b, types[0])):
        if not isinstance(number, tensor) and joins(number, other):
            return other
    raise TypeMismatch(
        _mismatch(name, types[0], types[1]),
        hint="give it one type and shape before, with tl.full or .to()",
    )


def _mismatch(name: str, one: object, other: object) -> str:
    what = _MISMATCHES.get(name, f"Mismatched type for {name}")
    return f"{what}: {one} on one path, {other} on the other"


def _type(name: str, value: object) -> Tile:
    if isinstance(value, tensor):
        return value.value.type
    if isinstance(value, bool | int | float):
        return Tile(type_of_number(value))
    why = value.why if isinstance(value, Undefined) else repr(value)
    raise TypeMismatch(f"{name!r} has no type that a branch or loop can change: {why}")


def joins(number: object, type: Tile) -> bool:
    """Whether a Python number can take the type ``type`` without changing its kind downwards."""
    if type.is_pointer or not isinstance(number, bool | int | float):
        return False
    return type.is_float or (not isinstance(number, float) and type.is_integer)


def as_leaf(value: object, type: Tile) -> tensor:
    """A tensor as it is; a number, or no matter which value, as a constant of ``type`` at the point of insertion."""
    if isinstance(value, tensor):
        return value
    if value is ANY:
        zero = arithmetic.constant(0, I64 if type.is_pointer else type.scalar, type.shape)
        return arithmetic.cast_to(zero, type.elem) if isinstance(type.elem, Pointer) else zero
    if isinstance(value, bool | int | float) and isinstance(type.elem, Scalar):
        return arithmetic.constant(value, type.scalar, type.shape)
    raise TypeMismatch(f"{value!r} cannot become {type}")


@dataclass(slots=True)
class PathValue:
    """A value that depends on the path: ``parts`` of the two sides, in ``type``."""

    parts: tuple[object, object]
    type: Tile


@dataclass
class Meeting:
    """Pairs up the values of two paths. What is known on both stays as it is; the rest are slots."""

    slots: list[PathValue] = field(default_factory=list)
    _known: dict[tuple[int, int], PathValue] = field(default_factory=dict)

    def join(self, name: str, a: object, b: object) -> object:
        """The merged value, with slots as its leaves; ANY on one side takes what the other side has."""
        if same_constant(a, b):
            return a
        if parts_of(a) is not None or parts_of(b) is not None:
            return self._structures(name, a, b)
        for value, other in ((a, b), (b, a)):
            if value is ANY and not isinstance(other, tensor):
                return other
        present = b if a is ANY else a
        type = common_tile(name, present, present if b is ANY else b)
        key = (id(a), id(b))
        slot = self._known.get(key)
        if slot is None:
            slot = self._known[key] = PathValue((a, b), type)
            self.slots.append(slot)
        return slot

    def _structures(self, name: str, a: object, b: object) -> object:
        present = b if a is ANY else a
        if a is not ANY and b is not ANY and not same_form(a, b):
            raise TypeMismatch(_mismatch(name, shown(a), shown(b)), hint="give it one structure")
        sides = [[ANY] * len(parts_of(present) or ()) if x is ANY else parts_of(x) or () for x in (a, b)]
        return rebuilt(present, tuple(self.join(name, x, y) for x, y in zip(*sides, strict=True)))

    def leaves(self, side: int) -> list[tensor]:
        """The slots' values on one side; constants are emitted at the point of insertion."""
        return [as_leaf(slot.parts[side], slot.type) for slot in self.slots]

    def rebuild(self, joined: object, made: dict[int, tensor]) -> object:
        """A joined value with its slots replaced by tensors, which are given by the slots' identity."""
        parts = parts_of(joined)
        if parts is not None:
            return rebuilt(joined, tuple(self.rebuild(part, made) for part in parts))
        return made[id(joined)] if isinstance(joined, PathValue) else joined


def shown(value: object) -> str:
    """A value as error messages show it."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, Structure):
        return str(value)
    return str(value.value.type) if isinstance(value, tensor) else repr(value)


def merge(
    frame: Frame,
    node: ast.AST,
    condition: tensor,
    blocks: tuple[Block, Block],
    scopes: tuple[LocalScope, LocalScope],
    *,
    final: bool = False,
) -> LocalScope:
    """Emit the conditional whose sides are ``blocks``; returns the scope behind it.

    A side that has returned for good never reads its variables again, so the other side's hold, compile-time values
    included. At the end of a function (``final``) only what it returns matters.

    Raises:
        TypeMismatch: a variable has types that do not meet; at ``node``.
    """
    meeting = Meeting()
    try:
        joined = _join_scopes(meeting, scopes, final, frame.source.counted(frame.source.node))
    except CompilationError as error:
        raise frame.located(error, node) from None
    made: dict[int, tensor] = {}
    with frame.at(node):
        chosen = {id(slot): bool(slot.parts[0]) for slot in meeting.slots if _is_condition(slot)}
        meeting.slots = [slot for slot in meeting.slots if id(slot) not in chosen]
        if meeting.slots or blocks[0].ops or blocks[1].ops:
            made |= emit_conditional(frame, condition, blocks, meeting)
        for slot, straight in chosen.items():
            made[slot] = condition if straight else conditions.logical_not(condition)
        return joined.mapped(lambda value: meeting.rebuild(value, made))


def _is_condition(slot: PathValue) -> bool:
    """Whether it is True on one side and False on the other: the condition itself, or its opposite."""
    a, b = slot.parts
    return isinstance(a, bool | TypedBool) and isinstance(b, bool | TypedBool) and bool(a) is not bool(b)


def emit_conditional(
    frame: Frame, condition: tensor, blocks: tuple[Block, Block], meeting: Meeting
) -> dict[int, tensor]:
    """Emit an ``if`` that yields the meeting's slots; its results by the slots' identity."""
    for side, block in enumerate(blocks):
        with frame.builder.into(block):
            frame.builder.emit(control.Yield(tuple(leaf.value for leaf in meeting.leaves(side))))
    op = frame.builder.emit(control.If(condition.value, *blocks))
    return {id(slot): tensor(result) for slot, result in zip(meeting.slots, op.results, strict=True)}


def _join_scopes(meeting: Meeting, scopes: tuple[LocalScope, LocalScope], final: bool, function: str) -> LocalScope:
    """Both scopes as one that has slots where they differ."""
    joined = LocalScope(
        left=meeting.join("left", *(scope.left for scope in scopes)),
        returned=meeting.join("returned", *(scope.returned for scope in scopes)),
        broke=meeting.join("broke", *(scope.broke for scope in scopes)),
    )
    values = [ANY if scope.returned is False else scope.value for scope in scopes]
    if not all(value is ANY for value in values):
        joined.value = _join_returned(meeting, function, *values)
    if not final:
        _join_names(meeting, scopes, joined)
    return joined


def _join_names(meeting: Meeting, scopes: tuple[LocalScope, LocalScope], joined: LocalScope) -> None:
    """Give ``joined`` the variables. One that a side which has left does not define has the other side's value, until
    those who left are back: it is doubtful."""
    living = [scope for scope in scopes if scope.returned is not True]
    if not living:  # nobody reads a variable, but what did not change must still be seen not to have
        joined.names = dict(scopes[0].names)
        return
    joined.doubtful = frozenset().union(*(scope.doubtful for scope in living))
    absent = Undefined("only one branch of the 'if' above defines it", "give it a value before the 'if'")
    gone = [scope.left is True for scope in scopes]
    for name in dict.fromkeys((*scopes[0].names, *scopes[1].names)):
        sides = [scope.names.get(name, absent) for scope in scopes]
        if not any(side is absent for side in sides) and same_constant(*sides):
            joined.names[name] = sides[0]
            continue
        sides = [side if scope in living else ANY for side, scope in zip(sides, scopes, strict=True)]
        for side in (0, 1):
            if isinstance(sides[side], Undefined) and gone[side] and not gone[1 - side]:
                sides[side] = ANY
                joined.doubtful |= {name}
        if len(living) == 2 or name in living[0].names:
            joined.names[name] = _join_sides(meeting, name, sides, absent)


def _join_sides(meeting: Meeting, name: str, sides: list[object], absent: Undefined) -> object:
    """What a variable is behind a conditional; ``absent`` is that of a side that does not define it."""
    if any(side is absent for side in sides):
        return absent
    if any(isinstance(side, LastIndex) for side in sides):
        return Undefined("it counts a loop in one branch of the 'if' above", "give it a value before the 'if'")
    undefined = next((side for side in sides if isinstance(side, Undefined)), None)
    return undefined if undefined else meeting.join(name, *sides)


def _join_returned(meeting: Meeting, function: str, a: object, b: object) -> object:
    if (a is None) != (b is None) and a is not ANY and b is not ANY:
        raise TypeMismatch(
            "the function returns a value on one path and none on another", hint="return a value on every path"
        )
    try:
        return meeting.join(RETURNED_VALUE, a, b)
    except TypeMismatch as error:
        raise TypeMismatch(f"{error.message}; returned {function}", hint=error.hint) from None
