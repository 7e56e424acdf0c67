"""Items of a reduction: one partial result, a value for each operand; how two, many, or those of lanes become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import UnsupportedOp
from ...hardware import LANE_BITS
from ...ir.core import Block, Value
from ...ir.types import Element
from .combining import rounds_alike
from .convert import shared_by_shuffle, shuffle_elements, shuffle_from
from .lowering import ELEMENT_RULES, Lowering

#: One partial result: a value for each operand of the reduction.
Item = tuple[str, ...]


def combine(state: Lowering, block: Block, left: Item, right: Item, decided: Mapping[Value, str] | None = None) -> Item:
    """The combining region applied to two items. ``decided``: values of the region that are known already."""
    known: dict[Value, str] = dict(zip(block.args, (*left, *right), strict=True))
    known.update(decided or {})
    end = block.terminator
    for op in block.ops:
        if op.results and op.results[0] in known:
            continue
        element = ELEMENT_RULES.get(type(op))
        if element is not None:
            known[op.results[0]] = element(state, op, [_read(state, known, v) for v in op.operands])
        elif op is not end:
            for value, name in known.items():  # its own regions read more of them than its operands are
                state.define(value, [name])
            state.lower(op)
            known.update({r: state.scalar(r) for r in op.results})
    if end is None:
        raise UnsupportedOp("a combining region has no end")
    return tuple(_read(state, known, v) for v in end.operands)


def _read(state: Lowering, known: dict[Value, str], value: Value) -> str:
    return known[value] if value in known else state.scalar(value)


def in_trees(state: Lowering, block: Block, groups: Sequence[Sequence[Item]]) -> list[Item]:
    """What the items of each group come to: neighbours are combined, one side whole before the other begins, in all
    groups at once. So what is loaded in the order of the items is needed no longer than it takes to load as much again,
    and few registers hold sums of many."""
    count = len(groups[0])
    if count == 1:
        return [group[0] for group in groups]
    left, right = (
        in_trees(state, block, [group[part] for group in groups])
        for part in (slice(count // 2), slice(count // 2, count))
    )
    return [combine(state, block, one, other) for one, other in zip(left, right, strict=True)]


def across_lanes(
    state: Lowering, block: Block, items: list[Item], elements: list[Element], bits: Sequence[int]
) -> list[Item]:
    """The items of all lanes that differ in ``bits``, combined. One lane's left item is another's right one: where they
    round otherwise, all get what the first one has, since a branch on a number has to be the same one for all."""
    together = max(map(shared_by_shuffle, elements))
    for bit in bits:
        items = [
            item
            for first in range(0, len(items), together)
            for item in _exchange(state, block, items[first : first + together], elements, 1 << bit)
        ]
    if not bits or rounds_alike(block):
        return items
    first = state.thread_bits([0 if bit in bits else 1 << bit for bit in range(LANE_BITS)], [])
    return [
        tuple(shuffle_from(state, value, elem, first) for value, elem in zip(item, elements, strict=True))
        for item in items
    ]


def _exchange(
    state: Lowering, block: Block, items: Sequence[Item], elements: list[Element], lane_xor: int
) -> list[Item]:
    columns = [
        shuffle_elements(state, values, elem, lane_xor)
        for values, elem in zip(zip(*items, strict=True), elements, strict=True)
    ]
    others = zip(*columns, strict=True)
    return [combine(state, block, item, other) for item, other in zip(items, others, strict=True)]
