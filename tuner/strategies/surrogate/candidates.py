"""The pool of candidates among which a proposal is chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .domain import Domain, ListedDomain
from .encoding import Levels, keys
from .history import History
from .limits import Limits

#: Random candidates: of spaces that are listed, which costs nothing, for searches that begin with nothing, and else;
#: and the best evaluations whose neighbours join them. What late searches have not found is in corners that 1,500 of
#: tens of thousands rarely hold; of searches that start from others nothing like that was seen.
LISTED_DRAWS, DRAWS, NEIGHBOURED = 6_000, 1_500, 10
# Once something failed, many candidates will be given up as hopeless: more are drawn, and changes of two parameters of
# the very best, and those most likely to work are kept.
UNLIMITED_DRAWS = 6_000
DOUBTFUL_DRAWS, MUTATED, MUTATIONS, KEPT = 3_000, 3, 150, 1_200


def candidates(
    domain: Domain,
    best: Sequence[Levels],
    history: History,
    rng: np.random.Generator,
    limits: Limits | None,
    *,
    cold: bool,
) -> Levels:
    """Valid rows that are neither told nor open. ``best``: the fastest evaluations, fastest first. ``limits``:
    those that are believed, None as long as nothing failed. ``cold``: nobody else's times are known."""
    grid = domain.grid
    near = [grid.neighbours(row) for row in best[:NEIGHBOURED]]
    if limits is not None:
        near += [grid.mutated(row, MUTATIONS, 2, rng) for row in best[:MUTATED]]
    if limits is None:
        drawn = domain.draw(LISTED_DRAWS if cold and isinstance(domain, ListedDomain) else DRAWS, rng)
    else:
        drawn = domain.draw(UNLIMITED_DRAWS, rng)
        drawn = drawn[np.argsort(limits.broken(drawn), kind="stable")[:DOUBTFUL_DRAWS]]
    around = np.concatenate(near)
    rows = np.concatenate([around[domain.valid(around)], drawn])
    found = {key: at for at, key in enumerate(keys(rows))}
    taken = set(history.keys)
    return rows[[at for key, at in found.items() if key not in taken]]
