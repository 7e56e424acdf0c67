"""A prior from the log of an earlier search: the same kernel on another device, or for another shape.

What is fast on one device is often fast on the next, so the logarithms of the earlier times are the mean of the process
here. How much of them holds is fitted to what is measured: see :func:`.prior.scale`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...space import Configuration, Space
from ..base import Outcome
from .encoding import Grid, Levels, stacked
from .gaussian_process import MaternPrior, fit
from .history import Evaluation, logs
from .one_thread import one_thread
from .posterior import PoolPosterior
from .prior import Prior
from .process import FIRST_STEPS
from .targets import standardised

#: The fastest configurations of the log, which are tried first.
TRIED_FIRST = 4
#: Evaluations of the log that are used: the fastest ones.
USED = 400
#: The kernel's parameters are fitted to so many of them, evenly spaced from the fastest to the slowest, which show what
#: coordinates matter: the time of a fit grows with the cube. All of them then say what is predicted.
FITTED = 150
#: Fewer evaluations than this say too little.
LEAST = 5


def prior_from_log(
    space: Space, log: Sequence[tuple[Configuration, Outcome]], *, compress: bool = True
) -> Prior | None:
    """What a search of a space with the same parameters found, as a prior for ``space``.

    Configurations with other parameters or with values that are no choice here are left out; None if fewer than five of
    those that worked remain. ``compress``: the slow ones are drawn together.
    """
    grid = Grid(space.parameters)
    found: dict[bytes, Evaluation] = {}
    for config, outcome in log:
        row = grid.levels(config)
        if row is not None and outcome.value is not None:
            evaluation = Evaluation.of(row, outcome.value)
            found[evaluation.key] = evaluation
    evaluations = sorted(found.values(), key=lambda evaluation: evaluation.time or 0.0)[:USED]
    if len(evaluations) < LEAST:
        return None
    rows = stacked((e.row for e in evaluations), len(grid.sizes))
    targets = standardised(logs(evaluations), compress=compress)
    points = grid.features(rows)
    with one_thread():  # another thread may be timing
        fitted = np.unique(np.linspace(0, len(points) - 1, FITTED).round().astype(int))
        matern = fit(points[fitted], targets.values[fitted], None, MaternPrior(), FIRST_STEPS)
        weights = PoolPosterior(matern, points, points[:0]).weights(targets.values)

    def log_times(configs: Sequence[Configuration]) -> list[float]:
        wanted = [_row(grid, config) for config in configs]
        covariance = matern.between(grid.features(stacked(wanted, len(grid.sizes))), points)
        predicted: list[float] = (targets.unit * (covariance @ weights)).tolist()
        return predicted

    best = tuple(grid.configuration(row) for row in rows if space.contains(grid.configuration(row)))
    return Prior(log_times, best[:TRIED_FIRST])


def _row(grid: Grid, config: Configuration) -> Levels:
    row = grid.levels(config)
    if row is None:
        raise KeyError(f"{dict(config)} is not of the space that the prior was made for")
    return row
