"""Seconds of steps, and of steps inside them, on a clock that the test turns."""

from __future__ import annotations

import pytest

from deuteron.tuner import step_clock
from deuteron.tuner.step_clock import StepClock


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(step_clock, "time", made)
    return made


def test_steps_of_one_name_are_added_up(clock: Clock) -> None:
    watch = StepClock()
    for seconds in (1.0, 2.5):
        with watch.step("propose"):
            clock.now += seconds
        clock.now += 10.0  # of nobody
    assert watch.seconds == {"propose": 3.5}


def test_what_a_step_inside_takes_is_that_ones(clock: Clock) -> None:
    watch = StepClock()
    with watch.step("begin"):
        clock.now += 1.0
        with watch.step("propose"):
            clock.now += 2.0
            with watch.step("begin"):
                clock.now += 4.0
        clock.now += 8.0
    assert watch.seconds == {"begin": 13.0, "propose": 2.0}


def test_a_step_that_fails_has_taken_its_time(clock: Clock) -> None:
    watch = StepClock()
    with pytest.raises(OSError, match="disk"), watch.step("begin"):
        clock.now += 3.0
        raise OSError("disk")
    with watch.step("end"):
        clock.now += 1.0
    assert watch.seconds == {"begin": 3.0, "end": 1.0}
