"""Statistics on synthetic noise with fixed seeds: coverage and false positives by simulation."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.tuner.measure.statistics import (
    CONFIDENCE,
    MIN_PAIRS,
    SAME_MARGIN,
    Interval,
    _median_rank,
    familywise,
    is_precise,
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


# Ranks of 95 % intervals for the median (David and Nagaraja): n=6 -> extremes, n=10 -> 2nd, n=20 -> 6th, n=50 -> 18th.
@pytest.mark.parametrize(("n", "rank"), [(3, 1), (6, 1), (9, 2), (10, 2), (20, 6), (50, 18)])
def test_median_rank_matches_tables(n: int, rank: int) -> None:
    assert _median_rank(n, 0.95) == rank


def test_median_rank_by_enumeration() -> None:
    n, confidence = 11, 0.975
    rank = _median_rank(n, confidence)

    def tail(r: int) -> int:
        return sum(math.comb(n, heads) for heads in range(r))

    assert 2 * tail(rank) / 2**n <= 1 - confidence < 2 * tail(rank + 1) / 2**n


def test_median_rank_of_many_values_is_the_normal_one() -> None:
    n = 20_000
    expected = n / 2 - statistics.NormalDist().inv_cdf(0.9875) * math.sqrt(n) / 2
    assert abs(_median_rank(n, 0.975) - expected) < 2


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


def bursts(rng: random.Random, rounds: int) -> list[float]:
    """What a neighbour does to times: nothing, or for some dozens of visits a lot."""
    factors, busy = [], False
    for _ in range(rounds):
        busy = rng.random() < (0.95 if busy else 0.03)
        factors.append(1 + busy * rng.expovariate(2))
    return factors


def test_ratios_of_equals_cover_whatever_disturbs_the_machine() -> None:
    """Only the order within a pair is random here, and that suffices."""
    rng = random.Random(5)
    wrong = 0
    for _ in range(1000):
        machine = bursts(rng, 60)
        pairs = [rng.sample(machine[i : i + 2], 2) for i in range(0, 60, 2)]
        ratio = paired_ratio([a for a, _ in pairs], [b for _, b in pairs])
        wrong += not ratio.low <= 1 <= ratio.high
    assert wrong / 1000 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1000)


def test_real_differences_are_found_and_ratios_cover() -> None:
    rng = random.Random(5)
    found = covered = 0
    for _ in range(500):
        a = [0.95 * lognormal(rng) for _ in range(20)]
        b = [lognormal(rng) for _ in range(20)]
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
    assert verdict(Interval(0.97, 0.9, 1.05, 10)) == "AMBIGUOUS"
    assert verdict(Interval(0.5, 0.4, 0.6, MIN_PAIRS - 1)) == "AMBIGUOUS"


def test_a_gain_below_the_margin_is_the_same_however_sure() -> None:
    assert verdict(Interval(0.995, 0.994, 0.996, 10_000)) == "SAME"
    assert verdict(Interval(0.992, 0.988, 0.996, 10_000)) == "SAME"
    assert verdict(Interval(0.989, 0.985, 0.993, 10_000)) == "FASTER"
    assert verdict(Interval(1.008, 1.004, 1.012, 10_000)) == "SAME"
    assert verdict(Interval(0.992, 0.98, 0.999, 10_000)) == "AMBIGUOUS"
    # not precise, and a gain of half a percent is not excluded
    assert verdict(Interval(0.985, 0.975, 0.996, 10_000)) == "AMBIGUOUS"
    assert verdict(Interval(0.985, 0.975, 0.994, 10_000)) == "FASTER"
    assert verdict(Interval(1.015, 1.004, 1.025, 10_000)) == "AMBIGUOUS"


positive = st.floats(0.5, 2.0)


@given(positive, positive, positive)
def test_verdict_properties(a: float, b: float, c: float) -> None:
    low, median, high = sorted((a, b, c))
    ratio = Interval(median, low, high, 50)
    said = verdict(ratio)
    assert said != "FASTER" or (high < 1 and median < 1 - SAME_MARGIN)
    assert said != "SLOWER" or (low > 1 and median > 1 + SAME_MARGIN)
    assert said != "SAME" or 1 - SAME_MARGIN <= median <= 1 + SAME_MARGIN
    assert said != "AMBIGUOUS" or not is_precise(ratio)


@given(positive, st.floats(1.0, 1 + SAME_MARGIN), st.floats(0, 1))
def test_what_is_precise_gets_an_answer(low: float, width: float, at: float) -> None:
    ratio = Interval(low * width**at, low, low * width, 50)
    expected = "FASTER" if ratio.median < 1 - SAME_MARGIN else "SLOWER" if ratio.median > 1 + SAME_MARGIN else "SAME"
    if is_precise(ratio):  # rounding may make it a hair wider
        assert verdict(ratio) == expected


def test_intervals_of_several_challengers_hold_together() -> None:
    assert familywise(0) == familywise(1) == CONFIDENCE
    rng = random.Random(3)
    for challengers in (2, 4):
        missed = 0
        for _ in range(800):
            default = [lognormal(rng) for _ in range(30)]
            intervals = [
                paired_ratio([lognormal(rng) for _ in default], default, familywise(challengers))
                for _ in range(challengers)
            ]
            missed += any(not r.low <= 1 <= r.high for r in intervals)
        assert missed / 800 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 800)
    assert familywise(4) <= 1 - 2 ** (1 - MIN_PAIRS)  # so many pairs are enough for four challengers


def test_paired_ratio_needs_pairs() -> None:
    with pytest.raises(ValueError, match="equally many"):
        paired_ratio([1.0], [1.0, 2.0])


def test_inverse_is_the_speed_up() -> None:
    assert Interval(0.5, 0.4, 0.8, 9).inverse() == Interval(2.0, 1.25, 2.5, 9)
