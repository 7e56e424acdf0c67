"""Strategies compared on recordings: many seeds, means with standard errors, and what a proposal costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

from ..codec import Document, Finite
from ..strategies import StrategyFactory
from .recording import Recording
from .search import Protocol, convention, search

#: Evaluations at which strategies are usually compared.
CHECKPOINTS = (25, 50, 100, 200)


class Mean(Document, frozen=True):
    """A mean over seeds and its standard error."""

    mean: Finite
    error: Finite


class Cost(Document, frozen=True):
    """CPU time of a proposal in ms, over all proposals."""

    mean_ms: Finite
    median_ms: Finite
    p95_ms: Finite


class Quartiles(Document, frozen=True):
    """Over seeds, by number of evaluations."""

    evaluations: tuple[int, ...]
    low: tuple[Finite, ...]
    median: tuple[Finite, ...]
    high: tuple[Finite, ...]


class StrategyScore(Document, frozen=True):
    """One strategy on one recording. ``fractions``: by checkpoint, one a seed."""

    noun: ClassVar[str] = "score"

    recording: str
    strategy: str
    protocol: Protocol
    budget: int
    fractions: Mapping[int, tuple[Finite, ...]]
    quartiles: Quartiles
    cost: Cost

    def at(self, checkpoint: int) -> Mean:
        """The mean fraction of the optimum after ``checkpoint`` evaluations."""
        values = self.fractions[checkpoint]
        return Mean(statistics.fmean(values), _deviation(values) / math.sqrt(len(values)))

    def quartiles_at(self, checkpoint: int) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of the fractions after ``checkpoint`` evaluations."""
        return _quarters(self.fractions[checkpoint])


class StrategyComparison(Document, frozen=True):
    """All scores of one comparison."""

    noun: ClassVar[str] = "comparison"

    scores: tuple[StrategyScore, ...]

    @property
    def strategies(self) -> list[str]:
        """Names, in the order of the comparison."""
        return list(dict.fromkeys(score.strategy for score in self.scores))

    @property
    def checkpoints(self) -> list[int]:
        """Numbers of evaluations that every score has."""
        return sorted(set.intersection(*(set(score.fractions) for score in self.scores)))

    def over_recordings(self, strategy: str, checkpoint: int) -> Mean:
        """The mean over recordings, each counting alike, and the standard error that the seeds leave."""
        means = [score.at(checkpoint) for score in self.scores if score.strategy == strategy]
        error = math.sqrt(sum(mean.error**2 for mean in means)) / len(means)
        return Mean(statistics.fmean(mean.mean for mean in means), error)

    def cost_ms(self, strategy: str) -> float:
        """The median CPU time of a proposal, as a mean over recordings."""
        return statistics.fmean(score.cost.median_ms for score in self.scores if score.strategy == strategy)


def compare(
    recordings: Sequence[Recording],
    strategies: Mapping[str, StrategyFactory],
    *,
    protocol: Protocol,
    budget: int,
    seeds: Sequence[int],
    progress: Callable[[], None] = lambda: None,
) -> Iterator[StrategyScore]:
    """The score of every strategy on every recording, as it becomes known; ``progress`` is called after each search."""
    looks = [n for n in CHECKPOINTS if n < budget] + [budget]
    for recording in recordings:
        space = recording.space(convention(protocol))
        for name, make in strategies.items():
            runs = []
            for seed in seeds:
                runs.append(search(recording, make(space, seed), budget, protocol, seed))
                progress()
            yield StrategyScore(
                recording=recording.name,
                strategy=name,
                protocol=protocol,
                budget=budget,
                fractions={n: tuple(_at(run.fractions, n) for run in runs) for n in looks},
                quartiles=_quartiles([run.fractions for run in runs]),
                cost=_cost([second for run in runs for second in run.proposal_s]),
            )


def _at(fractions: Mapping[int, float], evaluations: int) -> float:
    """The fraction at the last look that is not later."""
    return fractions[max(n for n in fractions if n <= evaluations)]


def _quartiles(curves: Sequence[Mapping[int, float]]) -> Quartiles:
    last = max(curves[0])
    shown = [n for n in curves[0] if n % 5 == 0 or n < 5 or n == last]
    parts = []
    for n in shown:
        values = [curve[n] for curve in curves]
        parts.append(_quarters(values))
    low, median, high = zip(*parts, strict=True)
    return Quartiles(tuple(shown), low, median, high)


def _quarters(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def _cost(seconds: Sequence[float]) -> Cost:
    ordered = sorted(1e3 * second for second in seconds)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return Cost(statistics.fmean(ordered), statistics.median(ordered), p95)


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
