"""Statistics on synthetic noise with fixed seeds: coverage and false positives by simulation."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable

import pytest

from deuteron.tuner.measure.statistics import (
    Interval,
    _median_rank,
    _signed_rank_cut,
    median_interval,
    paired_ratio,
    verdict,
)


def lognormal(rng: random.Random) -> float:
    return math.exp(rng.gauss(0, 0.02))


def bimodal(rng: random.Random) -> float:
    """A kernel whose clock steps between two levels, with rare interrupts."""
    base = 1.0 if rng.random() < 0.6 else 1.06
    return base * math.exp(rng.gauss(0, 0.004)) + (0.5 if rng.random() < 0.02 else 0.0)


# The tables in Hollander, Wolfe and Chicken: for n pairs, 95 % intervals drop c-1 Walsh averages at each end.
@pytest.mark.parametrize(("n", "cut"), [(5, 0), (6, 1), (8, 4), (10, 9), (15, 26), (20, 53), (25, 90)])
def test_signed_rank_cut_matches_tables(n: int, cut: int) -> None:
    assert _signed_rank_cut(n, 0.95) == cut


def test_signed_rank_cut_by_enumeration() -> None:
    n = 9
    totals = [
        sum(rank for rank, positive in enumerate(signs, 1) if positive)
        for signs in itertools.product((False, True), repeat=n)
    ]
    cut = _signed_rank_cut(n, 0.95)
    assert sum(t < cut for t in totals) / 2**n <= 0.025 < sum(t <= cut for t in totals) / 2**n


# Ranks of 95 % intervals for the median (David and Nagaraja): n=6 -> extremes, n=10 -> 2nd, n=20 -> 6th, n=50 -> 18th.
@pytest.mark.parametrize(("n", "rank"), [(3, 1), (6, 1), (9, 2), (10, 2), (20, 6), (50, 18)])
def test_median_rank_matches_tables(n: int, rank: int) -> None:
    assert _median_rank(n, 0.95) == rank


def test_median_interval_of_known_values() -> None:
    assert median_interval([5.0]) == Interval(5.0, 5.0, 5.0, 1)
    assert median_interval([float(v) for v in range(20, 0, -1)]) == Interval(10.5, 6.0, 15.0, 20)
    with pytest.raises(ValueError, match="no values"):
        median_interval([])


@pytest.mark.parametrize("noise", [lognormal, bimodal])
@pytest.mark.parametrize("n", [7, 15, 30])
def test_median_interval_covers(noise: Callable[[random.Random], float], n: int) -> None:
    rng = random.Random(f"{noise.__name__}{n}")
    truth = statistics.median(noise(rng) for _ in range(100_001))
    hits = 0
    for _ in range(1500):
        interval = median_interval([noise(rng) for _ in range(n)])
        hits += interval.low <= truth <= interval.high
    # nominal 95 %, never less by construction; 1500 trials have a standard error of 0.6 %
    assert hits / 1500 >= 0.935


@pytest.mark.parametrize("noise", [lognormal, bimodal])
def test_equal_candidates_are_rarely_called_faster(noise: Callable[[random.Random], float]) -> None:
    rng = random.Random(11)
    calls = {"FASTER": 0, "SLOWER": 0, "SAME": 0, "AMBIGUOUS": 0}
    for _ in range(2000):
        drift = [1 + 0.1 * math.sin(i / 3) for i in range(15)]
        a = [d * noise(rng) for d in drift]
        b = [d * noise(rng) for d in drift]
        calls[verdict(paired_ratio(a, b))] += 1
    # at most 2.5 % each side; three standard errors of a 2000-trial estimate are 1.05 %
    assert calls["FASTER"] / 2000 <= 0.036
    assert calls["SLOWER"] / 2000 <= 0.036


def test_real_differences_are_found_and_ratios_cover() -> None:
    rng = random.Random(5)
    found = covered = 0
    for _ in range(500):
        a = [0.95 * lognormal(rng) for _ in range(15)]
        b = [lognormal(rng) for _ in range(15)]
        ratio = paired_ratio(a, b)
        found += verdict(ratio) == "FASTER"
        covered += ratio.low <= 0.95 <= ratio.high
    assert found / 500 > 0.95
    assert covered / 500 > 0.92


def test_shared_drift_cancels_in_pairs() -> None:
    rng = random.Random(9)
    drift = [1 + 0.5 * i / 20 for i in range(20)]
    a = [0.97 * d * math.exp(rng.gauss(0, 0.003)) for d in drift]
    b = [d * math.exp(rng.gauss(0, 0.003)) for d in drift]
    ratio = paired_ratio(a, b)
    assert ratio.median == pytest.approx(0.97, abs=0.005)
    assert verdict(ratio) == "FASTER"
    # unpaired, the drift hides the difference: the intervals of the medians overlap
    assert median_interval(a).high > median_interval(b).low


def test_verdicts() -> None:
    assert verdict(Interval(0.9, 0.88, 0.92, 10)) == "FASTER"
    assert verdict(Interval(1.1, 1.05, 1.2, 10)) == "SLOWER"
    assert verdict(Interval(0.998, 0.992, 1.004, 10)) == "SAME"
    assert verdict(Interval(0.997, 0.995, 0.999, 10)) == "SAME"
    assert verdict(Interval(0.97, 0.9, 1.05, 10)) == "AMBIGUOUS"
    assert verdict(Interval(0.5, 0.4, 0.6, 5)) == "AMBIGUOUS"


def test_paired_ratio_needs_pairs() -> None:
    with pytest.raises(ValueError, match="equally many"):
        paired_ratio([1.0], [1.0, 2.0])


def test_inverse_is_the_speed_up() -> None:
    assert Interval(0.5, 0.4, 0.8, 9).inverse() == Interval(2.0, 1.25, 2.5, 9)
