"""The rule that picks one of a cover's configurations for the dims of a launch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..codec import JsonObject
from .answer import Cover
from .table import Shape


@dataclass(frozen=True)
class Leaf:
    """``config``: place among the rule's configurations; ``shapes``: how many measured shapes end here."""

    config: int
    shapes: int


@dataclass(frozen=True)
class SizeSplit:
    """``below`` where ``dim <= most``, else ``above``."""

    dim: str
    most: int
    below: Branch
    above: Branch


Branch: TypeAlias = Leaf | SizeSplit


@dataclass(frozen=True)
class DispatchRule:
    """A decision tree over dims, or, where ``tree`` is None, the measured shape that is nearest: with the least sum of
    squared log2 ratios of the dims, of equally near ones the first. ``configs``: those that it picks from;
    ``nearest``: shapes and places among them."""

    dims: tuple[str, ...]
    configs: tuple[Mapping[str, object], ...]
    tree: Branch | None
    nearest: tuple[tuple[Shape, int], ...] = ()

    def pick(self, shape: Shape) -> int:
        """The place of the configuration for a shape. Raises KeyError where a dim is missing."""
        node = self.tree
        if node is None:
            return min(self.nearest, key=lambda known: _distance(known[0], shape))[1]
        while isinstance(node, SizeSplit):
            node = node.below if shape[node.dim] <= node.most else node.above
        return node.config

    def losses(self, cover: Cover) -> list[float]:
        """The loss at every shape of the cover whose configurations the rule picks from, in order."""
        found = (cover.table.loss(s, cover.configs[self.pick(shape)]) for s, shape in enumerate(cover.table.shapes))
        return [math.inf if loss is None else loss for loss in found]

    def to_json(self) -> JsonObject:
        """``configs``, and ``tree`` (nested objects with dim, most, below, above, or the place of a configuration) or
        ``nearest``."""
        head: JsonObject = {"dims": list(self.dims), "configs": [dict(config) for config in self.configs]}
        if self.tree is not None:
            return {**head, "tree": _tree_json(self.tree)}
        return {**head, "nearest": [{"shape": dict(shape), "config": config} for shape, config in self.nearest]}


def dispatch_tree(cover: Cover) -> DispatchRule:
    """A decision tree that gives every measured shape a configuration within the tolerance. It splits where most shapes
    on both sides can have one configuration each; thresholds are the geometric means of neighbouring sizes."""
    places = {config: place for place, config in enumerate(cover.configs)}
    allowed = {shape: frozenset(cover.acceptable(shape)) for shape in range(len(cover.table.shapes))}
    tree = _grow(cover, sorted(allowed), allowed, places)
    return DispatchRule(_dims(cover), _configs(cover), tree)


def dispatch_nearest(cover: Cover) -> DispatchRule:
    """The nearest measured shape, with the configuration that the cover chose for it."""
    places = {config: place for place, config in enumerate(cover.configs)}
    nearest = tuple((cover.table.shapes[served.shape], places[served.chosen]) for served in cover.served)
    return DispatchRule(_dims(cover), _configs(cover), None, nearest)


def describe_tree(node: Branch, indent: str = "") -> list[str]:
    """The tree in lines for people."""
    if isinstance(node, Leaf):
        return [f"{indent}#{node.config}   ({node.shapes} shapes)"]
    inner = indent + "  "
    return [
        f"{indent}{node.dim} <= {node.most}:",
        *describe_tree(node.below, inner),
        f"{indent}{node.dim} > {node.most}:",
        *describe_tree(node.above, inner),
    ]


def _dims(cover: Cover) -> tuple[str, ...]:
    return tuple(cover.table.shapes[0])


def _configs(cover: Cover) -> tuple[Mapping[str, object], ...]:
    return tuple(dict(cover.table.configs[config]) for config in cover.configs)


def _grow(
    cover: Cover, shapes: Sequence[int], allowed: Mapping[int, frozenset[int]], places: Mapping[int, int]
) -> Branch:
    common = frozenset.intersection(*(allowed[shape] for shape in shapes))
    if common:
        return Leaf(places[min(common, key=lambda config: (_loss_at(cover, shapes, config), config))], len(shapes))
    splits = []
    for number, dim in enumerate(_dims(cover)):
        sizes = sorted({cover.table.shapes[shape][dim] for shape in shapes})
        for low, high in zip(sizes, sizes[1:], strict=False):
            below = [shape for shape in shapes if cover.table.shapes[shape][dim] <= low]
            above = [shape for shape in shapes if cover.table.shapes[shape][dim] > low]
            agreed = _agreed(below, allowed) + _agreed(above, allowed)
            splits.append((agreed, min(len(below), len(above)), high / low, -number, dim, low, high))
    *_, dim, low, high = max(splits)
    below = [shape for shape in shapes if cover.table.shapes[shape][dim] <= low]
    above = [shape for shape in shapes if cover.table.shapes[shape][dim] > low]
    between = min(max(math.isqrt(low * high), low), high - 1)
    return SizeSplit(dim, between, _grow(cover, below, allowed, places), _grow(cover, above, allowed, places))


def _agreed(shapes: Sequence[int], allowed: Mapping[int, frozenset[int]]) -> int:
    """The most shapes that can have one configuration."""
    counts: dict[int, int] = {}
    for shape in shapes:
        for config in allowed[shape]:
            counts[config] = counts.get(config, 0) + 1
    return max(counts.values())


def _loss_at(cover: Cover, shapes: Sequence[int], config: int) -> float:
    losses = ((cover.table.weights[shape], cover.table.loss(shape, config)) for shape in shapes)
    return sum(weight * loss for weight, loss in losses if loss is not None)


def _distance(known: Shape, shape: Shape) -> float:
    return sum(math.log2(known[dim] / shape[dim]) ** 2 for dim in known)


def _tree_json(node: Branch) -> JsonObject | int:
    if isinstance(node, Leaf):
        return node.config
    return {"dim": node.dim, "most": node.most, "below": _tree_json(node.below), "above": _tree_json(node.above)}
