"""Growing a decision tree over sizes: few comparisons that lose little at the measured shapes and between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import NamedTuple, TypeAlias

from .answer import Cover
from .table import Shape

#: A loss above this is no worse: the time is twice the best then.
_MOST_LOSS = 1.0
#: Expected losses count together as this share of the measured ones. Of products, softmaxes and attentions on an H200,
#: halves that were left out lost about as little with five times as much.
_SHARE = 0.2
#: An expected mean loss that is worth no further comparison, where the tolerance is less.
_LEAST_LOSS = 0.01
#: Dims above which products of three and more are left out, but for that of all.
_FEW_DIMS = 4


@dataclass(frozen=True)
class Leaf:
    """``config``: place among the rule's configurations; ``shapes``: how many measured shapes end here."""

    config: int
    shapes: int


@dataclass(frozen=True)
class SizeSplit:
    """``below`` where the product of ``dims`` is at ``most`` that, else ``above``."""

    dims: tuple[str, ...]
    most: int
    below: Branch
    above: Branch

    def size(self, shape: Shape) -> int:
        """What is compared. Raises KeyError where a dim is missing."""
        return _product(shape, self.dims)

    @property
    def text(self) -> str:
        """The same as an expression."""
        return " * ".join(self.dims)


Branch: TypeAlias = Leaf | SizeSplit


class ExpectedLosses(NamedTuple):
    """Losses of a cover's configurations, by place, at a shape that was not measured: 0.03 is 3 % slower than the best
    of them there."""

    shape: Shape
    losses: tuple[float, ...]


@dataclass(frozen=True)
class _Point:
    """A shape with the weighted losses of the configurations; weights of the measured ones are 1 together. ``allowed``:
    those within the tolerance where the shape was measured, else None."""

    shape: Shape
    weight: float
    losses: tuple[float, ...]
    allowed: frozenset[int] | None


class _Split(NamedTuple):
    """A way to split points: orders by the loss that is left, then by how even and how clear the split is."""

    loss: float
    unevenness: int
    nearness: float
    feature: int
    dims: tuple[str, ...]
    most: int


def grow_tree(cover: Cover, dims: tuple[str, ...], between: Sequence[ExpectedLosses]) -> Branch:
    """The tree of a cover's configurations over ``dims``."""
    points = [*_measured(cover), *_expected(cover, between)]
    worth = max(cover.tolerance, _LEAST_LOSS) if between else math.inf
    return _grow(points, _features(dims), worth)


def _measured(cover: Cover) -> Iterator[_Point]:
    places = {config: place for place, config in enumerate(cover.configs)}
    total = sum(cover.table.weights)
    for number, (shape, counted) in enumerate(zip(cover.table.shapes, cover.table.weights, strict=True)):
        weight = counted / total
        losses = (cover.table.loss(number, config) for config in cover.configs)
        weighed = tuple(weight * (_MOST_LOSS if loss is None else min(loss, _MOST_LOSS)) for loss in losses)
        yield _Point(shape, weight, weighed, frozenset(places[config] for config in cover.acceptable(number)))


def _expected(cover: Cover, between: Sequence[ExpectedLosses]) -> Iterator[_Point]:
    for shape, losses in between:
        weight = _SHARE / len(between)
        yield _Point(shape, weight, tuple(weight * min(loss, _MOST_LOSS) for loss in losses), None)


def _features(dims: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Products of dims that may be compared: how much work a launch has, and how many programs, grow with these."""
    counts = range(1, len(dims) + 1) if len(dims) <= _FEW_DIMS else (1, 2, len(dims))
    return [chosen for count in counts for chosen in combinations(dims, count)]


def _grow(points: Sequence[_Point], features: Sequence[tuple[str, ...]], worth: float) -> Branch:
    costs = [math.fsum(losses) for losses in zip(*(point.losses for point in points), strict=True)]
    measured = [point.allowed for point in points if point.allowed is not None]
    common = frozenset.intersection(frozenset(range(len(costs))), *measured)
    ranked = sorted(common, key=lambda config: (costs[config], config))
    cheap = ranked and (not measured or costs[ranked[0]] <= worth * sum(point.weight for point in points))
    splits = [] if cheap else list(_splits(points, features))
    if not splits:
        return Leaf(ranked[0], len(measured))
    split = min(splits)
    below = [point for point in points if _product(point.shape, split.dims) <= split.most]
    above = [point for point in points if _product(point.shape, split.dims) > split.most]
    return SizeSplit(split.dims, split.most, _grow(below, features, worth), _grow(above, features, worth))


def _splits(points: Sequence[_Point], features: Sequence[tuple[str, ...]]) -> Iterator[_Split]:
    for number, dims in enumerate(features):
        ordered = sorted(((_product(point.shape, dims), point) for point in points), key=lambda sized: sized[0])
        left = list(_running([point for _, point in ordered]))
        right = list(_running([point for _, point in reversed(ordered)]))[::-1]
        for place, ((low, _), (high, _)) in enumerate(pairwise(ordered)):
            if low < high:
                most = min(max(math.isqrt(low * high), low), high - 1)
                # Sums in another order differ in their last bits: these are no reason.
                lost = round(left[place] + right[place + 1], 12)
                few = min(place + 1, len(points) - place - 1)
                yield _Split(lost, -few, low / high, number, dims, most)


def _running(points: Sequence[_Point]) -> Iterator[float]:
    """The loss of the first one, two, ... points with the one configuration that is best for them."""
    sums = [0.0] * len(points[0].losses)
    for point in points:
        sums = [total + loss for total, loss in zip(sums, point.losses, strict=True)]
        yield min(sums)


def _product(shape: Shape, dims: Sequence[str]) -> int:
    return math.prod(shape[dim] for dim in dims)
