"""Dispatch rules that also look at shapes between the measured ones, and what a rule is worth at shapes left out."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..codec import JsonObject
from ..cover import Cover, DispatchRule, ExpectedLosses, TimeTable, dispatch_tree
from ..cover.table import Shape
from ..errors import TunerError
from ..job import shape_key
from ..prediction import Accuracy, feature_rows
from .training import LEAST_SHAPES, LearnError, grow, kernel_of_table, rows_of_table

#: Shapes between the measured ones that a tree looks at. Four times as many change no loss in its second digit.
MOST_BETWEEN = 400
#: Parts of the shapes that are left out in turn.
_PARTS = 5


@dataclass(frozen=True)
class RuleWorth:
    """What a rule gave at so many shapes that it was made without. ``unmeasured``: how many more of them it gave a
    configuration that was not measured there; ``accuracy`` is None where that was so at all."""

    shapes: int
    unmeasured: int
    accuracy: Accuracy | None

    def to_json(self) -> JsonObject:
        """Its fields, those of the accuracy among them."""
        found = self.accuracy
        means = {} if found is None else {"geomean": found.geomean, "p10": found.p10, "worst": found.worst}
        return {"shapes": self.shapes, "unmeasured": self.unmeasured, **means}

    def __str__(self) -> str:
        text = f"left out a fifth at a time, {self.shapes} shapes got {self.accuracy or 'nothing'} of the best measured"
        return text + (f"; {self.unmeasured} more got what was not measured there" if self.unmeasured else "")


def learnt_tree(cover: Cover) -> DispatchRule:
    """:func:`~..cover.dispatch_tree` with the losses that trees of the same times expect between the measured shapes.

    Raises:
        LearnError: too few shapes were measured, or configurations have different parameters.
        MissingExtra: LightGBM is not installed.
    """
    table = cover.table
    if len(cover.configs) == 1:
        return dispatch_tree(cover)
    if len(table.shapes) < LEAST_SHAPES:
        raise LearnError(f"{len(table.shapes)} shapes were measured; at least {LEAST_SHAPES} are needed")
    try:
        kernel = kernel_of_table(table)
        rows = rows_of_table(table, kernel)
    except TunerError as error:
        raise LearnError(f"configurations and shapes make no space: {error}") from error
    forest = grow(rows)
    configs = [table.configs[config] for config in cover.configs]
    between = []
    for shape in shapes_between(table.shapes):
        values = feature_rows(rows.features, kernel.space.bind(shape), kernel.grid, shape, configs)
        expected = [float(one) for one in forest.predict(values)]
        between.append(ExpectedLosses(shape, tuple(math.expm1(one - min(expected)) for one in expected)))
    return dispatch_tree(cover, between)


def shapes_between(measured: Sequence[Shape]) -> list[Shape]:
    """At most :data:`MOST_BETWEEN` shapes of sizes that were measured, and of powers of two times these up to the next
    ones, in all combinations that were not measured; where there are more, some of them, the same each time."""
    axes = {dim: list(_sizes(sorted({shape[dim] for shape in measured}))) for dim in measured[0]}
    known = {shape_key(shape) for shape in measured}
    if math.prod(map(len, axes.values())) <= MOST_BETWEEN:
        combined = [dict(zip(axes, sizes, strict=True)) for sizes in itertools.product(*axes.values())]
    else:
        drawn = random.Random(0)
        combined = [{dim: drawn.choice(sizes) for dim, sizes in axes.items()} for _ in range(MOST_BETWEEN)]
    return list({key: shape for shape in combined if (key := shape_key(shape)) not in known}.values())


def _sizes(measured: Sequence[int]) -> Iterator[int]:
    for size, following in itertools.pairwise(measured):
        while 0 < size < following:
            yield size
            size *= 2
    yield measured[-1]


def fractions_at(table: TimeTable, rule: DispatchRule, places: Sequence[int]) -> list[float]:
    """The best time over that of the rule's choice, at those shapes of a table where it was measured."""
    losses = (table.loss_of(place, rule.configs[rule.pick(table.shapes[place])]) for place in places)
    return [1 / (1 + loss) for loss in losses if loss is not None]


def left_out(table: TimeTable, make: Callable[[TimeTable], DispatchRule]) -> RuleWorth:
    """What rules of ``make`` give at each fifth of the shapes, in a fixed random order, made from the other shapes."""
    order = random.Random(0).sample(range(len(table.shapes)), len(table.shapes))
    fractions: list[float] = []
    for part in range(_PARTS):
        absent = order[part::_PARTS]
        rule = make(table.only([place for place in range(len(table.shapes)) if place not in absent]))
        fractions += fractions_at(table, rule, absent)
    accuracy = Accuracy.of(fractions) if fractions else None
    return RuleWorth(len(fractions), len(order) - len(fractions), accuracy)
