"""Rules that end recorded searches: what they cost and lose, on searches made up."""

from __future__ import annotations

from pathlib import Path

import pytest
import stopping
from stopping import LEAST, RULES, Search, below, capped, cost, curve, own, read_searches, write_searches

from deuteron.tuner.replay.recording import RecordedTrial, Recording
from deuteron.tuner.space import Parameter


def searched(recording: str, seed: int, gain_at: int, settled: int | None, length: int = 100) -> Search:
    """At half of the optimum, and at all of it from evaluation ``gain_at`` on."""
    fractions = tuple(0.5 if n < gain_at else 1.0 for n in range(1, length + 1))
    return Search(recording, seed, fractions, tuple([None] * 8 + [1.0 / n for n in range(9, length + 1)]), settled)


EARLY, LATE = searched("a", 0, 10, 30), searched("a", 1, 60, None)


def test_a_rule_costs_what_it_waits_and_loses_what_comes_later() -> None:
    assert LATE.stopped(below("fixed number", -50)(LATE)) == (50, 0.5)
    assert LATE.stopped(below("fixed number", -60)(LATE)) == (60, 0.0)
    assert LATE.stopped(below("no gain in so many", -40)(LATE)) == (41, 0.5)
    assert EARLY.stopped(below("no gain in so many", -40)(EARLY)) == (50, 0.0)
    assert EARLY.stopped(below("no gain in so many", -1)(EARLY)) == (LEAST, 0.0)
    assert EARLY.stopped(own(EARLY)) == (30, 0.0) and LATE.stopped(own(LATE)) == (100, 0.0)
    assert LATE.stopped(capped(own, 45)(LATE)) == (45, 0.5)
    # the greatest of five expectations is 1 / (n - 4), and nothing stops while the model was not asked
    assert LATE.stopped(below("greatest expectation of 5", 1 / 26)(LATE)) == (30, 0.5)
    assert LATE.stopped(below("greatest expectation of 5", 1.0)(LATE)) == (LEAST, 0.5)


def test_spaces_count_alike_and_errors_are_those_of_the_seeds() -> None:
    other = [searched("b", seed, 10, 40) for seed in range(4)]
    found = cost([EARLY, LATE, *other], own)
    assert found.evaluations == pytest.approx(((30 + 100) / 2 + 40) / 2)
    assert found.evaluations_error == pytest.approx((2450 / 2) ** 0.5 / 2)  # the variance of 30 and 100 is 2450
    assert found.loss == found.loss_error == 0
    assert cost([EARLY, LATE, *other], RULES["fixed 50"]).loss == pytest.approx(0.125)


def test_a_curve_falls_from_early_to_late() -> None:
    points = curve([EARLY, LATE], "fixed number")
    assert points[0] == (LEAST, 0.25) and points[-1][1] == 0
    assert [count for count, _ in points] == sorted(count for count, _ in points)


def test_searches_are_kept(tmp_path: Path) -> None:
    write_searches([EARLY, LATE], tmp_path / "searches.json.gz")
    assert read_searches(tmp_path / "searches.json.gz") == [EARLY, LATE]


def test_a_search_of_a_recording_is_what_rules_need(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = (Parameter("x", tuple(range(40))), Parameter("y", (0, 1)))
    trials = tuple(RecordedTrial({"x": x, "y": y}, 100.0 + abs(x - 7) + y) for x in range(40) for y in (0, 1))
    recording = Recording("bowl", "none", "none", parameters, trials)
    monkeypatch.setattr(stopping, "MOST", 40)
    found = stopping.searched(recording, recording.space("constrained"), 0)
    assert len(found.fractions) == len(found.expected) == 40 and found.fractions[-1] == 1.0
    assert found.expected[0] is None and found.expected[-1] is not None
    assert found.settled is not None and LEAST <= found.settled <= 40
