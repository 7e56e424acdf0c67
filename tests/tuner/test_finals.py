"""Processes of finals: new ones, ready before they are needed, and what is kept of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from stand_in_processes import evaluator_of, until

from deuteron.tuner.evaluate.evaluator import LocalEvaluator
from deuteron.tuner.evaluate.processes import MOST_FINALS, Processes
from deuteron.tuner.workloads import Problem, builtin_workload


def test_evaluator_races(evaluator: LocalEvaluator) -> None:
    two = [{"deed": "ok"}, {"deed": "print"}]
    raced = evaluator.race(two, rounds=7, seconds=1.0, seed=1, fresh=True)
    assert raced.status == "ok" and len(raced.times) == 2 and raced.sm_mhz == 1500
    bad = evaluator.race([*two, {"deed": "segfault"}], rounds=7, seconds=1, seed=1, fresh=False)
    assert bad.status == "crashed" and "SIGSEGV" in (bad.error or "")


def test_a_new_process_is_ready_when_the_final_begins(processes: Processes, told: Any) -> None:
    made = evaluator_of(processes, 64, seed=1)
    assert made.screen({"deed": "ok"}, None).status == "ok"
    screened = told.measured().pid
    for seed in (5, 6, 5):
        made.prepare_final(seed)
    begun = {message.payload["seed"]: message.pid for message in told.prepared() if message.pid != screened}
    assert len(told.prepared()) == 3 and len({screened, *begun.values()}) == 3
    for seed in (5, 6):
        raced = made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=seed, fresh=True)
        assert raced.reference == f"seed {seed} in {begun[seed]}"
    again = made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=6, fresh=True)
    assert (again.reference or "").startswith("seed 6 in ") and again.reference != f"seed 6 in {begun[6]}"
    made.prepare_final(7)
    (unused,) = told.prepared(seed=7)
    assert unused.child.running
    made.close()
    processes.close()
    assert unused.child.pid is None


def test_what_follows_is_prepared_once_what_measures_first_is(processes: Processes, told: Any) -> None:
    made = evaluator_of(processes, 64)
    made.prepare_final(5)
    assert not told.prepared()
    made.screen({"deed": "ok"}, None)
    (first, final) = told.prepared()
    assert first.child is told.measured().child and final.payload["seed"] == 5 and final.child.running
    made.close()


def test_finals_of_one_problem_are_in_different_processes(processes: Processes, told: Any) -> None:
    """However many there are: one that another problem had may serve, one that this problem had may not."""
    problems: list[tuple[int, set[int]]] = []
    for n in (64, 128, 256):
        made = evaluator_of(processes, n)
        made.screen({"deed": "ok"}, None)
        screened, finals = told.measured().pid, set()
        for seed in (5, 6, 6, 5):
            assert made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=seed, fresh=True).status == "ok"
            finals.add(told.measured().pid)
        assert len({screened, *finals}) == 5
        made.close()
        problems.append((screened, finals))
    for (screened, finals), (screened_next, finals_next) in itertools.pairwise(problems):
        assert screened == screened_next and len(finals & finals_next) == MOST_FINALS


@pytest.mark.parametrize("deed", ["segfault", "hang"])
def test_a_process_that_a_final_broke_is_not_kept(processes: Processes, told: Any, deed: str) -> None:
    made = evaluator_of(processes, 64, timeout=0.5)
    made.screen({"deed": "ok"}, None)
    made.prepare_final(5)
    assert made.race([{"deed": "ok"}], rounds=1, seconds=0.1, seed=5, fresh=True).status == "ok"
    final = told.measured()
    assert made.screen({"deed": deed}, None).status in ("crashed", "timeout")
    assert told.measured().child is final.child
    made.close()
    assert not final.child.running
    second = evaluator_of(processes, 128)
    second.screen({"deed": "ok"}, None)
    assert second.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=5, fresh=True).status == "ok"
    assert told.measured().child is not final.child
    second.close()


def test_an_unused_process_of_a_final_is_kept_once_it_has_prepared(processes: Processes, told: Any) -> None:
    made = evaluator_of(processes, 64)
    made.screen({"deed": "ok"}, None)
    made.prepare_final(5)
    (unused,) = told.prepared(seed=5)
    until(lambda: unused.child.arrived)
    made.close()
    second = evaluator_of(processes, 128)
    second.screen({"deed": "ok"}, None)
    raced = second.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=6, fresh=True)
    assert raced.reference == f"seed 6 in {unused.pid}"
    second.close()


def test_memory_of_finals_is_free_where_it_is_needed(processes: Processes, told: Any) -> None:
    made = evaluator_of(processes, 64)
    made.screen({"deed": "ok"}, None)
    made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=5, fresh=True)
    final = told.measured().child
    made.close()
    assert final.running
    evaluator_of(processes, 128, ahead=False).close()
    assert final.pid is None


@pytest.mark.parametrize("kind, ahead", [("cpu", True), ("cuda", False)], ids=["on a CPU", "where memory is short"])
def test_nothing_is_started_beside_what_is_measured(processes: Processes, told: Any, kind: str, ahead: bool) -> None:
    """What screened is gone before a final begins, and that before the next one."""
    made = evaluator_of(processes, 64, kind, ahead=ahead)
    made.prepare_final(5)
    made.screen({"deed": "ok"}, None)
    made.prepare_final(6)
    following = Problem(builtin_workload("vector_add"), {"n": 128}, "f32")
    made.prepare_next_problem(following, {})
    assert len(told.prepared()) == 1
    for finals, seed in enumerate((5, 6)):
        assert len(told.prepared()) == 1 + finals and told.measuring() == {told.measured().child}
        before = told.measured()
        made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=seed, fresh=True)
        assert told.measuring() == {told.measured().child} and before.child.pid is None
        assert told.prepared()[-1].payload["seed"] == seed
    made.prepare_next_problem(following, {})
    made.close()
    assert len(told.prepared()) == 3
