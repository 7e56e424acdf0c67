"""Sizes of tiles as expressions over parameters: what limits of registers and shared memory are about."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from deuteron.compiler.ir.core import Function, Op, Value
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.elementwise import Bitcast, Cast
from deuteron.compiler.tile.matmul import Dot
from deuteron.compiler.tile.memory import Load
from deuteron.compiler.tile.shape import Permute, Reshape

from .roles import FoundRole


@dataclass(frozen=True, order=True)
class TileSize:
    """``factor`` times the product of ``names``, parameters or expressions over dims: elements of a tile. ``elements``:
    how many these are at the base values."""

    names: tuple[str, ...]
    factor: int
    elements: int

    def __str__(self) -> str:
        parts = [*([str(self.factor)] if self.factor != 1 or not self.names else []), *self.names]
        return " * ".join(parts)

    def within(self, other: TileSize) -> bool:
        """Whether it is never larger than ``other``, parameters being at least 1."""
        left = list(other.names)
        for name in self.names:
            if name not in left:
                return False
            left.remove(name)
        return self.factor <= other.factor


@dataclass(frozen=True)
class Tiles:
    """``products``: results of tl.dot. ``largest``: tiles that no other one contains. ``fetched``: of each loop the
    tiles that it loads for products, with the bytes of an element; loops that load the same count once. ``operands``:
    both sides of each product, with those bytes. ``values``: parameters for which ``elements`` of each hold."""

    products: tuple[TileSize, ...]
    largest: tuple[TileSize, ...]
    fetched: tuple[tuple[tuple[TileSize, int], ...], ...]
    operands: tuple[tuple[TileSize, TileSize, int], ...]
    values: Mapping[str, object]


def tiles_of(
    function: Function, roles: Mapping[str, FoundRole], labels: Mapping[str, str | None], values: Mapping[str, object]
) -> Tiles:
    """The tiles of a kernel compiled for ``values``, over the parameters whose influence on it is known. ``labels``:
    what parameters are called in sizes, None for those that are fixed."""
    known = [(name, found.influence) for name, found in roles.items() if labels[name] and not found.influence.rewritten]
    ops = list(function.walk())
    numbers = {op: number for number, op in enumerate(ops)}

    def size(value: Value) -> TileSize:
        names: list[str] = []
        owner = value.op
        for axis in range(value.type.rank):
            here = (numbers[owner], value.index, axis) if owner is not None else None
            names += [name for name, changes in known if here in changes.axes]
        elements = math.prod(value.type.shape)
        factor = max(1, elements // math.prod(int(str(values[name])) for name in names))
        return TileSize(tuple(str(labels[name]) for name in names), factor, elements)

    made = {size(result) for op in ops for result in op.results if result.type.rank}
    products = {size(op.result) for op in ops if isinstance(op, Dot)}
    fetched = {
        tuple((size(load.result), load.result.type.elem.bytes) for load in loads) for loads in _fetched(function)
    }
    operands = {(size(op.a), size(op.b), op.a.type.elem.bytes): None for op in ops if isinstance(op, Dot)}
    return Tiles(_outermost(products), _outermost(made), tuple(sorted(fetched)), tuple(operands), values)


def _outermost(sizes: set[TileSize]) -> tuple[TileSize, ...]:
    return tuple(sorted(s for s in sizes if not any(s != other and s.within(other) for other in sizes)))


def _fetched(function: Function) -> list[list[Load]]:
    """The loads of each loop, not of those inside it, whose results are operands of products; in program order."""
    found: dict[Load, For] = {}
    for loop in (op for op in function.walk() if isinstance(op, For)):
        inside = list(loop.body.walk())
        operands = [_loaded(operand) for op in inside if isinstance(op, Dot) for operand in (op.a, op.b)]
        found |= {op: loop for op in inside if isinstance(op, Load) and op in operands}
    return [[load for load, its in found.items() if its is loop] for loop in dict.fromkeys(found.values())]


def _loaded(value: Value) -> Load | None:
    op: Op | None = value.op
    while isinstance(op, Cast | Bitcast | Permute | Reshape):
        op = op.x.op
    return op if isinstance(op, Load) else None


def powers(least: int, most: int) -> Iterator[int]:
    """Powers of two from ``least`` to ``most``."""
    size = 1 << max(0, least - 1).bit_length()
    while size <= most:
        yield size
        size *= 2
