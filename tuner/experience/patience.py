"""When a search that started from others is over: what they predicted was found, and nothing better turns up.

A search that begins with nothing has no such rule: none was found that ends it before 100 evaluations at a mean loss
under 1 % (docs/search.md). Here the question is easier. Times that are ranked as the prediction says show that it holds
for this shape as well, and then the best is among the first proposals. Where they are not, it mostly is among the first
proposals as well: late in a search all that is measured is about as fast, and how such times are ranked says little. On
an H100 and on a CPU ``benchmarks/patience.py`` says what these figures save and lose; they were chosen on the same
searches, so others will lose more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

#: So many configurations in a row without a gain of this part, at so good a rank correlation of predicted and measured
#: times; or so many at any.
PATIENCE, GAIN, AGREEMENT, LONG_PATIENCE = 20, 0.005, 0.7, 50
#: Pairs below which nothing is said of agreement.
PAIRS = 6


class Patience:
    """Follows the times of a search in the order in which they were measured."""

    def __init__(self) -> None:
        self._predicted: list[float] = []
        self._measured: list[float] = []
        self._best = math.inf
        self._since = 0

    def tell(self, predicted: float, time_ns: float | None) -> None:
        """A configuration whose logarithm of the time was ``predicted`` took ``time_ns``; None: it failed."""
        self._since += 1
        if time_ns is None:
            return
        self._predicted.append(predicted)
        self._measured.append(time_ns)
        if time_ns < (1 - GAIN) * self._best:
            self._since = 0
        self._best = min(self._best, time_ns)

    @property
    def agreement(self) -> float | None:
        """Spearman's rank correlation of predicted and measured times; None for fewer than :data:`PAIRS`."""
        if len(self._measured) < PAIRS:
            return None
        return rank_correlation(self._predicted, self._measured)

    @property
    def over(self) -> bool:
        """Whether more is not expected to be found."""
        if self._since >= LONG_PATIENCE and self._measured:
            return True
        agreement = self.agreement
        return self._since >= PATIENCE and agreement is not None and agreement >= AGREEMENT


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation, ties at their mean rank; 0 where all values of one are equal."""
    x, y = _ranks(a), _ranks(b)
    mean = (len(x) - 1) / 2
    products = sum((p - mean) * (q - mean) for p, q in zip(x, y, strict=True))
    squares = sum((p - mean) ** 2 for p in x) * sum((q - mean) ** 2 for q in y)
    return products / math.sqrt(squares) if squares > 0 else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in range(start, end + 1):
            ranks[order[place]] = (start + end) / 2
        start = end + 1
    return ranks
