"""Verdicts around timing: what is wrong before, while or after it is timed has no time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from checked_kernel import goes_wrong, spoiling

from deuteron.tuner import Problem
from deuteron.tuner.evaluate import session as session_module
from deuteron.tuner.evaluate.messages import Prepare, Race, Screen
from deuteron.tuner.evaluate.session import ChildSession
from deuteron.tuner.measure import sampling
from deuteron.tuner.workloads.tolerance import Comparison


def session_of(problem: Problem) -> ChildSession:
    session = ChildSession()
    default = {"WRONG": 0, "BLOCK": 64}
    session.prepare(Prepare(problem.spec, problem.dims, "f32", "cpu", device="cpu", default=default, seed=1))
    return session


def test_what_is_wrong_is_not_timed(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(problem)
    timed: list[bool] = []
    look = session_module.first_look
    monkeypatch.setattr(session_module, "first_look", lambda *how: (timed.append(True), look(*how))[1])
    for wrong in (1, 0, 1):
        screened = session.screen(Screen({"WRONG": wrong, "BLOCK": 64}))
        assert (screened.status, screened.time_ns is None) == (("wrong_result", True) if wrong else ("ok", False))
        assert (screened.measure_seconds > 0) is (not wrong)
    assert timed == [True]


def test_what_is_wrong_after_it_was_timed_is_wrong(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the screen at the next launch, in a final at one of several."""
    default, other = {"WRONG": 0, "BLOCK": 64}, {"WRONG": 0, "BLOCK": 32}
    session = session_of(problem)
    checker, _ = session._ready()
    goes_wrong(monkeypatch, checker, [2])  # the check, what is timed, the check
    screened = session.screen(Screen(default))
    assert (screened.status, screened.time_ns) == ("wrong_result", None)
    assert str(screened.error).endswith("(not in its first launch: its programs may race)")
    assert session.screen(Screen(default)).status == "ok"
    monkeypatch.undo()
    goes_wrong(monkeypatch, checker, [2])
    slow = session.screen(Screen(default, best_ns=1e-3))
    assert (slow.status, slow.hopeless) == ("ok", True)
    monkeypatch.undo()
    checks = checker.check_often
    monkeypatch.setattr(
        checker, "check_often", lambda config: Comparison(2.0, "wrong") if config == other else checks(config)
    )
    raced = session.race(Race((default, other), 8, 0.0, 1, final=True))
    assert raced.errors == [None, "wrong (not in its first launch: its programs may race)"]
    assert [bool(times) for times in raced.times] == [True, False]


def test_who_damages_while_it_is_timed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not who comes next; and of several that were timed together all but the default, which does it alone or not."""
    problem, right, spoils = spoiling(tmp_path)
    other = {"WRONG": 0, "BLOCK": 32}
    session = session_of(problem)
    checker, _ = session._ready()
    timed = sampling.Stopwatch.launches_per_sample

    def damaging(stopwatch: sampling.Stopwatch, launch: Callable[[], None]) -> int:
        checker.launch(spoils)()
        return timed(stopwatch, launch)

    monkeypatch.setattr(sampling.Stopwatch, "launches_per_sample", damaging)
    screened = session.screen(Screen(right))
    assert screened.status == "wrong_result" and "changed 1000 elements of the input" in str(screened.error)
    raced = session.race(Race((right, other, right), 8, 0.0, 1, final=True))
    assert [error is None for error in raced.errors] == [True, False, False]
    assert [bool(times) for times in raced.times] == [True, False, False]
    monkeypatch.undo()
    assert session.screen(Screen(right)).status == "ok"
