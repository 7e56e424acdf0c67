"""What changes in a kernel's tile IR with the value of a parameter: two compilations, compared operation by operation.

The frontend writes the same operations in the same order for values that differ in sizes only, so operations
correspond by their place. Nothing here knows names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deuteron.compiler.ir.core import Function, Op, Value
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.elementwise import Add, Cast, Compare, Constant, Hint, IntDiv, Max, Min, Mul, Rem, Sub
from deuteron.compiler.tile.matmul import Dot
from deuteron.compiler.tile.program import NumPrograms, ProgramId
from deuteron.compiler.tile.shape import Arange, Broadcast, ExpandDims, Permute, Reshape, Splat

#: Operations that carry a coordinate along.
_CARRIERS = (Add, Sub, Cast, Broadcast, ExpandDims, Permute, Reshape, Splat, Hint)
#: Scalar operations by which programs find their place in the grid.
_PLACING = (Add, Sub, Mul, IntDiv, Rem, Min, Max, Cast, Hint)


@dataclass
class Influence:
    """``rewritten``: there are other operations, so nothing else is told. ``axes``: dimensions of tiles whose size
    changed, by operation number, result and axis. ``strides``: how what changed is walked over: ``loop`` (the step of a
    loop), ``program`` (programs of the grid are so far apart), ``count`` (sizes are divided by it), ``trips`` (a loop
    runs so often). ``other``: scalars changed that are none of these; ``hints``: what loops say to the compiler.
    ``dot``: of which axes of products it is the size: M, N, K. ``bounds``: run-time parameters that limit what it walks
    over or covers."""

    rewritten: bool = False
    axes: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    strides: set[str] = field(default_factory=set)
    other: bool = False
    hints: bool = False
    dot: set[str] = field(default_factory=set)
    bounds: set[str] = field(default_factory=set)

    @property
    def nothing(self) -> bool:
        """Whether both compilations are the same."""
        return not (self.rewritten or self.axes or self.strides or self.other or self.hints)


def influence(first: Function, second: Function) -> Influence:
    """What differs between a kernel at one value of a parameter and at another."""
    ones, others = list(first.walk()), list(second.walk())
    if [op.mnemonic for op in ones] != [op.mnemonic for op in others]:
        return _of_rewritten(ones, others)
    found = Influence()
    reader = _Reader(first, ones)
    for number, (one, other) in enumerate(zip(ones, others, strict=True)):
        changed = _changed_axes(one, other)
        for result, axis, sizes in changed:
            found.axes[number, result, axis] = sizes
        if isinstance(one, Dot) and isinstance(other, Dot):
            found.dot |= _changed_product(one, other)
        if isinstance(one, Arange) and changed:
            found.bounds |= reader.compared_with(one.result)
        if isinstance(one, Constant) and isinstance(other, Constant) and one.value != other.value:
            if not one.type.rank and one.type.is_integer:
                reader.read_scalar(one, found)
            else:
                found.other = True
        elif not changed and one.attributes != other.attributes:
            found.hints = found.hints or isinstance(one, For)
            found.other = found.other or not isinstance(one, For)
    return found


def _of_rewritten(ones: list[Op], others: list[Op]) -> Influence:
    """Other operations: what is still told is whether ranges of tiles, in their order, have other sizes."""
    sizes, later = ([op.end - op.start for op in ops if isinstance(op, Arange)] for ops in (ones, others))
    found = Influence(rewritten=True)
    if len(sizes) == len(later):
        found.axes = {(n, 0, 0): pair for n, pair in enumerate(zip(sizes, later, strict=True)) if pair[0] != pair[1]}
    return found


def _changed_axes(one: Op, other: Op) -> list[tuple[int, int, tuple[int, int]]]:
    return [
        (result, axis, (have, wanted))
        for result, (a, b) in enumerate(zip(one.results, other.results, strict=True))
        if a.type.rank == b.type.rank
        for axis, (have, wanted) in enumerate(zip(a.type.shape, b.type.shape, strict=True))
        if have != wanted
    ]


def _changed_product(one: Dot, other: Dot) -> set[str]:
    (m, k), n = one.a.type.shape, one.b.type.shape[1]
    (other_m, other_k), other_n = other.a.type.shape, other.b.type.shape[1]
    return {name for name, a, b in (("M", m, other_m), ("N", n, other_n), ("K", k, other_k)) if a != b}


class _Reader:
    """Follows values of one function from where they are made to where they are used, and back."""

    def __init__(self, function: Function, ops: list[Op]) -> None:
        self.parameters: Mapping[Value, str] = {p.value: p.name for p in function.parameters}
        self.users: dict[Value, list[Op]] = {}
        for op in ops:
            for value in op.operands:
                self.users.setdefault(value, []).append(op)
        self.indices = {op.body.args[0] for op in ops if isinstance(op, For)}

    def read_scalar(self, constant: Constant, found: Influence) -> None:
        """Note what a scalar constant that changed is used for."""
        for value in self._products(constant.result):
            for user in self.users.get(value, ()):
                match user:
                    case For() if user.step is value:
                        found.strides.add("loop")
                        found.bounds |= self.sources(user.upper)
                    case For() if user.upper is value:
                        found.strides.add("trips")
                    case For():
                        pass  # where a loop begins
                    case IntDiv(rhs=divisor) if divisor is value:
                        found.strides.add("count")
                        found.bounds |= self.sources(user.lhs)
                    case Mul(lhs=lhs, rhs=rhs):
                        if self._places(rhs if lhs is value else lhs):
                            found.strides.add("program")
                        else:
                            found.other = True
                    case _:
                        found.other = found.other or not self._rounds_up(user)

    def compared_with(self, value: Value) -> set[str]:
        """The run-time parameters that coordinates made from ``value`` are compared with."""
        found: set[str] = set()
        pending, seen = [value], {value}
        while pending:
            for user in self.users.get(pending.pop(), ()):
                if isinstance(user, Compare):
                    sides = [side for side in (user.lhs, user.rhs) if side not in seen]
                    found |= {name for side in sides for name in self.sources(side)}
                elif isinstance(user, _CARRIERS):
                    pending += [made for made in user.results if made not in seen]
                    seen |= {*user.results}
        return found

    def sources(self, value: Value) -> set[str]:
        """The run-time parameter that a size is, or is a sum, a quotient or a least one of; of several none."""
        found: set[str] = set()
        pending, seen = [value], {value}
        while pending:
            current = pending.pop()
            if current in self.parameters:
                found.add(self.parameters[current])
            op = current.op
            if isinstance(op, (Add, Sub, Cast, Splat, Broadcast, ExpandDims, IntDiv, Min, Hint)):
                pending += [operand for operand in op.operands if operand not in seen]
                seen |= {*op.operands}
        return found

    def _products(self, value: Value) -> list[Value]:
        """A value and what it is multiplied by constants to."""
        made = [value]
        for user in self.users.get(value, ()):
            if isinstance(user, Mul) and all(v is value or isinstance(v.op, Constant) for v in user.operands):
                made.append(user.result)
        return made

    def _places(self, value: Value) -> bool:
        """Whether a scalar says where a program stands: made of its index, of indices of loops, constants and
        arguments, without loads."""
        if value.type.rank:
            return False
        pending, seen, placed = [value], {value}, False
        while pending:
            current = pending.pop()
            if current in self.indices or isinstance(current.op, ProgramId | NumPrograms):
                placed = True
            elif isinstance(current.op, _PLACING):
                pending += [operand for operand in current.op.operands if operand not in seen]
                seen |= {*current.op.operands}
        return placed

    def _rounds_up(self, user: Op) -> bool:
        """Whether a sum is divided next: the first half of a division that rounds up."""
        return isinstance(user, Add | Sub) and any(isinstance(op, IntDiv) for op in self.users.get(user.result, ()))
