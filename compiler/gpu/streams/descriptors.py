"""Which boxes the copy engine can bring, and the TMA descriptors that a launch has to make for them.

A descriptor is made on the host, so base, sizes and strides must follow from the kernel's arguments. Source of the
conditions: CUDA driver API, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...hardware import BOX_ALIGNMENT, TENSOR_MAP_ALIGNMENT
from ...ir.core import Function, Value
from ...ir.types import Pointer, Scalar
from ...launch_recipe import Guard, HostExpression, TensorMap
from ...tile import elementwise as ew
from ...tile.axis import AxisFacts, analyze
from ...tile.blocks import BlockLoad, BlockStore
from ...tile.control import For
from ...tile.program import rows_of_groups

#: Dimensions of an array, and elements along one of a box, at most.
MOST_DIMENSIONS = 5
MOST_BOX = 256
#: Of the coordinates that the copy engine takes.
INDEX_BITS = 32
#: Extent of a dimension that is not checked: more than any index.
UNBOUNDED = 1 << 31
#: Rows after which a swizzle repeats. The copy engine swizzles by the bits of addresses, layouts by rows: of panels and
#: slots that follow each other with fewer rows than these, only the first would be where its layout says (PTX ISA,
#: "Tensor swizzling modes").
SWIZZLE_ROWS = 8

_OPERATIONS: dict[type[ew.Binary], str] = {ew.Add: "+", ew.Mul: "*", ew.Max: "max"}


class Descriptors:
    """The descriptors of one function, numbered in order of use; equal ones are made once.

    ``guards``: what they need of the arguments; no descriptor needs one of ``denied``.
    """

    def __init__(self, function: Function, facts: AxisFacts, denied: frozenset[Guard] = frozenset()) -> None:
        self.parameters = {p.value: p.name for p in function.parameters}
        self.denied = denied
        self.maps: list[TensorMap] = []
        self._facts = facts
        self._hopeful = analyze(function, self.parameters.keys() | rows_of_groups(function))
        self._promises: dict[Guard, None] = {}
        loops = function.ops_of(For)
        self._bounds = {loop.body.args[0]: [loop.lower, loop.step] for loop in loops}

    @property
    def guards(self) -> tuple[Guard, ...]:
        """Sizes and strides of a descriptor are positive, offsets that nothing checks are not negative, rows that are
        written end with a whole chunk, and boxes are filled along the axes for which that was asked."""
        return tuple(dict.fromkeys([*self._promises, *(guard for made in self.maps for guard in _positive(made))]))

    def add(
        self,
        op: BlockLoad | BlockStore,
        axis: int,
        swizzle: int,
        rows: int | None = None,
        filled: Sequence[int] = (),
        *,
        promised: bool = True,
    ) -> int:
        """The number of the descriptor for the boxes of ``op``, whose tile is contiguous along ``axis``; -1 if there
        can be none. ``rows``: how many of the first axis one copy moves, if not all. ``filled``: axes of the tile along
        which the array has to be as long as the box. ``promised``: strides may be promised to be multiples of 16
        bytes, where that is not known."""
        made = self._tensor_map(op, axis, swizzle, rows)
        promises = [
            self._steps_of(op, axis),
            self._signs_of(op),
            self._ends_of(op, axis),
            self._lengths_of(op, filled),
        ]
        wanted = [guard for found in promises for guard in found or ()]
        if not promised and promises[0]:
            return -1
        if made is None or None in promises or self.denied.intersection([*wanted, *_positive(made)]):
            return -1
        self._promises.update(dict.fromkeys(wanted))
        if made not in self.maps:
            self.maps.append(made)
        return self.maps.index(made)

    def _tensor_map(self, op: BlockLoad | BlockStore, axis: int, swizzle: int, rows: int | None) -> TensorMap | None:
        shape = op.result.type.shape if isinstance(op, BlockLoad) else op.value.type.shape
        shape = shape if rows is None else (rows, *shape[1:])
        base, rank = self.parameters.get(op.base), len(op.strides)
        pointee = op.base.type.elem
        if base is None or rank > MOST_DIMENSIONS or not isinstance(pointee, Pointer):
            return None
        elem = pointee.pointee
        if not isinstance(elem, Scalar) or elem.bits < 8:
            return None
        order = box_order(rank, len(shape), axis)
        facts = self._facts
        if facts[op.base].divisibility[0] % TENSOR_MAP_ALIGNMENT:
            return None
        offset = op.offsets[order[-1]]
        if facts[offset].divisibility[0] * elem.bytes % TENSOR_MAP_ALIGNMENT:
            return None
        extents = [1] * (rank - len(shape)) + list(shape)
        extents[order[-1]] = swizzle // elem.bytes if swizzle else extents[order[-1]]
        if extents[order[-1]] * elem.bytes % TENSOR_MAP_ALIGNMENT:
            return None
        if max(extents) > MOST_BOX or (swizzle and prod(extents[d] for d in order[:-1]) < SWIZZLE_ROWS):
            return None
        if prod(extents) * elem.bytes % BOX_ALIGNMENT:  # slots follow each other
            return None
        sizes = [self._host(op.sizes[d]) if op.checked[d] else UNBOUNDED for d in order]
        strides = [self._host(op.strides[d]) for d in order]
        if not all(map(_can_be_positive, [*sizes, *strides])):
            return None
        return TensorMap(
            base,
            elem.code,
            tuple(s for s in sizes if s is not None),
            tuple(s for s in strides if s is not None),
            tuple(extents[d] for d in order),
            swizzle,
        )

    def _steps_of(self, op: BlockLoad | BlockStore, axis: int) -> list[Guard] | None:
        """Promises under which rows begin at multiples of 16 bytes; None if there are none. That of an argument is
        known from its value; of a part of it, as of the columns of packed numbers, it is promised."""
        wanted: list[Guard] = []
        rank = op.result.type.rank if isinstance(op, BlockLoad) else op.value.type.rank
        contiguous = len(op.strides) - rank + axis
        elem = op.result.type.scalar if isinstance(op, BlockLoad) else op.value.type.scalar
        step = TENSOR_MAP_ALIGNMENT // elem.bytes
        for dimension, stride in enumerate(op.strides):
            if dimension == contiguous or self._facts[stride].divisibility[0] % step == 0:
                continue
            match stride.op:
                case ew.IntDiv(lhs=whole, rhs=Value(op=ew.Constant(value=parts))) if whole in self.parameters:
                    wanted.append(Guard(self.parameters[whole], "multiple", step * int(parts)))
                case _:
                    return None
        return wanted

    def _ends_of(self, op: BlockLoad | BlockStore, axis: int) -> list[Guard] | None:
        """Promises under which rows of an array that is written are multiples of 16 bytes; None if there are none. The
        copy engine writes whole chunks: where a row ends inside of one, it would write what lies behind (seen on an
        H200)."""
        if isinstance(op, BlockLoad):
            return []
        dimension, step = len(op.sizes) - op.value.type.rank + axis, TENSOR_MAP_ALIGNMENT // op.value.type.elem.bytes
        size = op.sizes[dimension]
        if not op.checked[dimension] or self._facts[size].divisibility[0] % step == 0:
            return []
        name = self.parameters.get(size)
        return None if name is None else [Guard(name, "multiple", step)]

    def _lengths_of(self, op: BlockLoad | BlockStore, filled: Sequence[int]) -> list[Guard] | None:
        """Promises under which boxes are filled along these axes; None if there are none."""
        wanted: list[Guard] = []
        shape = op.result.type.shape if isinstance(op, BlockLoad) else op.value.type.shape
        for axis in filled:
            dimension = len(op.sizes) - len(shape) + axis
            size = self._host(op.sizes[dimension]) if op.checked[dimension] else UNBOUNDED
            if isinstance(size, str):
                wanted.append(Guard(size, "least", shape[axis]))
            elif not isinstance(size, int) or size < shape[axis]:
                return None
        return wanted

    def _signs_of(self, op: BlockLoad | BlockStore) -> list[Guard] | None:
        """Promises under which no offset that nothing checks is negative: the copy engine leaves out what lies before
        the array. None if there are none."""
        wanted: list[Guard] = []
        for checked, offset in zip(op.checked, op.offsets, strict=True):
            if checked or self._facts[offset].nonnegative:
                continue
            if not self._hopeful[offset].nonnegative:
                return None
            wanted += [Guard(self.parameters[p], "least", 0) for p in self._integers_in(offset, set())]
        return wanted

    def _integers_in(self, value: Value, seen: set[Value]) -> list[Value]:
        """The integer parameters that ``value`` is made of."""
        if value in seen:
            return []
        seen.add(value)
        if value in self.parameters:
            return [value] if value.type.is_integer else []
        sources = value.op.operands if value.op is not None else self._bounds.get(value, [])
        return [p for source in sources for p in self._integers_in(source, seen)]

    def _host(self, value: Value) -> HostExpression | None:
        """``value`` as the launcher computes it from the kernel's arguments."""
        if value in self.parameters:
            return self.parameters[value]
        match value.op:
            case ew.Constant() as constant:
                return int(constant.value)
            case ew.Cast() as cast if _keeps_indices(cast):
                return self._host(cast.x)
            case ew.Add() | ew.Mul() | ew.Max() as binary:
                left, right = self._host(binary.lhs), self._host(binary.rhs)
                return None if left is None or right is None else (_OPERATIONS[type(binary)], left, right)
            case ew.IntDiv(lhs=whole, rhs=Value(op=ew.Constant(value=parts))) if parts > 0:
                dividend = self._host(whole)
                return None if dividend is None else ("//", dividend, int(parts))
            case _:
                return None


