"""When a benchmark says that one candidate is slower than another."""

import random

import pytest
from timing import Timing, _interval_of_median, race


def test_the_interval_covers_the_median_as_often_as_it_says():
    draw = random.Random(3)
    for count in (6, 17, 50):
        covered = 0
        for _ in range(2000):
            low, high = _interval_of_median(sorted(draw.lognormvariate(0.0, 0.5) for _ in range(count)))
            covered += low <= 1.0 <= high  # the median of that distribution
        assert covered / 2000 > 0.94
        assert covered / 2000 < 0.98


@pytest.mark.parametrize("count", range(6))
def test_few_launches_have_no_interval(count):
    assert _interval_of_median(sorted(range(count))) is None


def test_slower_is_beyond_both_intervals():
    near, far = Timing(1.02, 0.1, 50, (0.99, 1.05)), Timing(1.2, 0.1, 50, (1.1, 1.3))
    fast = Timing(1.0, 0.1, 50, (0.98, 1.03))
    assert far.is_slower_than(fast)
    assert not near.is_slower_than(fast)
    assert not fast.is_slower_than(far)
    assert not Timing(9.0, 0.1, 3).is_slower_than(fast)


def test_a_race_measures_intervals():
    timings = race({"a": lambda: None, "b": lambda: None}, "cpu", 12, lambda name: None)
    assert all(t.between is not None and t.between[0] <= t.us <= t.between[1] for t in timings.values())
