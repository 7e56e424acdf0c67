"""When a comparison has measured enough.

Looking again and again and stopping as soon as somebody is ahead finds differences that are not there. Here measuring
ends when the answer is *precise*, wherever it lies: the rule of Y. S. Chow and H. Robbins (On the asymptotic theory of
fixed-width sequential confidence intervals for the mean, Annals of Mathematical Statistics 36, 1965), whose intervals
keep their coverage as the width goes to 0; how well they keep it at our width ``benchmarks/verdict_rates.py`` shows by
simulation. Differences far beyond the margin need no such precision: they end it at the boundary of J. L. Haybittle
(British Journal of Radiology 44, 1971) and R. Peto et al. (British Journal of Cancer 34, 1976), an interval of 99.9 %
at every look, which is so strict that the error of the last look hardly grows. Nor do equals: an interval within the
margin ends it at any look, since to err there stores the default where at most the margin was to be had.
"""

from __future__ import annotations

from collections.abc import Sequence

from .statistics import SAME_MARGIN, familywise, is_precise, is_within_margin, paired_ratio

# The first look, and how many more rounds the next one is away.
FIRST_LOOK = 16
LOOK_GROWTH = 1.25

CLEAR_CONFIDENCE = 0.999

# No look before: short kernels would be settled within a few ms, one moment of the machine.
LEAST_SECONDS = 0.2


def next_look(rounds: int) -> int:
    """The number of rounds at which to look again, after ``rounds`` (0: none yet)."""
    return max(FIRST_LOOK, rounds + 1, int(rounds * LOOK_GROWTH))


def is_settled(times: Sequence[Sequence[float]]) -> bool:
    """Whether more rounds are not needed; ``times[0]`` are the default's, ``times[c][r]`` challenger c's in round r.

    Every challenger's ratio is known precisely, or within the margin, or clearly beyond it; and of several that are
    beyond it, of which the faster one will be stored, it is known about which one that is.
    """
    challengers = len(times) - 1
    if not all(_is_settled(challenger, times[0], challengers) for challenger in times[1:]):
        return False
    ratios = [paired_ratio(challenger, times[0]) for challenger in times[1:]]
    faster = sorted((r.median, c) for c, r in enumerate(ratios, 1) if r.high < 1 - SAME_MARGIN)
    return len(faster) < 2 or _are_ranked(*(times[c] for _, c in faster[:2]))


def _are_ranked(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether one is clearly faster, or taking either costs no more than about the margin."""
    ratio = paired_ratio(second, first)
    sure = paired_ratio(second, first, CLEAR_CONFIDENCE)
    return ratio.high <= ratio.low * (1 + 2 * SAME_MARGIN) or sure.high < 1 or sure.low > 1


def _is_settled(challenger: Sequence[float], default: Sequence[float], challengers: int) -> bool:
    ratio = paired_ratio(challenger, default, familywise(challengers))
    if is_precise(ratio) or is_within_margin(ratio):
        return True
    sure = paired_ratio(challenger, default, 1 - (1 - CLEAR_CONFIDENCE) / challengers)
    return sure.high < 1 - SAME_MARGIN or sure.low > 1 + SAME_MARGIN
