"""What is prepared beside the problem that is measured: processes and code for the next one."""

from __future__ import annotations

import itertools
import os
import signal
import time
from typing import Any

import pytest
from stand_in_processes import evaluator_of, until

from deuteron.tuner.codec import JsonObject
from deuteron.tuner.evaluate.compile_pool import CompilePool
from deuteron.tuner.evaluate.evaluator import LocalEvaluator
from deuteron.tuner.evaluate.growth import LargerVariant
from deuteron.tuner.evaluate.processes import Processes
from deuteron.tuner.space import Configuration
from deuteron.tuner.workloads import Problem, builtin_workload


def test_the_next_problem_is_prepared_beside_the_one_that_is_measured(processes: Processes, told: Any) -> None:
    """By the process that screened, which the final does not need; those of finals serve the next finals."""
    sizes = (64, 128, 256)
    made = [evaluator_of(processes, sizes[0], seed=3)]
    pids: dict[str, list[int]] = {"screen": [], "final": []}
    for n, following in itertools.zip_longest(sizes, sizes[1:]):
        (evaluator,) = made
        for seed in (5, 6):
            evaluator.prepare_final(seed)
        assert evaluator.screen({"deed": "ok"}, None).reference == f"ok of n={n}"
        if following == 256:  # before the final, or while it runs
            evaluator.prepare_next_problem(Problem(builtin_workload("vector_add"), {"n": following}, "f32"), {})
        screened = told.measured()
        for seed in (5, 6):
            raced = evaluator.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=seed, fresh=True)
            pids["final"].append(told.measured().pid)
            assert raced.reference == f"seed {seed} in {pids['final'][-1]}"
        if following == 128:
            evaluator.prepare_next_problem(Problem(builtin_workload("vector_add"), {"n": following}, "f32"), {})
        pids["screen"].append(screened.pid)
        if following is not None:
            (begun,) = told.prepared(dims={"n": following}, seed=3)
            assert begun.pid == screened.pid and begun.child is screened.child
            evaluator.close()
            made = [evaluator_of(processes, following, seed=3)]
    made[0].close()
    assert len(told.prepared(seed=3)) == 3, "what was prepared ahead screens"
    assert len(set(pids["screen"])) == 1 and len(set(pids["final"])) == 2
    assert not set(pids["screen"]) & set(pids["final"])


@pytest.mark.parametrize("seed, default", [(4, {}), (3, {"BLOCK": 8})])
def test_what_was_prepared_and_does_not_come_is_ended(
    processes: Processes, told: Any, seed: int, default: Configuration
) -> None:
    problem = Problem(builtin_workload("vector_add"), {"n": 128}, "f32")
    first = evaluator_of(processes, 64, seed=3)
    first.screen({"deed": "ok"}, None)
    first.prepare_next_problem(problem, {})
    assert not told.prepared(dims={"n": 128})
    first.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=5, fresh=True)
    (prepared,) = told.prepared(dims={"n": 128})
    first.close()
    second = LocalEvaluator(problem, "cpu", "cpu", "cuda", default, seed, timeout=1.0, processes=processes)
    until(lambda: not prepared.child.running)
    raced = second.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=3, fresh=False)
    assert (raced.reference or "").startswith(f"seed {seed} in ")
    assert told.measured().child is not prepared.child
    second.close()
    processes.close()
    assert prepared.child.pid is None


def test_a_prepared_process_that_died_is_started_again(processes: Processes, told: Any) -> None:
    made = evaluator_of(processes, 64)
    made.screen({"deed": "ok"}, None)
    made.prepare_final(5)
    (died,) = told.prepared(seed=5)
    os.kill(died.pid, signal.SIGKILL)
    until(lambda: not died.child.running)
    assert made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=5, fresh=True).status == "ok"
    assert told.measured().child is died.child and told.measured().pid != died.pid
    made.close()


def test_a_prepared_process_that_died_is_not_started_again_to_be_given_back(processes: Processes, told: Any) -> None:
    """The problem is done then, or failed."""
    made = evaluator_of(processes, 65)  # the stand-in prepares it for 30 s
    made.submit({"deed": "ok"})
    made.prepare_final(5)
    (died,) = told.prepared(seed=5)
    os.kill(died.pid, signal.SIGKILL)
    until(lambda: not died.child.running)
    before, began = len(told.prepared()), time.monotonic()
    made.close()
    assert (len(told.prepared()), time.monotonic() - began < 15) == (before, True)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_larger_problems_are_compiled_for_while_others_are_timed(
    processes: Processes, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First for what challenges the default; on a CPU that would disturb. What was asked for is still known then."""
    asked: list[tuple[object, object]] = []
    fill = CompilePool.fill_cache

    def noted(pool: CompilePool, wanted: list[tuple[JsonObject, Configuration]]) -> None:
        asked.extend((prepare["dims"], config) for prepare, config in wanted)
        fill(pool, wanted)

    monkeypatch.setattr(CompilePool, "fill_cache", noted)
    spec, deeds = builtin_workload("vector_add"), ("ok", "slow")
    problem = Problem(spec, {"n": 64}, "f32")

    def larger(config: Configuration) -> list[LargerVariant]:
        return [LargerVariant(Problem(spec, {"n": n}, "f32"), config, "cpu", 4) for n in (511, 1023)]

    made = LocalEvaluator(problem, "cpu", "cpu", kind, {}, 0, timeout=5.0, processes=processes, larger=larger)
    try:
        default, challenger = ({"deed": deed} for deed in deeds)
        assert made.race([default, challenger], rounds=1, seconds=1.0, seed=2, fresh=False).status == "ok"
        expected = [({"n": n}, config) for config in (challenger, default) for n in (511, 1023)]
        assert asked == ([] if kind == "cpu" else expected)
        assert made.compiled(default).metrics["n"] == 64
        asked.clear()
        made.extend(default, 3)
        assert asked == ([] if kind == "cpu" else expected[3:])  # the first one is made where it is tried
    finally:
        made.close()
