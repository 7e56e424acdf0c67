"""The smallest set of configurations that covers all shapes: branch and bound, or greedy where that takes too long.

Sets of shapes are bits of a whole number. Every branch takes an uncovered shape that fewest configurations cover, and
one of these; so every smallest cover is met, since none of its members can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

#: Nodes that are visited before the search gives up proving.
MOST_NODES = 20_000

Cost = Callable[[Sequence[int]], float]


@dataclass(frozen=True)
class FoundCover:
    """``members``: a cover, ascending. ``least``: no cover has fewer members; where it has so many it is a smallest
    one. ``proven``: no other cover of its size costs less."""

    members: tuple[int, ...]
    least: int
    proven: bool


def smallest_cover(masks: Mapping[int, int], everything: int, cost: Cost, most_nodes: int = MOST_NODES) -> FoundCover:
    """The cover with fewest members, and of these the one that costs least. ``masks``: the shapes, as bits, that each
    configuration covers; together they cover ``everything``."""
    greedy = _greedy(masks, everything)
    search = _Search(masks, everything, cost, most_nodes)
    least = search.apart(everything)
    for size in range(least, len(greedy) + 1):
        found, complete = search.of_size(size)
        if found is not None:
            return FoundCover(found, size, complete)
        if not complete:
            break
        least = size + 1
    return FoundCover(tuple(sorted(greedy)), least, False)


def has_cover(masks: Mapping[int, int], everything: int, size: int) -> bool:
    """Whether a cover with at most ``size`` members is found."""
    together = 0
    for mask in masks.values():
        together |= mask
    if together & everything != everything:
        return False
    if len(_greedy(masks, everything)) <= size:
        return True
    search = _Search(masks, everything, lambda members: 0.0, MOST_NODES, first=True)
    return search.of_size(size)[0] is not None


class _Search:
    """``first``: the first cover that is found will do."""

    def __init__(
        self, masks: Mapping[int, int], everything: int, cost: Cost, most_nodes: int, *, first: bool = False
    ) -> None:
        self.first = first
        self.masks = {config: mask & everything for config, mask in masks.items() if mask & everything}
        self.everything = everything
        self.cost = cost
        self.most_nodes = most_nodes
        self.covering = {
            bit: sorted((c for c, mask in self.masks.items() if mask & bit), key=lambda c: -self.masks[c].bit_count())
            for bit in _bits(everything)
        }

    def of_size(self, size: int) -> tuple[tuple[int, ...] | None, bool]:
        """The cheapest cover with at most ``size`` members, None if none was found; and whether all were looked at."""
        self.nodes, self.size, self.complete = 0, size, True
        self.best: tuple[float, tuple[int, ...]] | None = None
        self._branch([], self.everything)
        return None if self.best is None else self.best[1], self.complete

    def _branch(self, taken: list[int], left: int) -> None:
        if not left:
            members = tuple(sorted(taken))
            candidate = (self.cost(members), members)
            if self.best is None or candidate < self.best:
                self.best = candidate
            return
        self.nodes += 1
        if self.nodes > self.most_nodes:
            self.complete = False
            return
        if len(taken) + self.apart(left) > self.size:
            return
        bit = min(_bits(left), key=lambda bit: len(self.covering[bit]))
        for config in self.covering[bit]:
            taken.append(config)
            self._branch(taken, left & ~self.masks[config])
            taken.pop()
            if not self.complete or (self.first and self.best is not None):
                return

    def apart(self, left: int) -> int:
        """Shapes of which no configuration covers two: so many members at least."""
        count = 0
        while left:
            bit = min(_bits(left), key=lambda bit: len(self.covering[bit]))
            count += 1
            for config in self.covering[bit]:
                left &= ~self.masks[config]
        return count


def _greedy(masks: Mapping[int, int], everything: int) -> list[int]:
    """Always the configuration that covers most of what is left: at most 1 + ln(shapes) times the smallest size
    (V. Chvatal, "A Greedy Heuristic for the Set-Covering Problem", 1979)."""
    taken, left = [], everything
    while left:
        best = max(sorted(masks), key=lambda config: (masks[config] & left).bit_count())
        taken.append(best)
        left &= ~masks[best]
    # What others cover by now is left out again.
    for config in list(taken):
        rest = 0
        for other in taken:
            rest |= masks[other] if other != config else 0
        if rest & everything == everything:
            taken.remove(config)
    return taken


def _bits(number: int) -> list[int]:
    found = []
    while number:
        bit = number & -number
        found.append(bit)
        number ^= bit
    return found
