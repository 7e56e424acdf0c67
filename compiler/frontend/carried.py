"""What a run-time loop carries from one iteration to the next: variables, and early exits."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import TypeMismatch
from ..ir.core import Block, Value
from ..ir.types import I1, Tile
from ..language.promotion import spelled, type_of_number
from ..language.structure import parts_of, rebuilt, same_form
from ..language.tensor import tensor
from ..tile.control import Yield
from .dispatch import execute
from .exits import boundary, catch_break, catch_continue, compile_region
from .frame import Frame
from .merging import ANY, Meeting, as_leaf, common_tile, joins, same_constant, shown
from .scope import LastIndex, LocalScope, Undefined

_INDEX = Undefined("it counts another loop above", "give one of the two variables another name")


class Carried:
    """The variables that a loop's body changes.

    Their types are those before the loop; a plain number that the body turns into something else takes the body's type,
    for which the body is compiled once more. ``index`` is the loop's own variable, which is carried where it was
    defined before: it keeps its last value. What is left of a loop above is not: its name begins anew.
    """

    def __init__(self, frame: Frame, body: list[ast.stmt], index: str | None) -> None:
        self.frame = frame
        self.body = body
        self.index = index
        stored = assigned_names(body) | ({index} if index else set())
        frame.scope.names |= {n: _INDEX for n in stored if isinstance(frame.scope.names.get(n), LastIndex)}
        self.outer = dict(frame.scope.names)
        self.end = LocalScope()
        self.names = [n for n in self.outer if n in stored and _can_carry(self.outer[n])]
        self.types = {n: [common_tile(n, x, x) for x in leaves_of(self.outer[n])] for n in self.names}
        self.lost: dict[str, object] = {}

    def scope_in(self, block: Block) -> LocalScope:
        """The scope at the start of an iteration: carried variables are arguments of ``block``."""
        scope = LocalScope({**self.outer, **self.lost})
        for name in self.names:
            args = [tensor(block.add_argument(t, name)) for t in self.types[name]]
            scope.names[name] = _rebuild(self.outer[name], args)
        return scope

    def compile_body(self, start: Callable[[Block, dict[str, object]], None]) -> Block:
        """Compile the body, not yet ended; ``start`` adds leading arguments and names. ``end`` is then the scope after
        an iteration, of those who go on and of those who left by break or return."""
        while True:
            block, leading = Block(), dict[str, object]()
            start(block, leading)
            scope = self.scope_in(block)
            scope.names |= leading
            self.end = compile_region(self.frame, block, scope, self._iteration)
            if self.end.returned is True:  # nobody reads a variable after one iteration
                return block
            retyped = [self._must_retype(name) for name in list(self.names)]
            if not any(retyped):
                self._check_constants()
                return block

    def _iteration(self) -> None:
        with boundary(self.frame), self.frame.looping():
            execute(self.frame, self.body)
        catch_continue(self.frame)

    def _must_retype(self, name: str) -> bool:
        """Check the type of a variable at the end of the body; True if it has to start differently."""
        value, wanted = self.end.names[name], self.types[name]
        if isinstance(value, Undefined):
            return self._lose(name, value)
        if not _alike(self.outer[name], value):
            raise self._mismatch(name, shown(self.outer[name]), shown(value))
        starts, ends = list(leaves_of(self.outer[name])), list(leaves_of(value))
        changed = False
        for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if _fits(end, wanted[i]):
                continue
            if name == self.index:
                return self._lose(name, _INDEX)
            if isinstance(start, tensor):
                raise self._mismatch(name, str(wanted[i]), str(common_tile(name, end, end)))
            wanted[i], changed = common_tile(name, start, end), True
        return changed

    def _lose(self, name: str, why: Undefined) -> bool:
        """Stop carrying a variable: it has no value that all iterations could start with."""
        self.names.remove(name)
        self.lost[name] = why
        return True

    def _mismatch(self, name: str, before: str, after: str) -> Exception:
        hint = "give it one type: start with the wider one or end with .to(...)"
        if len(self.types[name]) == 1:
            hint = hint.replace("...", spelled(self.types[name][0].elem))
        message = f"the loop-carried variable {name!r} is {before} before the loop and {after} at the end of its body"
        return self.frame.located(TypeMismatch(message, hint=hint), self.body[0])

    def _check_constants(self) -> None:
        """Compile-time values that are no numbers must not change in a run-time loop."""
        for name, start in self.outer.items():
            if name in self.types or isinstance(start, Undefined):
                continue
            if not same_constant(start, self.end.names.get(name, start)):
                raise self.frame.located(
                    TypeMismatch(f"{name!r} changes in a run-time loop but is not a tensor or number"),
                    self.body[0],
                )

    def end_body(self, body: Block, first: tuple[Value, ...] = (), last: tuple[Value, ...] = ()) -> None:
        """Yield what the next iteration starts with, between other values."""
        values = list(first)
        nobody_reads = self.end.returned is True
        with self.frame.builder.into(body):
            for name in self.names:
                ends = [ANY] * len(self.types[name]) if nobody_reads else leaves_of(self.end.names[name])
                values += [as_leaf(v, t).value for v, t in zip(ends, self.types[name], strict=True)]
            self.frame.builder.emit(Yield((*values, *last)))

    def inits(self) -> tuple[Value, ...]:
        """The carried values before the loop, as constants where they are numbers."""
        return tuple(
            as_leaf(leaf, type).value
            for name in self.names
            for leaf, type in zip(leaves_of(self.outer[name]), self.types[name], strict=True)
        )

    def finish(self, results: tuple[Value, ...]) -> None:
        """Bind the carried variables to the loop's first results; what only the body defined is gone."""
        parts = [tensor(r) for r in results]
        names = self.frame.scope.names
        inside = Undefined("it is defined only inside the loop above", "give it a value before the loop")
        names |= dict.fromkeys(self.end.names.keys() - self.outer.keys(), inside)
        names |= self.lost
        for name in self.names:
            names[name] = _rebuild(self.outer[name], parts)

    def finish_index(self, last: Callable[[], tensor]) -> None:
        """Define the loop's variable behind it, unless it had a value before or the body gives it another one."""
        defined = not isinstance(self.outer.get(self.index or "", _INDEX), Undefined)
        if self.index and not defined and self.index not in assigned_names(self.body):
            self.frame.scope.names[self.index] = LastIndex(last)


