"""The rule that picks one of a cover's configurations for the dims of a launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..codec import JsonObject
from ..space import Configuration
from .answer import Cover
from .table import Shape
from .tree import Branch, ExpectedLosses, Leaf, grow_tree


@dataclass(frozen=True)
class DispatchRule:
    """A decision tree over products of dims, or, where ``tree`` is None, the measured shape that is nearest: with the
    least sum of squared log2 ratios of the dims, of equally near ones the first. ``configs``: those that it picks from;
    ``nearest``: shapes and places among them."""

    dims: tuple[str, ...]
    configs: tuple[Configuration, ...]
    tree: Branch | None
    nearest: tuple[tuple[Shape, int], ...] = ()

    def pick(self, shape: Shape) -> int:
        """The place of the configuration for a shape. Raises KeyError where a dim is missing."""
        node = self.tree
        if node is None:
            return min(self.nearest, key=lambda known: _distance(known[0], shape))[1]
        while not isinstance(node, Leaf):
            node = node.below if node.size(shape) <= node.most else node.above
        return node.config

    def losses(self, cover: Cover) -> list[float]:
        """The loss at every shape of the cover whose configurations the rule picks from, in order."""
        found = (cover.table.loss(s, cover.configs[self.pick(shape)]) for s, shape in enumerate(cover.table.shapes))
        return [math.inf if loss is None else loss for loss in found]

    def to_json(self) -> JsonObject:
        """``configs``, and ``tree`` (nested objects with the dims whose product counts, most, below, above, or the
        place of a configuration) or ``nearest``."""
        head: JsonObject = {"dims": list(self.dims), "configs": [dict(config) for config in self.configs]}
        if self.tree is not None:
            return {**head, "tree": _tree_json(self.tree)}
        return {**head, "nearest": [{"shape": dict(shape), "config": config} for shape, config in self.nearest]}


def dispatch_tree(cover: Cover, between: Sequence[ExpectedLosses] = ()) -> DispatchRule:
    """A decision tree that gives every measured shape a configuration within the tolerance. Which one that is, and
    where it splits, follows from the losses there and from those that are expected ``between`` them, by place among the
    cover's configurations."""
    return DispatchRule(_dims(cover), _configs(cover), grow_tree(cover, _dims(cover), between))


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
        f"{indent}{node.text} <= {node.most}:",
        *describe_tree(node.below, inner),
        f"{indent}{node.text} > {node.most}:",
        *describe_tree(node.above, inner),
    ]


def _dims(cover: Cover) -> tuple[str, ...]:
    return tuple(cover.table.shapes[0])


def _configs(cover: Cover) -> tuple[Configuration, ...]:
    return tuple(dict(cover.table.configs[config]) for config in cover.configs)


def _distance(known: Shape, shape: Shape) -> float:
    return sum(math.log2(known[dim] / shape[dim]) ** 2 for dim in known)


def _tree_json(node: Branch) -> JsonObject | int:
    if isinstance(node, Leaf):
        return node.config
    return {
        "dims": list(node.dims),
        "most": node.most,
        "below": _tree_json(node.below),
        "above": _tree_json(node.above),
    }
