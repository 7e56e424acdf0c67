"""Regression trees as plain arrays, refused where they are no trees."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias

import msgspec

from ..codec import Document, Finite

if TYPE_CHECKING:
    import numpy as np

#: What a forest may have at most: it comes from files and services, and is evaluated at launches.
MOST_TREES, MOST_NODES, MOST_DEPTH = 1000, 50_000, 32

#: What a leaf may add: sums over all trees stay finite.
LeafValue: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]


class Forest(Document, frozen=True, dict=True):
    """The sum of trees. All nodes of all trees are in one row of arrays, each tree in one piece, its root first.

    Node ``n`` goes to ``left[n]`` where ``feature[n]`` of a row is at most ``threshold[n]``, else to ``right[n]``.
    A leaf has itself as both and adds ``value[n]``; the values of other nodes are 0. Children come after their parent,
    so that no walk is endless, and have one parent. ``roots``: where the trees begin, ascending.
    """

    noun: ClassVar[str] = "forest"

    roots: tuple[int, ...]
    feature: tuple[int, ...]
    threshold: tuple[Finite, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    value: tuple[LeafValue, ...]

    def __post_init__(self) -> None:
        count = len(self.feature)
        sizes = {name: len(getattr(self, name)) for name in ("threshold", "left", "right", "value")}
        for name, size in sizes.items():
            if size != count:
                raise ValueError(f"{name} has {size} entries, feature {count}")
        if not 0 < len(self.roots) <= MOST_TREES or not 0 < count <= MOST_NODES:
            raise ValueError(
                f"{len(self.roots)} trees of {count} nodes; 1 to {MOST_TREES} of at most {MOST_NODES} can be read"
            )
        if self.roots[0] != 0 or any(a >= b for a, b in zip(self.roots, (*self.roots[1:], count), strict=True)):
            raise ValueError("roots do not ascend from 0 within the nodes")
        self._check_nodes()

    def _check_nodes(self) -> None:
        depths = self._depths
        for node, (left, right, feature) in enumerate(zip(self.left, self.right, self.feature, strict=True)):
            if feature < 0:
                raise ValueError(f"node {node} splits by feature {feature}")
            if depths[node] < 0:
                raise ValueError(f"node {node} belongs to no tree")
            if left != node and self.value[node] != 0:
                raise ValueError(f"node {node} is no leaf and has a value")
            if right == node != left:
                raise ValueError(f"node {node} is its own child")
        if max(depths) > MOST_DEPTH:
            raise ValueError(f"a tree is {max(depths)} nodes deep; {MOST_DEPTH} can be read")

    @cached_property
    def _depths(self) -> tuple[int, ...]:
        """Of each node; -1 of those that no root leads to. Raises ValueError for children that cannot be."""
        count, roots = len(self.feature), set(self.roots)
        depths = [0 if node in roots else -1 for node in range(count)]
        ends = iter((*self.roots[1:], count))
        end = 0
        for node in range(count):
            end = next(ends) if node in roots else end
            if self.left[node] == node:
                if self.right[node] != node:
                    raise ValueError(f"node {node} is its own child")
                continue
            for child in (self.left[node], self.right[node]):
                if not node < child < end:
                    raise ValueError(f"node {node} has the child {child}; one from {node + 1} to {end - 1} is possible")
                if depths[child] >= 0:
                    raise ValueError(f"node {child} has two parents")
                depths[child] = depths[node] + 1 if depths[node] >= 0 else -1
        return tuple(depths)

    @property
    def features(self) -> int:
        """How many features rows need at least."""
        return max(self.feature) + 1

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """The sum over the trees for each row; ``rows`` is [rows, features], f64, and so is the result, [rows]."""
        import numpy as np

        feature, threshold, left, right, value, roots = self._arrays
        count = rows.shape[0]
        node = np.repeat(roots, count)
        # Rows lie one after the other, so that a feature of a row is one index away.
        flat, start = rows.ravel(), np.tile(np.arange(count) * rows.shape[1], len(roots))
        for _ in range(max(self._depths)):
            below = flat[start + feature[node]] <= threshold[node]
            node = np.where(below, left[node], right[node])
        total: np.ndarray = value[node].reshape(len(roots), count).sum(axis=0)
        return total

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        import numpy as np

        whole = (self.feature, self.left, self.right, self.roots)
        feature, left, right, roots = (np.asarray(values, dtype=np.int64) for values in whole)
        return feature, np.asarray(self.threshold), left, right, np.asarray(self.value), roots
