"""What a process on the times says of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .acquisition import expected_improvement, probability_of_improvement
from .encoding import Matrix, Vector
from .process import Process


@dataclass(frozen=True)
class Observed:
    """Evaluations as the process sees them: logarithms of times are ``unit * values + level + shift``, the last being
    ``scale`` times what the prior of the search or the trend predicts."""

    keys: list[bytes]
    points: Matrix
    values: Vector
    unit: float
    level: float
    shift: Vector
    scale: float


@dataclass(frozen=True)
class Outlook:
    """Of every candidate: ``improvement`` of the logarithm of the time over the best that is expected of it, the
    ``probability`` that it is faster than the best, and its ``variance``, 1 where nothing is known."""

    improvement: Vector
    probability: Vector
    variance: Vector


def outlook(process: Process, observed: Observed, predicted: Vector, keys: Sequence[bytes], points: Matrix) -> Outlook:
    """What ``process``, which sees ``observed``, expects of its candidates. ``predicted``: logarithms of their times
    that the prior of the search or the trend predicts. ``keys`` and ``points``: the observations and after them the
    open proposals; as these count as having the mean that is expected of them, they change no mean, and only take away
    variance."""
    posterior = process.posterior
    mean = observed.unit * posterior.mean(observed.values) + observed.level + observed.scale * predicted
    smoothed = observed.unit * posterior.smoothed(observed.values) + observed.level + observed.shift
    best = float(smoothed.min())
    process.follow(keys, points)
    variance = posterior.variance()
    spread = variance * observed.unit**2
    return Outlook(expected_improvement(mean, spread, best), probability_of_improvement(mean, spread, best), variance)
