"""Pure functions over timings: medians with intervals, paired ratios, verdicts.

Times of kernels are neither normal nor symmetric (clock steps, interrupts), so everything rests on ranks.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Literal, TypeAlias

from ..codec import Count, Document, Finite

Verdict: TypeAlias = Literal["FASTER", "SAME", "SLOWER", "AMBIGUOUS"]

CONFIDENCE = 0.95
# Differences under one percent are not worth a configuration change and are within what code placement alone does.
SAME_MARGIN = 0.01
# The range of 8 pairs covers their median with 99.2 %: enough for the intervals of four challengers together.
MIN_PAIRS = 8


class Interval(Document, frozen=True, gc=False):
    """A median of ``samples`` values with its confidence interval. Times are in ns, speed-ups are ratios."""

    noun: ClassVar[str] = "interval"

    median: Finite
    low: Finite
    high: Finite
    samples: Count

    def inverse(self) -> Interval:
        """The interval of 1/x: a ratio of times becomes a speed-up."""
        return Interval(1 / self.median, 1 / self.high, 1 / self.low, self.samples)


@lru_cache(maxsize=1024)
def _median_rank(n: int, confidence: float) -> int:
    """The largest r such that the interval between the r-th smallest and r-th largest of n values covers the median
    with at least ``confidence``: 1 - 2 P(Binomial(n, 1/2) < r); 1 if no r does. Exact: whole numbers over 2^n."""
    numerator, denominator = ((1 - confidence) / 2).as_integer_ratio()
    limit = (numerator << n) // denominator
    tail, combinations, rank = 0, 1, 1
    for r in range(1, n // 2 + 1):
        tail += combinations
        if tail > limit:
            break
        rank = r
        combinations = combinations * (n - r + 1) // r
    return rank


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Median and its distribution-free confidence interval from order statistics (H. A. David and H. N. Nagaraja,
    Order Statistics, 3rd ed., section 7.1). With fewer than 6 values the interval is their range and covers less
    than 95 %. Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = _median_rank(len(ordered), confidence)
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[len(ordered) - rank], len(ordered))


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = CONFIDENCE
) -> Interval:
    """The typical ratio of values measured in pairs, round by round: their median, with the interval that inverts the
    sign test (W. J. Conover, Practical Nonparametric Statistics, 3rd ed., sections 3.2 and 3.4).

    Drift that both members of a pair share cancels. Where the order within each pair was drawn at random, equal
    candidates make each sign a fair coin, whatever disturbed the machine and for how long (R. A. Fisher, The Design of
    Experiments, 1935, section 21): the interval excludes 1 with at most 1 - ``confidence`` then. On recorded times
    beside busy neighbours the median varies less than rank sums of pairs do, whose tails are heavy.

    n pairs cover the truth with at most 1 - 2^(1-n): fewer than ``confidence`` needs give their range. Raises
    ValueError when the lengths differ or are zero.
    """
    if len(numerators) != len(denominators) or not numerators:
        raise ValueError("paired ratios need equally many values, at least one")
    return median_interval([a / b for a, b in zip(numerators, denominators, strict=True)], confidence)


def familywise(challengers: int) -> float:
    """The confidence of each interval when ``challengers`` are compared with one default, so that all of them hold
    together with :data:`CONFIDENCE` (Bonferroni): of equal challengers any one is called FASTER in at most 2.5 %."""
    return 1 - (1 - CONFIDENCE) / max(1, challengers)


def is_precise(ratio: Interval) -> bool:
    """Whether the interval is no wider than :data:`SAME_MARGIN`: the ratio is known to about half of it either way."""
    return ratio.high <= ratio.low * (1 + SAME_MARGIN)


def is_within_margin(ratio: Interval) -> bool:
    """Whether the whole interval is within :data:`SAME_MARGIN` of 1."""
    return ratio.low >= 1 - SAME_MARGIN and ratio.high <= 1 + SAME_MARGIN


def verdict(ratio: Interval) -> Verdict:
    """What a ratio challenger/default of times says, by :data:`SAME_MARGIN` m.

    FASTER: the ratio is below 1 - m, and either known precisely (:func:`is_precise`) or the whole interval is below
    1 - m/2: a gain of half the margin is no more likely to be called FASTER than the interval is to err. SLOWER:
    likewise above. SAME: the ratio is within the margin and known precisely, or the whole interval is within the
    margin. A precise ratio always gives one of these. AMBIGUOUS: not known well enough, or fewer than
    :data:`MIN_PAIRS` pairs.
    """
    margin, precise = SAME_MARGIN, is_precise(ratio)
    if ratio.samples < MIN_PAIRS:
        return "AMBIGUOUS"
    if ratio.median < 1 - margin and (precise or ratio.high < 1 - margin / 2):
        return "FASTER"
    if ratio.median > 1 + margin and (precise or ratio.low > 1 + margin / 2):
        return "SLOWER"
    return "SAME" if precise or is_within_margin(ratio) else "AMBIGUOUS"
