"""What the combining region of a reduction does, where that is one of the few things that hardware does for all lanes
of a warp at once, and whether it gives the same bits whichever of two items is the left one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import isnan, nan
from typing import Literal

from ...ir.core import Block, Op, Value
from ...tile.elementwise import Add, And, Compare, Max, Min, Mul, Not, Or, Select, Xor
from ...tile.passes.numbers import Number, evaluate

Extreme = Literal["min", "max"]
Kind = Literal["add", "and", "or", "xor", "min", "max"]

_KINDS: dict[type[Op], Kind] = {Add: "add", And: "and", Or: "or", Xor: "xor", Min: "min", Max: "max"}


@dataclass(frozen=True, slots=True)
class Sole:
    """One operand, to which this is done; ``propagate_nan`` is that of extrema."""

    kind: Kind
    propagate_nan: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """Of two pairs of a value and an integer the one with the extreme value stays, of equal values that with the
    smaller integer. A number stays before NaN."""

    extreme: Extreme


def what_it_does(region: Block) -> Sole | Placed | None:
    """What ``region`` does; None where it is nothing of these."""
    return _sole(region) if len(region.args) == 2 else _placed(region)


def _sole(region: Block) -> Sole | None:
    end = region.terminator
    op = end.operands[0].op if end is not None else None
    if not isinstance(op, Add | And | Or | Xor | Min | Max) or {op.lhs, op.rhs} != {*region.args}:
        return None
    return Sole(_KINDS[type(op)], isinstance(op, Min | Max) and op.propagate_nan)


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    value: float
    place: int


#: The value or the place of a pair, by its name.
_Part = tuple[_Pair, str]


def _placed(region: Block) -> Placed | None:
    """A region that only compares and chooses is known by what it chooses in every case: a value may be less, equal,
    greater or NaN, an integer less, equal or greater."""
    if len(region.args) != 4 or not region.args[1].type.is_integer:
        return None
    values = (0.0, 1.0, nan) if region.args[0].type.is_float else (0.0, 1.0)
    pairs = [_Pair(value, place) for value, place in product(values, (0, 1))]
    cases = [(left, right) for left, right in product(pairs, pairs) if left is not right]
    extremes: tuple[Extreme, Extreme] = ("min", "max")
    for extreme in extremes:
        if all(_is_right(region, extreme, left, right) for left, right in cases):
            return Placed(extreme)
    return None


def _is_right(region: Block, extreme: Extreme, left: _Pair, right: _Pair) -> bool:
    """Whether of two pairs that differ the one stays that has to. Where it hangs on their order whether NaN stays, the
    program says nothing about it."""
    stays = _stays(region, left, right)
    if stays is None:
        return False
    if isnan(left.value) or isnan(right.value):
        return stays is _first(extreme, left, right) or _stays(region, right, left) is not stays
    return stays is _first(extreme, left, right)


def _first(extreme: Extreme, left: _Pair, right: _Pair) -> _Pair:
    if isnan(left.value) != isnan(right.value):
        return right if isnan(left.value) else left
    if left.value == right.value or isnan(left.value):
        return left if left.place < right.place else right
    return left if (left.value > right.value) == (extreme == "max") else right


def _stays(region: Block, left: _Pair, right: _Pair) -> _Pair | None:
    """The pair of which ``region`` yields both parts; None where it does more than compare and choose."""
    parts = ((left, "value"), (left, "place"), (right, "value"), (right, "place"))
    known: dict[Value, _Part | Number] = dict(zip(region.args, parts, strict=True))
    for op in region.ops:
        if op is region.terminator:
            continue
        made = _evaluate(op, [known[value] for value in op.operands if value in known])
        if made is None:
            return None
        known[op.results[0]] = made
    end = region.terminator
    found = [known.get(value) for value in end.operands] if end is not None else []
    return next((pair for pair in (left, right) if found == [(pair, "value"), (pair, "place")]), None)


def _evaluate(op: Op, operands: list[_Part | Number]) -> _Part | Number | None:
    """What a comparison or a choice gives; None for anything else, such as arithmetic with a part of a pair."""
    numbers = [operand for operand in operands if not isinstance(operand, tuple)]
    match op:
        case Select() if len(operands) == 3:
            condition, yes, no = operands
            return yes if condition else no
        case Compare() if len(operands) == 2:
            return evaluate(op, [getattr(*o) if isinstance(o, tuple) else o for o in operands])
        case Not() | And() | Or() | Xor() if len(numbers) == len(op.operands):
            return evaluate(op, numbers)
    return None


def rounds_alike(region: Block) -> bool:
    """Whether a commutative ``region`` gives the same bits when its two items change places: it computes the same
    floats in either order."""
    if any(op.blocks for op in region.ops):
        return False
    numbers: dict[object, int] = {}
    left, right = region.args[: len(region.args) // 2], region.args[len(region.args) // 2 :]
    return _floats(region, [*left, *right], numbers) == _floats(region, [*right, *left], numbers)


def _floats(region: Block, args: Sequence[Value], numbers: dict[object, int]) -> set[int]:
    """The floats that ``region`` computes of ``args``, by number, which computations share that give the same bits."""
    known: dict[Value, int] = {value: numbers.setdefault(place, len(numbers)) for place, value in enumerate(args)}
    found = set()
    for op in region.ops:
        operands = tuple(known.get(value, value) for value in op.operands)
        commutes = isinstance(op, Add | Mul | Min | Max) and not _adds_products(op)
        for place, result in enumerate(op.results):
            key = (type(op), *op.attributes.items(), frozenset(operands) if commutes else operands, place)
            known[result] = numbers.setdefault(key, len(numbers))
            if result.type.is_float and not isinstance(op, Select):
                found.add(known[result])
    return found


def _adds_products(op: Op) -> bool:
    """Of two products one becomes part of the addition, without being rounded, and nobody knows which."""
    return isinstance(op, Add) and isinstance(op.lhs.op, Mul) and isinstance(op.rhs.op, Mul)
