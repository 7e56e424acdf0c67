"""The difference of two profiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from .columns import Column
from .frames import NAN, Number, Numbers
from .view import Side, View

Pair = tuple[int, int]  # a frame on the left and its like on the right; -1 where there is none


def subtract(left: View, right: View) -> View:
    """``left`` minus ``right``, two views of the same metrics.

    Frames meet by their path, whatever their names are shortened to; of equal siblings the second meets the second. A
    value on the left only stays as it is, one on the right only leaves none (nan), as in Proton. What adds up (``own``
    and ``total``) counts as 0 where it is missing.
    """
    pairs, parents, depths = _paired(left, right)
    sides = [_side(pair) for pair in pairs]
    ours = [left.names[a] if a >= 0 else right.names[b] for a, b in pairs]
    before = [_spread(column, [b for _, b in pairs]) for column in right.columns]
    after = [_spread(column, [a for a, _ in pairs]) for column in left.columns]
    columns = [_difference(mine, other) for mine, other in zip(after, before, strict=True)]
    origin = [left.origin[a] if a >= 0 else -1 for a, _ in pairs]
    return View(left.tree, origin, ours, parents, depths, columns, sides, after, before)


def _paired(left: View, right: View) -> tuple[list[Pair], list[int], list[int]]:
    """The frames of either view that meet, in the order of the tree, with parents and depths."""
    ours, theirs = left.children(), right.children()
    pairs: list[Pair] = []
    parents: list[int] = []
    depths: list[int] = []
    top = _meet(left, _roots(left), right, _roots(right))
    pending = [(pair, -1, 0) for pair in reversed(top)]
    while pending:
        (a, b), parent, depth = pending.pop()
        index = len(pairs)
        pairs.append((a, b))
        parents.append(parent)
        depths.append(depth)
        below = _meet(left, ours[a] if a >= 0 else (), right, theirs[b] if b >= 0 else ())
        pending.extend((pair, index, depth + 1) for pair in reversed(below))
    return pairs, parents, depths


def _roots(view: View) -> list[int]:
    return [index for index, parent in enumerate(view.parents) if parent < 0]


def _meet(left: View, mine: Sequence[int], right: View, other: Sequence[int]) -> list[Pair]:
    """Siblings of both sides by name, in its order; the second of two equal names meets the second."""
    if not mine and not other:
        return []
    ours, theirs = _numbered(left, mine), _numbered(right, other)
    return [(ours.get(key, -1), theirs.get(key, -1)) for key in sorted(ours.keys() | theirs.keys())]


def _numbered(view: View, siblings: Sequence[int]) -> dict[tuple[str, int], int]:
    numbered: dict[tuple[str, int], int] = {}
    seen: Counter[str] = Counter()
    for index in siblings:
        name = view.tree.names[view.origin[index]]
        key = name, 0
        if key in numbered:
            seen[name] += 1
            key = name, seen[name]
        numbered[key] = index
    return numbered


def _side(pair: Pair) -> Side:
    if pair[0] < 0:
        return Side.RIGHT
    return Side.LEFT if pair[1] < 0 else Side.BOTH


def _spread(column: Column, rows: Sequence[int]) -> Column:
    """The column with a row for each of ``rows``, nan for -1."""

    def spread(numbers: Numbers) -> Numbers:
        return [numbers[row] if row >= 0 else NAN for row in rows]

    own = None if column.own is None else spread(column.own)
    return replace(column, values=spread(column.values), own=own, total=spread(column.total) if column.total else None)


def _difference(ours: Column, theirs: Column) -> Column:
    values = []
    for mine, other in zip(ours.values, theirs.values, strict=True):
        values.append(mine if other != other else mine - other)
    if ours.own is None or theirs.own is None or ours.total is None or theirs.total is None:
        return replace(ours, values=values, own=None, total=None)
    own, total = _minus(ours.own, theirs.own), _minus(ours.total, theirs.total)
    return replace(ours, values=values, own=own, total=total)


def _minus(ours: Numbers, theirs: Numbers) -> Numbers:
    return [_less(mine, other) for mine, other in zip(ours, theirs, strict=True)]


def _less(mine: Number, other: Number) -> Number:
    """``mine - other``, where a missing one counts as 0 if the other is there."""
    if other != other:
        return mine
    return -other if mine != mine else mine - other