@dataclass
class Exits:
    """How the iterations of a run-time loop left it: flags that it carries, and the parts of the value returned.

    ``flags`` are whether an iteration left and, where one may return, whether it returned; ``value`` is what.
    """

    flags: tuple[object, ...]
    value: object
    meeting: Meeting

    @staticmethod
    def of(end: LocalScope) -> Exits | None:
        """The exits at the end of a body; None where nobody leaves."""
        if end.left is False:
            return None
        meeting = Meeting()
        if end.returned is False:
            return Exits((end.left,), None, meeting)
        value = meeting.join("the returned value", ANY, end.value)
        return Exits((end.left, end.returned), value, meeting)

    @property
    def types(self) -> list[Tile]:
        """A scalar i1 for each flag, then the type of each part of the returned value."""
        return [Tile(I1)] * len(self.flags) + [slot.type for slot in self.meeting.slots]

    def carry(self, block: Block) -> None:
        """Add them to the arguments of a block."""
        for type in self.types:
            block.add_argument(type, "")

    def left(self, block: Block) -> tensor:
        """The flag that says who has left, among the arguments of ``block``."""
        return tensor(block.args[len(block.args) - len(self.types)])

    def ends(self) -> tuple[Value, ...]:
        """Their values at the end of the body, emitted there."""
        parts = [*self.flags, *(slot.parts[1] for slot in self.meeting.slots)]
        return self._values(parts)

    def inits(self) -> tuple[Value, ...]:
        """Their values before the loop: nobody has left."""
        return self._values([*(False for _ in self.flags), *(ANY for _ in self.meeting.slots)])

    def _values(self, parts: list[object]) -> tuple[Value, ...]:
        return tuple(as_leaf(part, type).value for part, type in zip(parts, self.types, strict=True))

    def finish(self, frame: Frame, results: tuple[Value, ...]) -> None:
        """After the loop: who left by break is back, who returned is not. ``results`` are the loop's last ones."""
        made = [tensor(r) for r in results[len(results) - len(self.types) :]]
        flags, parts = made[: len(self.flags)], made[len(self.flags) :]
        if len(flags) == 1:
            frame.scope.returned = False
        else:
            frame.scope.returned = flags[1]
            slots = {id(slot): part for slot, part in zip(self.meeting.slots, parts, strict=True)}
            frame.scope.value = self.meeting.rebuild(self.value, slots)
        catch_break(frame)


def leaves_of(value: object) -> Iterator[object]:
    """The tensors and numbers that a value is made of, however deep."""
    parts = parts_of(value)
    if parts is None:
        yield value
    else:
        for part in parts:
            yield from leaves_of(part)


def _rebuild(like: object, parts: list[tensor]) -> object:
    """A value structured as ``like`` from its leaves, which are taken from the front of ``parts``."""
    inner = parts_of(like)
    return parts.pop(0) if inner is None else rebuilt(like, tuple(_rebuild(item, parts) for item in inner))


def _alike(a: object, b: object) -> bool:
    """Whether two values have leaves in the same places."""
    parts, others = parts_of(a), parts_of(b)
    if parts is None or others is None:
        return parts is others
    return same_form(a, b) and all(map(_alike, parts, others))


def _fits(value: object, type: Tile) -> bool:
    """Whether a value at the end of the body can be carried in ``type``."""
    if isinstance(value, tensor):
        return value.value.type == type
    number = Tile(type_of_number(value)) if isinstance(value, bool | int | float) else None
    return number is not None and (number == type or joins(value, type))


def _can_carry(value: object) -> bool:
    parts = parts_of(value)
    if parts is not None:
        return bool(parts) and all(_can_carry(v) for v in parts)
    return isinstance(value, tensor | bool | int | float)


def assigned_names(body: list[ast.stmt]) -> set[str]:
    """Every name that the statements assign."""
    return {
        n.id
        for statement in body
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