def _keeps_indices(cast: ew.Cast) -> bool:
    """Whether an integer is the same afterwards, if it is one of 32 bits."""
    source, result = cast.x.type.scalar, cast.result.type.scalar
    return source.is_integer and result.is_integer and result.bits >= min(source.bits, INDEX_BITS)


def _positive(made: TensorMap) -> list[Guard]:
    """What makes all sizes and strides positive."""
    return [guard for e in (*made.sizes, *made.strides) for guard in _at_least(e, 1)]


def _at_least(expression: HostExpression, value: int) -> list[Guard]:
    """Promises under which ``expression`` is not below ``value``, a positive number: so are sums and products of
    positive numbers of which one is not, and quotients of what is as many times larger as their divisor says."""
    match expression:
        case ("//", dividend, int(parts)):
            return _at_least(dividend, value * parts)
        case (_, left, right):
            return _at_least(left, value) + _at_least(right, value)
        case str(name):
            return [Guard(name, "least", value)]
        case _:
            return []


def _can_be_positive(expression: HostExpression | None) -> bool:
    """Whether ``expression`` is positive where its names are: none of its numbers is below 1."""
    if isinstance(expression, tuple):
        return _can_be_positive(expression[1]) and _can_be_positive(expression[2])
    return expression > 0 if isinstance(expression, int) else expression is not None


def box_order(rank: int, tile_rank: int, axis: int) -> list[int]:
    """The dimensions of the array in the order of its descriptor: the contiguous one, ``axis`` of the tile, last."""
    last = rank - tile_rank + axis
    return [d for d in range(rank) if d != last] + [last]
