"""When a search may end, from made-up expectations and times."""

from __future__ import annotations

import numpy as np

from deuteron.tuner.strategies.surrogate.history import History
from deuteron.tuner.strategies.surrogate.settling import GAIN, LEAST, PATIENCE, PROPOSALS, Settling


def told(times: list[float | None]) -> History:
    history = History()
    for number, time in enumerate(times):
        history.tell(np.array([number], np.int16), time)
    return history


def settled(times: list[float | None], *expected: float | None) -> bool:
    """After proposals of which so much was ``expected``, one number standing for as many as are looked at."""
    settling = Settling()
    for gain in expected * (PROPOSALS if len(expected) == 1 else 1):
        settling.proposed(gain)
    return settling.why(told(times)) is not None


def after(idle: int) -> list[float | None]:
    """Times of a search of which the last ``idle`` evaluations won nothing."""
    return [*[100.0 - 5 * i for i in range(LEAST // 2)], *[51.0 for _ in range(LEAST // 2)], 49.0, *[50.0] * idle]


def test_the_longer_nothing_is_won_the_more_may_be_expected() -> None:
    for idle in (0, 10, 60):
        enough = PATIENCE * (1 + idle)
        assert settled(after(idle), 0.99 * enough)
        assert not settled(after(idle), 1.01 * enough)
        assert not settled(after(idle), None)  # the model was not asked
    assert Settling().why(told(after(60))) is None


def test_what_is_expected_is_the_mean_of_several_proposals() -> None:
    times = after(9)
    enough = 10 * PATIENCE
    few = [0.0] * (PROPOSALS - 1)
    assert not settled(times, *few)
    assert settled(times, *few, 0.99 * enough * PROPOSALS)
    assert not settled(times, *few, 1.01 * enough * PROPOSALS)
    assert not settled(times, 1.0, *few)
    assert settled(times, 1.0, *few, 0.0)
    assert not settled(times, *few, None, 0.0)  # the model was not asked for one of them


def test_a_gain_begins_the_wait_anew() -> None:
    waited: list[float | None] = [100.0] * (LEAST + 30)
    expected = PATIENCE * 20
    assert settled(waited, expected)
    assert not settled([*waited, 100 * (1 - 2 * GAIN)], expected)
    assert settled([*waited, 100 * (1 - GAIN / 2)], expected)


def test_failures_neither_count_nor_wait() -> None:
    """What fails says nothing of how fast the others are."""
    failed: list[float | None] = [None] * 40
    assert not settled([*failed, 100.0, *failed], 0.0)
    assert not settled([*failed, *[100.0] * (LEAST - 1), *failed], 0.0)
    assert settled([*failed, *[100.0] * LEAST, *failed], 0.0)
    for idle in (0, 10, 60):
        enough = PATIENCE * (1 + idle)
        assert settled([*after(idle), *failed], 0.99 * enough)
        assert not settled([*after(idle), *failed], 1.01 * enough)


def test_short_searches_are_not_ended() -> None:
    assert not settled([100.0] * (LEAST - 1), 0.0)
    assert settled([100.0] * LEAST, 0.0)
