"""The stopping rule on synthetic times: when it ends, and that ending early keeps what intervals promise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from deuteron.tuner.measure.statistics import SAME_MARGIN, Interval, familywise, paired_ratio, verdict
from deuteron.tuner.measure.stopping import CLEAR_CONFIDENCE, FIRST_LOOK, is_settled, next_look


def gaussian(rng: random.Random) -> float:
    return math.exp(rng.gauss(0, 0.01))


def stepping(rng: random.Random) -> float:
    """A clock with two levels."""
    return (1.06 if rng.random() < 0.4 else 1.0) * math.exp(rng.gauss(0, 0.003))


def interrupted(rng: random.Random) -> float:
    """A third of the samples meet a neighbour."""
    return math.exp(rng.gauss(0, 0.004)) + (rng.expovariate(3) if rng.random() < 0.3 else 0.0)


def measure(
    rng: random.Random, ratio: float, noise: Callable[[random.Random], float], challengers: int, most: int = 1000
) -> list[Interval]:
    """The ratios of equally fast challengers when the rule has ended the rounds."""
    times: list[list[float]] = [[] for _ in range(challengers + 1)]
    look = 0
    while look < most:
        look = next_look(look)
        for candidate, values in enumerate(times):
            values += [noise(rng) * (ratio if candidate else 1.0) for _ in range(look - len(values))]
        if is_settled(times):
            break
    return [paired_ratio(values, times[0], familywise(challengers)) for values in times[1:]]


def test_looks_are_few() -> None:
    looks = [next_look(0)]
    while looks[-1] < 20_000:
        looks.append(next_look(looks[-1]))
    assert looks[0] == FIRST_LOOK and looks == sorted(set(looks)) and len(looks) < 40


@given(st.integers(0, 1000), st.integers(FIRST_LOOK, 200), st.floats(1 - 2 * SAME_MARGIN, 1 + 2 * SAME_MARGIN))
def test_near_the_margin_it_ends_by_precision_or_for_equals(seed: int, rounds: int, factor: float) -> None:
    """Nobody's being ahead ends it: only an interval that is narrow, or that is within the margin."""
    rng = random.Random(seed)
    default = [gaussian(rng) for _ in range(rounds)]
    challenger = [factor * gaussian(rng) for _ in range(rounds)]
    ratio = paired_ratio(challenger, default, familywise(1))
    assume(ratio.low > 1 - 2 * SAME_MARGIN and ratio.high < 1 + 2 * SAME_MARGIN)
    sure = paired_ratio(challenger, default, CLEAR_CONFIDENCE)
    assume(sure.high >= 1 - SAME_MARGIN and sure.low <= 1 + SAME_MARGIN)
    equal = ratio.low >= 1 - SAME_MARGIN and ratio.high <= 1 + SAME_MARGIN
    assert is_settled([default, challenger]) == (equal or ratio.high <= ratio.low * (1 + SAME_MARGIN))


def test_equals_need_half_the_precision() -> None:
    """Intervals of nearly twice the margin's width: around 1 they end it, beside it they do not."""
    default = [1.0] * 40
    challenger = [0.9905, 1.0095] * 20
    assert is_settled([default, challenger])
    assert not is_settled([default, [1.005 * value for value in challenger]])
    assert not is_settled([default, [0.995 * value for value in challenger]])


def test_every_challenger_must_be_settled() -> None:
    rng = random.Random(1)
    default = [1.0] * 40
    noisy = [1 + rng.gauss(0, 0.05) for _ in default]
    assert is_settled([default])
    assert is_settled([default, default])
    assert not is_settled([default, noisy])
    assert not is_settled([default, default, noisy])


def test_a_clear_difference_needs_no_precision() -> None:
    rng = random.Random(2)
    default = [1 + rng.gauss(0, 0.03) for _ in range(40)]
    assert is_settled([default, [0.8 * (1 + rng.gauss(0, 0.03)) for _ in default]])
    assert is_settled([default, [1.2 * (1 + rng.gauss(0, 0.03)) for _ in default]])
    assert not is_settled([default, [0.99 * (1 + rng.gauss(0, 0.03)) for _ in default]])


@pytest.mark.parametrize("noise", [gaussian, stepping, interrupted])
@pytest.mark.parametrize("ratio", [1.0, 0.99, 0.7])
def test_ending_early_keeps_the_coverage(noise: Callable[[random.Random], float], ratio: float) -> None:
    rng = random.Random(f"{noise.__name__}{ratio}")
    runs = 300
    missed = sum(
        any(not found.low <= ratio <= found.high for found in measure(rng, ratio, noise, 2)) for _ in range(runs)
    )
    # 5 % are promised; three standard errors of 300 runs are 3.8 %
    assert missed / runs <= 0.05 + 0.038


@pytest.mark.parametrize(("ratio", "expected"), [(1.0, "SAME"), (0.995, "SAME"), (0.98, "FASTER"), (1.02, "SLOWER")])
@pytest.mark.parametrize("noise", [gaussian, stepping, interrupted])
def test_what_it_ends_with_is_an_answer(noise: Callable[[random.Random], float], ratio: float, expected: str) -> None:
    rng = random.Random(7)
    said = [verdict(found) == expected for _ in range(60) for found in measure(rng, ratio, noise, 2)]
    assert sum(said) / len(said) >= 0.95


def test_of_many_challengers_each_must_be_clearer() -> None:
    """What one of a thousand looks would say by chance, one of eight says eight times as often."""
    between = 0
    for seed in range(100):
        rng = random.Random(seed)
        default, challenger = ([level * (1 + rng.gauss(0, 0.1)) for _ in range(60)] for level in (1.0, 1.08))
        one, eight = (paired_ratio(challenger, default, 1 - (1 - CLEAR_CONFIDENCE) / count).low for count in (1, 8))
        assert is_settled([default, challenger]) == (one > 1 + SAME_MARGIN)
        assert is_settled([default] + [challenger] * 8) == (eight > 1 + SAME_MARGIN)
        between += one > 1 + SAME_MARGIN >= eight
    assert between > 3


def test_the_faster_of_two_winners_is_worth_more_rounds() -> None:
    """Sixteen rounds say of both that they are faster than the default, and not which one to store."""
    rng = random.Random(11)
    default, near, best = ([level * (1 + rng.gauss(0, 0.04)) for _ in range(600)] for level in (1.0, 0.81, 0.8))
    few = [[times[:16] for times in group] for group in ([default, best], [default, near], [default, near, best])]
    assert is_settled(few[0]) and is_settled(few[1])
    assert not is_settled(few[2])
    assert is_settled([default, near, best])
    far = [0.6 * (1 + rng.gauss(0, 0.04)) for _ in range(16)]
    assert is_settled([default[:16], near[:16], far])
    assert is_settled([default[:16], near[:16], [1.3 * time for time in default[:16]]])
