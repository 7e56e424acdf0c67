"""The processes of a job: those that compile and the one that measures serve one problem after the other."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from msgspec.structs import replace
from stand_in_processes import evaluator_of, until

from deuteron.tuner.evaluate.child import ChildProcess
from deuteron.tuner.evaluate.evaluator import LocalEvaluator
from deuteron.tuner.evaluate.processes import Processes
from deuteron.tuner.workloads import Problem, builtin_workload


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_on_a_gpu_the_measuring_process_prepares_while_the_first_configuration_compiles(
    processes: Processes, told: Any, kind: str
) -> None:
    """On a CPU it would take the cores of what is timed."""
    made = evaluator_of(processes, 64, kind, timeout=1.0)
    try:
        made.submit({"deed": "ok"})
        assert len(told.prepared()) == (kind == "cuda")
        assert made.compiled({"deed": "ok"}).status == "ok"
        assert made.screen({"deed": "ok"}, None).status == "ok"
        (prepared,) = told.prepared()
        assert prepared.pid == told.measured().pid
        assert made.screen({"deed": "exit"}, None).status == "crashed"
        made.submit({"deed": "print"})
        assert made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=2, fresh=True).status == "ok"
        assert made.screen({"deed": "hang"}, None).status == "timeout"
        assert made.screen({"deed": "ok"}, None).status == "ok"
    finally:
        made.close()
    kept = told.measured().child
    assert kept.running
    processes.close()
    assert kept.pid is None


def test_a_measuring_process_that_cannot_prepare_is_a_status(processes: Processes, told: Any) -> None:
    problem = Problem(replace(builtin_workload("vector_add"), name="unpreparable"), {"n": 64}, "f32")
    made = LocalEvaluator(problem, "cpu", "cpu", "cuda", {}, 0, timeout=1.0, processes=processes)
    try:
        made.submit({"deed": "ok"})
        for deed in ("ok", "print"):
            screened = made.screen({"deed": deed}, None)
            assert (screened.status, screened.error) == ("failed", "cannot prepare")
            made.submit({"deed": "print"})
        assert len(told.prepared()) == 1, "what it is to prepare may never end, and nobody would hear"
    finally:
        made.close()


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_next_problem_has_the_same_processes(processes: Processes, told: Any, kind: str) -> None:
    """With its own sizes and seed, and whatever the one before had begun."""
    pids = []
    for n in (64, 128, 256):
        made = evaluator_of(processes, n, kind, seed=n)
        made.submit({"deed": "ok"})
        assert made.compiled({"deed": "ok"}).metrics["n"] == n
        assert made.screen({"deed": "ok"}, None).status == "ok"
        raced = made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=3, fresh=False)
        assert (raced.reference or "").startswith(f"seed {n} in ")
        pids.append(((raced.reference or "").split()[-1], told.last("compile").pid))
        made.submit({"deed": "slow"})
        made.close()
    assert len(set(pids)) == 1


def test_what_was_compiled_for_another_problem_is_no_answer(processes: Processes) -> None:
    first = evaluator_of(processes, 64)
    for deed in ("slow", "ok"):
        first.submit({"deed": deed})
    first.close()
    second = evaluator_of(processes, 128)
    assert second.compiled({"deed": "slow"}).metrics["n"] == 128
    assert second.compiled({"deed": "ok"}).metrics["n"] == 128


@pytest.mark.parametrize("deed", ["segfault", "hang"])
def test_what_the_problem_before_broke_is_started_anew(processes: Processes, deed: str) -> None:
    first = evaluator_of(processes, 64)
    first.submit({"deed": deed})
    assert first.screen({"deed": deed}, None).status in ("crashed", "timeout")
    first.close()
    second = evaluator_of(processes, 128)
    assert second.screen({"deed": "ok"}, None).status == "ok"
    if deed == "segfault":
        assert second.compiled({"deed": "ok"}).metrics["n"] == 128


def test_a_process_that_owes_an_answer_does_not_measure_for_the_next_problem(processes: Processes, told: Any) -> None:
    """All that compiled failed, or the job was cancelled: it began to prepare, and nobody asked it for anything."""
    first = evaluator_of(processes, 65, seed=64)
    first.submit({"deed": "exit"})
    assert first.compiled({"deed": "exit"}).status == "crashed"
    (begun,) = told.prepared()
    first.close()
    second = evaluator_of(processes, 128, seed=128)
    for deed in ("ok", "print"):
        screened = second.screen({"deed": deed}, None)
        assert (screened.status, screened.reference) == ("ok", f"{deed} of n=128")
    raced = second.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=3, fresh=False)
    assert (raced.reference or "").startswith("seed 128 in ") and len(raced.times) == 1
    assert told.measured().pid != begun.pid
    second.close()


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_device_is_opened_before_it_is_known_what_for(processes: Processes, told: Any, kind: str) -> None:
    processes.begin_job("cuda:1")
    (opened,) = told.of("open", device="cuda:1")
    made = evaluator_of(processes, 64, kind, seed=3)
    raced = made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=3, fresh=False)
    assert raced.reference == f"seed 3 in {opened.pid}, cuda:1 open"
    made.close()


def test_a_process_ends_without_being_waited_for(processes: Processes, told: Any) -> None:
    """And is reaped when another one ends, or all do."""
    ending: list[ChildProcess] = []
    for _ in range(3):
        made = evaluator_of(processes, 65)  # the stand-in prepares it for 30 s
        made.submit({"deed": "slow"})
        made.prepare_final(5)
        ending.append(told.prepared(seed=5)[-1].child)
        os.kill(ending[-1].pid or 0, signal.SIGSTOP)
        made.close()
        assert [child.pid is None for child in ending] == [True] * (len(ending) - 1) + [False]
        until(lambda: not ending[-1].running)
    processes.close()
    assert all(child.pid is None for child in ending)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("deed", ["ok", "segfault", "hang"])
def test_what_is_done_meanwhile_does_not_disturb_what_is_screened(
    processes: Processes, told: Any, kind: str, deed: str
) -> None:
    """Configurations are submitted, also while the process that measures has ended."""
    made = evaluator_of(processes, 64, kind, timeout=1.0)
    assert made.screen({"deed": "ok"}, None).status == "ok"
    done: list[bool] = []

    def meanwhile() -> None:
        if deed == "segfault":
            until(lambda: not told.measured().child.running)
        made.submit({"deed": "print"})
        done.append(True)

    screened = made.screen({"deed": deed}, None, meanwhile)
    assert screened.status == {"ok": "ok", "segfault": "crashed", "hang": "timeout"}[deed]
    assert ("SIGSEGV" in (screened.error or "")) == (deed == "segfault")
    assert bool(done) == (kind == "cuda")
    assert made.screen({"deed": "ok"}, None).reference == "ok of n=64"
    assert made.compiled({"deed": "print"}).status == "ok"
    made.close()
