"""When a search may end, from made-up expectations and times."""

from __future__ import annotations

import numpy as np

from deuteron.tuner.strategies.surrogate.history import History
from deuteron.tuner.strategies.surrogate.settling import GAIN, IDLE, LEAST, LITTLE, PROPOSALS, Settling


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


NOTHING, MUCH = LITTLE / 2, 2 * LITTLE


def test_little_expected_and_nothing_won() -> None:
    times: list[float | None] = [100.0, *[101.0] * (LEAST + IDLE)]
    assert settled(times, NOTHING)
    assert not settled(times, MUCH)
    assert not settled(times, None)  # the model was not asked
    assert Settling().why(told(times)) is None


def test_little_must_be_expected_of_several_in_a_row() -> None:
    times: list[float | None] = [100.0] * (LEAST + IDLE)
    few = [NOTHING] * (PROPOSALS - 1)
    assert not settled(times, *few)
    assert settled(times, *few, NOTHING)
    assert not settled(times, MUCH, *few)
    assert settled(times, MUCH, *few, NOTHING)
    assert not settled(times, *few, None, NOTHING)  # the model was not asked for one of them


def test_a_gain_begins_the_wait_anew() -> None:
    before: list[float | None] = [100.0] * LEAST
    idle: list[float | None] = [100.0] * (IDLE - 1)
    faster, as_fast = 100 * (1 - 2 * GAIN), 100 * (1 - GAIN / 2)
    assert not settled([*before, faster, *idle], NOTHING)
    assert settled([*before, faster, *idle, 100.0], NOTHING)
    assert settled([*before, as_fast, *idle], NOTHING)


def test_failures_win_nothing() -> None:
    assert settled([100.0, *[None] * (LEAST + IDLE)], NOTHING)


def test_short_searches_are_not_ended() -> None:
    assert not settled([100.0] * (LEAST - 1), NOTHING)
