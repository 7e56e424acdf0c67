"""Which configurations to keep: as few as stay within a tolerance, or so many with the smallest loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .set_cover import MOST_NODES, FoundCover, has_cover, smallest_cover
from .table import CoverError, TimeTable


@dataclass(frozen=True)
class Served:
    """What a shape gets: ``shape``, ``best`` and ``chosen`` are places in the table; ``loss``: of the chosen one over
    the best."""

    shape: int
    best: int
    chosen: int
    loss: float


@dataclass(frozen=True)
class Cover:
    """Configurations that serve all shapes of a table.

    ``tolerance``: the loss that none exceeds. ``least``: no set within the tolerance has fewer configurations; where it
    has so many it is a smallest one. ``proven``: no set of its size has a smaller weighted mean loss. ``missing``:
    pairs of a shape and a configuration that were not measured, of configurations that are chosen or are the best of a
    shape: such a pair counts as not within the tolerance.
    """

    table: TimeTable
    configs: tuple[int, ...]
    served: tuple[Served, ...]
    tolerance: float
    least: int
    proven: bool
    missing: tuple[tuple[int, int], ...]

    @property
    def worst(self) -> float:
        """The largest loss."""
        return max(served.loss for served in self.served)

    @property
    def mean(self) -> float:
        """The mean loss by the weights of the shapes, each with the best of the set."""
        return _mean_loss(self.table, self.configs)

    def acceptable(self, shape: int) -> tuple[int, ...]:
        """The chosen configurations that are within the tolerance at a shape."""
        losses = ((config, self.table.loss(shape, config)) for config in self.configs)
        return tuple(config for config, loss in losses if loss is not None and loss <= self.tolerance)


def cover_within(table: TimeTable, tolerance: float = 0.03, most_nodes: int = MOST_NODES) -> Cover:
    """The fewest configurations of which at every shape one is within ``tolerance`` (0.03 is 3 %) of the best measured
    there; of several such sets the one with the smallest weighted mean loss, as far as a search of ``most_nodes`` finds
    it.

    Raises:
        CoverError: the tolerance is negative or infinite.
    """
    if not 0 <= tolerance < math.inf:
        raise CoverError(f"a tolerance of {tolerance}", hint="0 or more; 0.03 is 3 %")
    return _answer(table, tolerance, _covered(table, tolerance, most_nodes))


def cover_with(table: TimeTable, count: int, most_nodes: int = MOST_NODES) -> Cover:
    """At most ``count`` configurations with the smallest largest loss: as few as have it, and of these the smallest
    weighted mean. Of tables too large to be searched through the loss may be larger than need be; the answer's
    ``least`` is then less than ``count``.

    Raises:
        CoverError: ``count`` is less than one, or so few cannot serve all shapes whatever the loss: pairs that were not
            measured are not used.
    """
    if count < 1:
        raise CoverError(f"{count} configurations", hint="at least 1")
    losses = sorted({loss for row in table.losses for loss in row.values()})
    low, high = 0, len(losses) - 1
    if not has_cover(*_masks(table, losses[high]), count):
        raise CoverError(
            f"no {count} configurations were found that were measured at all shapes between them",
            hint="measure more pairs (--measure), or allow more configurations",
        )
    while low < high:
        middle = (low + high) // 2
        if has_cover(*_masks(table, losses[middle]), count):
            high = middle
        else:
            low = middle + 1
    return _answer(table, losses[high], _covered(table, losses[high], most_nodes))


def _covered(table: TimeTable, tolerance: float, most_nodes: int) -> FoundCover:
    masks, everything = _masks(table, tolerance)
    return smallest_cover(masks, everything, lambda members: _mean_loss(table, members), most_nodes)


def _masks(table: TimeTable, tolerance: float) -> tuple[dict[int, int], int]:
    """The shapes at which each configuration is within the tolerance, as bits; and the bits of all shapes."""
    masks: dict[int, int] = {}
    for shape, losses in enumerate(table.losses):
        for config, loss in losses.items():
            if loss <= tolerance:
                masks[config] = masks.get(config, 0) | 1 << shape
    return masks, (1 << len(table.shapes)) - 1


def _mean_loss(table: TimeTable, members: Sequence[int]) -> float:
    total = sum(
        weight * _least_loss(losses, members) for losses, weight in zip(table.losses, table.weights, strict=True)
    )
    return total / sum(table.weights)


def _least_loss(losses: Mapping[int, float], members: Sequence[int]) -> float:
    return min(losses[config] for config in members if config in losses)


def _answer(table: TimeTable, tolerance: float, found: FoundCover) -> Cover:
    served = []
    for shape in range(len(table.shapes)):
        losses = {config: loss for config in found.members if (loss := table.loss(shape, config)) is not None}
        chosen = min(losses, key=losses.__getitem__)
        served.append(Served(shape, table.best(shape), chosen, losses[chosen]))
    missing = tuple(table.missing(sorted({*found.members, *table.winners()})))
    return Cover(table, found.members, tuple(served), tolerance, found.least, found.proven, missing)
