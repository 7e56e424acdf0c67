"""The start of a search: the centre of the space, then configurations far from each other."""

from __future__ import annotations

import numpy as np

from .domain import Domain
from .encoding import Levels, keys, stacked
from .history import History
from .prior import Predictions
from .validity import Validity

#: Evaluations of the start; at least so many of them must work, unless it takes more than the last number to find them.
EVALUATIONS, WORKING, MOST = 8, 4, 30
DRAWS = 500
#: Where failures are known: so many changes of one that works are drawn, too.
CHANGED = 100
DOUBT = 0.1
STEPS = 6
#: Deviation of the logarithms of predicted times, about: what is predicted to be as much slower than the best is tried
#: too, or all would be alike.
DOUBTED = 0.1


def is_complete(history: History, wanted: int = EVALUATIONS) -> bool:
    """Whether the start is over; open proposals are counted as if they worked."""
    working = len(history.worked) + len(history.open)
    enough = len(history) >= wanted and working >= min(WORKING, wanted)
    return enough or len(history) >= MOST


def next_row(domain: Domain, history: History, rng: np.random.Generator) -> Levels | None:
    """The valid row farthest (L1) from all others among random ones, its distance weighted by the squared probability
    that it works once something failed; the first one is that nearest to the centre. None where all draws were seen."""
    grid = domain.grid
    drawn = domain.draw(DRAWS, rng)
    worked = history.worked
    if worked and history.failures:
        best = min(worked, key=lambda e: e.time or 0.0).row
        other = worked[rng.integers(len(worked))].row
        changed = np.concatenate([grid.mutated(best, CHANGED, 2, rng), grid.mutated(other, CHANGED, 3, rng)])
        drawn = np.concatenate([drawn, changed[domain.valid(changed)]])
    fresh = [row for row, key in zip(drawn, keys(drawn), strict=True) if key not in history]
    if not fresh:
        return None
    rows = stacked(fresh, len(grid.sizes))
    points = grid.points(rows)
    if not len(history):
        centre = grid.centre()
        if domain.valid(centre[None])[0]:
            return centre
        nearest: Levels = rows[int(np.argmin(np.abs(points - grid.points(centre[None])).sum(1)))]
        return nearest
    others = grid.points(stacked(history.rows, len(grid.sizes)))
    weight = np.abs(points[:, None] - others[None]).sum(2).min(1)
    if worked and history.failures:
        told = history.told
        told_rows = stacked((e.row for e in told), len(grid.sizes))
        labels = [e.time is not None for e in told]
        validity = Validity(grid)
        validity.fit(told_rows, labels, STEPS)
        validity.attach(told_rows, rows)
        weight = weight * validity.probability(labels, DOUBT) ** 2
    farthest: Levels = rows[int(np.argmax(weight))]
    return farthest


def predicted_row(
    domain: Domain, predictions: Predictions, history: History, rng: np.random.Generator
) -> Levels | None:
    """A valid row at random of those predicted to be fast; None where all draws were seen."""
    drawn = domain.draw(DRAWS, rng)
    fresh = [row for row, key in zip(drawn, keys(drawn), strict=True) if key not in history]
    if not fresh:
        return None
    rows = stacked(fresh, len(domain.grid.sizes))
    doubted = predictions.of(rows) - DOUBTED * rng.gumbel(size=len(rows))
    chosen: Levels = rows[int(np.argmin(doubted))]
    return chosen
