"""What facts of the code explain of the times, where nothing is measured yet, too.

A process expects the mean far from all that was measured. What compiling tells is known without noise, and nearly a
product of powers of the parameters (:mod:`.facts`), so that it is predicted there. The logarithms of the times may have
a slope along each fact, as far as the measured ones make it probable; the process explains what is left.

That holds among launches that fill the device, where less of everything is better, most of all fewer programs. Of those
that do not fill it, more programs are faster, and what slow variants teach is wrong of the fast ones: there is no trend
as long as the fastest variant is one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .encoding import Levels, Matrix, Vector
from .facts import Fact, FactModel
from .targets import Targets

#: Deviations of the slopes before anything is measured, where times and facts have deviation 1 among the variants. Each
#: counts by how probable it makes the measured times; 0 is a process without a trend.
SLOPES = (0.0, 0.1, 0.25, 0.5, 1.0)
#: Added to the deviation of a fact: one that hardly differs says nothing.
LEAST_DEVIATION = 1e-2


@dataclass(frozen=True)
class Trend:
    """``slopes`` of the logarithm of the time along the logarithms of the facts ``names``."""

    facts: FactModel
    names: tuple[Fact, ...]
    slopes: Vector

    def of(self, rows: Levels) -> Vector:
        """What it adds to the logarithms of the times of rows, up to a constant."""
        result: Vector = self.facts.known_or_predicted(self.names, rows) @ self.slopes
        return result


def trend(facts: FactModel, rows: Levels, targets: Targets, inverse_factor: Matrix) -> Trend:
    """The slopes of the logarithms ``targets``, which were measured at ``rows``, along the facts that were told.
    ``inverse_factor``: of the covariance of a process without a trend, as :meth:`.gaussian_process.Matern` gives it.

    Regression on inputs with normal weights: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006),
    section 2.7.
    """
    names = facts.told
    known = facts.known_or_predicted(names, rows)
    scales = known.std(0) + LEAST_DEVIATION
    seen = inverse_factor @ ((known - known.mean(0)) / scales)
    gram, along = seen.T @ seen, seen.T @ (inverse_factor @ targets.values)
    evidence, slopes = [], []
    for deviation in SLOPES:
        inner = np.eye(len(gram)) + deviation**2 * gram
        slopes.append(deviation**2 * np.linalg.solve(inner, along))
        evidence.append((along @ slopes[-1] - np.linalg.slogdet(inner)[1]) / 2)
    weights = np.exp(np.array(evidence) - max(evidence))
    mean: Vector = (weights / weights.sum()) @ np.array(slopes)
    return Trend(facts, names, targets.unit * mean / scales)
