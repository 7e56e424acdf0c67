"""The pool of candidates among which a proposal is chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .domain import Domain
from .encoding import Levels, stacked
from .history import History

#: Random candidates, and the best evaluations whose neighbours join them.
DRAWS, NEIGHBOURED = 1_500, 10
# Once something failed, many candidates will be given up as hopeless: more are drawn, and changes of two parameters of
# the very best, and those most likely to work are kept.
DOUBTFUL_DRAWS, MUTATED, MUTATIONS, KEPT = 3_000, 3, 150, 1_200


def candidates(
    domain: Domain, best: Sequence[Levels], history: History, rng: np.random.Generator, *, doubtful: bool
) -> Levels:
    """Valid rows that are neither told nor open. ``best``: the fastest evaluations, fastest first. ``doubtful``:
    whether something failed."""
    grid = domain.grid
    near = [grid.neighbours(row) for row in best[:NEIGHBOURED]]
    if doubtful:
        near += [grid.mutated(row, MUTATIONS, 2, rng) for row in best[:MUTATED]]
    drawn = domain.draw(DOUBTFUL_DRAWS if doubtful else DRAWS, rng)
    around = np.concatenate(near) if near else drawn[:0]
    found = {row.tobytes(): row for row in drawn}
    fresh = {row.tobytes(): row for row in around}
    unknown = stacked((row for key, row in fresh.items() if key not in found), len(grid.sizes))
    found |= {row.tobytes(): row for row in unknown[domain.valid(unknown)]} if len(unknown) else {}
    return stacked((row for key, row in found.items() if key not in history), len(grid.sizes))
