"""What crashes, hangs or takes too long: how much time a configuration and a preparation have."""

from __future__ import annotations

import time

import pytest
from stand_in_processes import evaluator_of

from deuteron.compiler import get_device
from deuteron.tuner.codec import JsonObject
from deuteron.tuner.evaluate import hanging, measuring
from deuteron.tuner.evaluate.evaluator import LocalEvaluator
from deuteron.tuner.evaluate.hanging import ScreenLimit
from deuteron.tuner.evaluate.measuring import MeasuringProcess
from deuteron.tuner.evaluate.processes import Processes
from deuteron.tuner.evaluators import local_evaluators
from deuteron.tuner.workloads import Problem, builtin_workload


def test_evaluator_turns_crashes_and_timeouts_into_statuses(evaluator: LocalEvaluator) -> None:
    good = evaluator.screen({"deed": "ok"}, None)
    assert good.status == "ok" and good.time_ns is not None and good.time_ns.median == 5.0
    assert evaluator.screen({"deed": "segfault"}, None).status == "crashed"
    assert evaluator.screen({"deed": "hang"}, None).status == "timeout"
    assert evaluator.screen({"deed": "ok"}, 3.0).status == "ok"


def test_preparing_has_the_time_of_the_budget_and_says_what_it_is(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a default configuration that never ends: its job must not take five minutes to find out."""
    monkeypatch.setattr(measuring, "_SAY_AFTER_SECONDS", 0.2)
    problem = Problem(builtin_workload("vector_add"), {"n": 65}, "f32")  # the stand-in prepares it for 30 s
    made = LocalEvaluator(problem, "cpu", "cpu", "cpu", {}, 0, processes=processes, patience=1.0)
    began = time.monotonic()
    screened = made.screen({"deed": "ok"}, None)
    assert (screened.status, time.monotonic() - began < 15) == ("timeout", True)
    assert "not prepared after 1 s" in str(screened.error)
    assert (
        "waiting for the inputs and the expected result of vector_add_kernel at n=65 f32, for 1 s at most"
        in caplog.text
    )
    made.close()


@pytest.mark.parametrize(
    ("budget", "seconds"), [(None, 300), (10.0, 60), (100.0, 100), (3600.0, 300)], ids=lambda value: str(value)
)
def test_patience_is_the_budget_s_within_limits(
    budget: float | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def request(process: MeasuringProcess, *what: object, patience: float) -> JsonObject:
        asked.append(patience)
        return {"status": "failed"}

    monkeypatch.setattr(MeasuringProcess, "request", request)
    assert measuring.patience_for(budget) == seconds
    with local_evaluators("cpu", budget) as make:
        made = make(Problem(builtin_workload("vector_add"), {"n": 64}, "f32"), get_device("cpu"), {}, 0)
        made.screen({}, None)
        made.race([{}], rounds=1, seconds=1.0, seed=0, fresh=False)
        made.close()
    assert asked == [seconds, seconds]


def test_what_takes_far_longer_than_all_others_hangs(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hanging, "LEAST_SCREEN_SECONDS", 0.5)
    made = evaluator_of(processes, 64, "cpu", timeout=20.0)
    assert made.screen({"deed": "ok"}, None).status == "ok"
    began = time.monotonic()
    assert made.screen({"deed": "hang"}, None).status == "timeout"
    assert time.monotonic() - began < 15
    made.close()


def test_the_longest_that_worked_says_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first may take all of its time, since nothing is known yet."""
    monkeypatch.setattr(hanging, "LEAST_SCREEN_SECONDS", 0.5)
    limit = ScreenLimit(20.0)
    assert limit.seconds == 20.0
    for taken, seconds in ((0.001, 0.5), (0.1, 10.0), (0.05, 10.0), (1.0, 20.0)):
        limit.note(taken)
        assert limit.seconds == pytest.approx(seconds)
