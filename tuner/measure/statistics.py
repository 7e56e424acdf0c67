"""Pure functions over timings: medians with intervals, paired ratios, verdicts.

Times of kernels are neither normal nor symmetric (clock steps, interrupts), so everything rests on ranks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Literal, TypeAlias

from ..codec import Document, Finite

Verdict: TypeAlias = Literal["FASTER", "SAME", "SLOWER", "AMBIGUOUS"]

CONFIDENCE = 0.95
# Differences under one percent are not worth a configuration change and are within what code placement alone does.
SAME_MARGIN = 0.01


class Interval(Document, frozen=True):
    """A median of ``samples`` values with its confidence interval. Times are in ns, speed-ups are ratios."""

    noun: ClassVar[str] = "interval"

    median: Finite
    low: Finite
    high: Finite
    samples: int

    def inverse(self) -> Interval:
        """The interval of 1/x: a ratio of times becomes a speed-up."""
        return Interval(1 / self.median, 1 / self.high, 1 / self.low, self.samples)


@lru_cache(maxsize=256)
def _median_rank(n: int, confidence: float) -> int:
    """The largest r such that the interval between the r-th smallest and r-th largest of n values covers the median
    with at least ``confidence``: 1 - 2 P(Binomial(n, 1/2) < r); 1 if no r does."""
    tail, rank = 0.0, 1
    for r in range(1, n // 2 + 1):
        tail += math.comb(n, r - 1) / 2**n
        if 1 - 2 * tail < confidence:
            break
        rank = r
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


@lru_cache(maxsize=64)
def _signed_rank_cut(n: int, confidence: float) -> int:
    """How many Walsh averages to cut at each end: the largest c with P(W < c) <= (1 - confidence) / 2 under the null
    distribution of Wilcoxon's signed-rank statistic W, computed exactly; 0 if n is too small."""
    counts = [1]
    for rank in range(1, n + 1):
        grown = counts + [0] * rank
        for value, count in enumerate(counts):
            grown[value + rank] += count
        counts = grown
    limit = (1 - confidence) / 2 * 2**n
    total, cut = 0, 0
    for count in counts:
        total += count
        if total > limit:
            break
        cut += 1
    return cut


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = CONFIDENCE
) -> Interval:
    """The typical ratio of values measured in pairs, round by round: Hodges and Lehmann's estimate on the logarithms,
    with the interval that inverts Wilcoxon's signed-rank test (M. Hollander, D. A. Wolfe, E. Chicken, Nonparametric
    Statistical Methods, 3rd ed., sections 3.2-3.3). Needs 6 pairs for 95 %; fewer give the range of Walsh averages.

    Drift that both members of a pair share cancels. Raises ValueError when the lengths differ or are zero.
    """
    if len(numerators) != len(denominators) or not numerators:
        raise ValueError("paired ratios need equally many values, at least one")
    logs = [math.log(a / b) for a, b in zip(numerators, denominators, strict=True)]
    walsh = sorted((logs[i] + logs[j]) / 2 for i in range(len(logs)) for j in range(i, len(logs)))
    cut = max(_signed_rank_cut(len(logs), confidence), 1)
    return Interval(
        math.exp(statistics.median(walsh)),
        math.exp(walsh[cut - 1]),
        math.exp(walsh[len(walsh) - cut]),
        len(logs),
    )


def verdict(ratio: Interval, margin: float = SAME_MARGIN) -> Verdict:
    """What a ratio challenger/incumbent of times says.

    SAME: the whole interval lies within the margin. FASTER, SLOWER: it lies on one side of 1. AMBIGUOUS: neither, or
    fewer than the 6 pairs that an interval of 95 % needs. A challenger that is in truth equal is called FASTER with
    probability of at most 2.5 %.
    """
    if ratio.samples < 6:
        return "AMBIGUOUS"
    if 1 - margin <= ratio.low and ratio.high <= 1 + margin:
        return "SAME"
    if ratio.high < 1:
        return "FASTER"
    return "SLOWER" if ratio.low > 1 else "AMBIGUOUS"
