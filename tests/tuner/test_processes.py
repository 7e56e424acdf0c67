"""The processes of a job: one shape after the other in the same ones, and new ones ready before they are needed."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from deuteron.compiler import get_device
from deuteron.tuner.codec import JsonObject
from deuteron.tuner.evaluate import evaluator as module
from deuteron.tuner.evaluate import measuring
from deuteron.tuner.evaluate.compile_pool import CompilePool
from deuteron.tuner.evaluate.evaluator import LocalEvaluator
from deuteron.tuner.evaluate.nursery import Nursery
from deuteron.tuner.evaluate.processes import MOST_FINALS, Processes
from deuteron.tuner.space import Configuration
from deuteron.tuner.study import local_evaluators
from deuteron.tuner.workloads import Problem, builtin_workload

COMMAND = (sys.executable, "-X", "faulthandler", str(Path(__file__).with_name("stand_in.py")))


@pytest.fixture
def processes(nursery: Nursery | None) -> Iterator[Processes]:
    with Processes(workers=1, command=COMMAND, nursery=nursery) as made:
        yield made


@pytest.fixture
def evaluator(processes: Processes) -> Iterator[LocalEvaluator]:
    problem = Problem(builtin_workload("vector_add"), {"n": 64}, "f32")
    made = LocalEvaluator(problem, "cpu", "cpu", "cpu", {}, 0, timeout=1.0, processes=processes)
    yield made
    made.close()


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
def test_patience_is_the_budget_s_within_limits(budget: float | None, seconds: float) -> None:
    assert measuring.patience_for(budget) == seconds
    with local_evaluators("cpu", budget) as make:
        made = make(Problem(builtin_workload("vector_add"), {"n": 64}, "f32"), get_device("cpu"), {}, 0)
        assert isinstance(made, LocalEvaluator) and made._patience == seconds
        made.close()


def test_what_takes_far_longer_than_all_others_hangs(
    evaluator: LocalEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first may take all of its time, since nothing is known yet."""
    monkeypatch.setattr(module, "LEAST_SCREEN_SECONDS", 0.5)
    evaluator._timeout = 20.0
    assert evaluator._screen_seconds() == 20.0
    assert evaluator.screen({"deed": "ok"}, None).status == "ok"
    began = time.monotonic()
    assert evaluator.screen({"deed": "hang"}, None).status == "timeout"
    assert time.monotonic() - began < 15
    evaluator._longest = 0.1
    assert evaluator._screen_seconds() == pytest.approx(10.0)
    evaluator._longest = 1.0
    assert evaluator._screen_seconds() == 20.0


def test_evaluator_races(evaluator: LocalEvaluator) -> None:
    two = [{"deed": "ok"}, {"deed": "print"}]
    raced = evaluator.race(two, rounds=7, seconds=1.0, seed=1, fresh=True)
    assert raced.status == "ok" and len(raced.times) == 2 and raced.sm_mhz == 1500
    bad = evaluator.race([*two, {"deed": "segfault"}], rounds=7, seconds=1, seed=1, fresh=False)
    assert bad.status == "crashed" and "SIGSEGV" in (bad.error or "")


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_on_a_gpu_the_measuring_process_prepares_while_the_first_configuration_compiles(
    processes: Processes, kind: str
) -> None:
    """On a CPU it would take the cores of what is timed."""
    problem = Problem(builtin_workload("vector_add"), {"n": 64}, "f32")
    made = LocalEvaluator(problem, "cpu", "cpu", kind, {}, 0, timeout=1.0, processes=processes)
    try:
        made.submit({"deed": "ok"})
        assert made._measuring.child.running == (kind == "cuda")
        begun = made._measuring.child.pid
        assert made.compiled({"deed": "ok"}).status == "ok"
        assert made.screen({"deed": "ok"}, None).status == "ok"
        assert (made._measuring.child.pid == begun) == (kind == "cuda")
        assert made.screen({"deed": "exit"}, None).status == "crashed"
        made.submit({"deed": "print"})
        assert made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=2, fresh=True).status == "ok"
        assert made.screen({"deed": "hang"}, None).status == "timeout"
        assert made.screen({"deed": "ok"}, None).status == "ok"
    finally:
        made.close()
    assert made._measuring.child.pid is not None
    processes.close()
    assert made._measuring.child.pid is None


def test_a_measuring_process_that_cannot_prepare_is_a_status(processes: Processes) -> None:
    problem = Problem(replace(builtin_workload("vector_add"), name="unpreparable"), {"n": 64}, "f32")
    made = LocalEvaluator(problem, "cpu", "cpu", "cuda", {}, 0, timeout=1.0, processes=processes)
    try:
        made.submit({"deed": "ok"})
        screened = made.screen({"deed": "ok"}, None)
        assert (screened.status, screened.error) == ("failed", "cannot prepare")
    finally:
        made.close()


def evaluator_of(processes: Processes, n: int, kind: str = "cuda", seed: int = 0) -> LocalEvaluator:
    problem = Problem(builtin_workload("vector_add"), {"n": n}, "f32")
    return LocalEvaluator(problem, "cpu", "cpu", kind, {}, seed, timeout=2.0, processes=processes)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_next_problem_has_the_same_processes(processes: Processes, kind: str) -> None:
    """With its own sizes and seed, and whatever the one before had begun."""
    pids = []
    for n in (64, 128, 256):
        made = evaluator_of(processes, n, kind, seed=n)
        made.submit({"deed": "ok"})
        assert made.compiled({"deed": "ok"}).metrics["n"] == n
        assert made.screen({"deed": "ok"}, None).status == "ok"
        raced = made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=3, fresh=False)
        assert (raced.reference or "").startswith(f"seed {n} in ")
        pids.append(((raced.reference or "").split()[-1], made._pool._slots[0].child.pid))
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
    second._pool._timeout = 0.5
    assert second.screen({"deed": "ok"}, None).status == "ok"
    if deed == "segfault":
        assert second.compiled({"deed": "ok"}).metrics["n"] == 128


def test_a_process_that_owes_an_answer_does_not_measure_for_the_next_problem(processes: Processes) -> None:
    """All that compiled failed, or the job was cancelled: it began to prepare, and nobody asked it for anything."""
    first = evaluator_of(processes, 65, seed=64)
    first.submit({"deed": "exit"})
    assert first.compiled({"deed": "exit"}).status == "crashed"
    begun = first._measuring.child.pid
    first.close()
    second = evaluator_of(processes, 128, seed=128)
    for deed in ("ok", "print"):
        screened = second.screen({"deed": deed}, None)
        assert (screened.status, screened.reference) == ("ok", f"{deed} of n=128")
    raced = second.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=3, fresh=False)
    assert (raced.reference or "").startswith("seed 128 in ") and len(raced.times) == 1
    assert second._measuring.child.pid != begun
    second.close()


def test_a_new_process_is_ready_when_the_final_begins(processes: Processes) -> None:
    made = evaluator_of(processes, 64, seed=1)
    assert made.screen({"deed": "ok"}, None).status == "ok"
    for seed in (5, 6, 5):
        made.anticipate(seed)
    begun = {seed: process.child.pid for seed, process in made._anticipated.items()}
    assert len(set(begun.values()) | {made._measuring.child.pid}) == 3
    for seed in (5, 6):
        raced = made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=seed, fresh=True)
        assert raced.reference == f"seed {seed} in {begun[seed]}"
    again = made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=6, fresh=True)
    assert (again.reference or "").startswith("seed 6 in ") and again.reference != f"seed 6 in {begun[6]}"
    made.anticipate(7)
    unused = made._anticipated[7].child
    made.close()
    processes.close()
    assert unused.pid is None


def test_what_follows_is_prepared_once_what_measures_first_is(processes: Processes) -> None:
    made = evaluator_of(processes, 64)
    made.anticipate(5)
    assert not made._anticipated
    made.screen({"deed": "ok"}, None)
    assert made._anticipated[5].child.running
    made.close()


def test_the_next_problem_is_prepared_beside_the_one_that_is_measured(processes: Processes) -> None:
    """By the process that screened, which the final does not need; those of finals serve the next finals."""
    sizes = (64, 128, 256)
    made = [evaluator_of(processes, sizes[0], seed=3)]
    pids: dict[str, list[int]] = {"screen": [], "final": []}
    for n, following in itertools.zip_longest(sizes, sizes[1:]):
        (evaluator,) = made
        for seed in (5, 6):
            evaluator.anticipate(seed)
        assert evaluator.screen({"deed": "ok"}, None).reference == f"ok of n={n}"
        if following == 256:  # before the final, or while it runs
            evaluator.expect(Problem(builtin_workload("vector_add"), {"n": following}, "f32"), {})
        screened = evaluator._measuring.child.pid
        for seed in (5, 6):
            raced = evaluator.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=seed, fresh=True)
            pids["final"].append(evaluator._measuring.child.pid or 0)
            assert raced.reference == f"seed {seed} in {pids['final'][-1]}"
        if following == 128:
            evaluator.expect(Problem(builtin_workload("vector_add"), {"n": following}, "f32"), {})
        pids["screen"].append(screened or 0)
        if following is not None:
            assert processes._expected is not None and processes._expected[1].child.pid == screened
            begun = processes._expected[1]
            evaluator.close()
            made = [evaluator_of(processes, following, seed=3)]
            assert made[0]._measuring is begun
    made[0].close()
    assert len(set(pids["screen"])) == 1 and len(set(pids["final"])) == 2
    assert not set(pids["screen"]) & set(pids["final"])


def test_finals_of_one_problem_are_in_different_processes(processes: Processes) -> None:
    """However many there are: one that another problem had may serve, one that this problem had may not."""
    for n in (64, 128):
        made = evaluator_of(processes, n)
        made.screen({"deed": "ok"}, None)
        pids = [made._measuring.child.pid]
        for seed in (5, 6, 6, 5):
            assert made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=seed, fresh=True).status == "ok"
            pids.append(made._measuring.child.pid)
        assert len(set(pids)) == 5
        made.close()
        assert len(processes._finals) == MOST_FINALS


@pytest.mark.parametrize("deed", ["segfault", "hang"])
def test_a_process_that_a_final_broke_is_not_kept(processes: Processes, deed: str) -> None:
    made = evaluator_of(processes, 64)
    made._timeout = 0.5
    made.screen({"deed": "ok"}, None)
    made.anticipate(5)
    assert made.race([{"deed": "ok"}], rounds=1, seconds=0.1, seed=5, fresh=True).status == "ok"
    assert made.screen({"deed": deed}, None).status in ("crashed", "timeout")
    made.close()
    assert not processes._finals


def test_an_unused_process_of_a_final_is_kept_once_it_has_prepared(processes: Processes) -> None:
    made = evaluator_of(processes, 64)
    made.screen({"deed": "ok"}, None)
    made.anticipate(5)
    unused = made._anticipated[5]
    pid, deadline = unused.child.pid, time.monotonic() + 10
    while not unused.child.arrived:
        assert time.monotonic() < deadline
    made.close()
    second = evaluator_of(processes, 128)
    second.screen({"deed": "ok"}, None)
    raced = second.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=6, fresh=True)
    assert raced.reference == f"seed 6 in {pid}"
    second.close()


def test_memory_of_finals_is_free_where_it_is_needed(processes: Processes) -> None:
    made = evaluator_of(processes, 64)
    made.screen({"deed": "ok"}, None)
    made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=5, fresh=True)
    final = made._measuring.child
    made.close()
    assert final.running
    problem = Problem(builtin_workload("vector_add"), {"n": 128}, "f32")
    LocalEvaluator(problem, "cpu", "cpu", "cuda", {}, 0, processes=processes, ahead=False).close()
    assert final.pid is None


@pytest.mark.parametrize("seed, default", [(4, {}), (3, {"BLOCK": 8})])
def test_what_was_expected_and_does_not_come_is_ended(processes: Processes, seed: int, default: Configuration) -> None:
    problem = Problem(builtin_workload("vector_add"), {"n": 128}, "f32")
    first = evaluator_of(processes, 64, seed=3)
    first.screen({"deed": "ok"}, None)
    first.expect(problem, {})
    assert processes._expected is None
    first.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=5, fresh=True)
    assert processes._expected is not None
    expected = processes._expected[1].child
    first.close()
    second = LocalEvaluator(problem, "cpu", "cpu", "cuda", default, seed, timeout=1.0, processes=processes)
    assert second._measuring.child is not expected
    raced = second.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=3, fresh=False)
    assert (raced.reference or "").startswith(f"seed {seed} in ")
    second.close()
    processes.close()
    assert expected.pid is None


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_device_is_opened_before_it_is_known_what_for(processes: Processes, kind: str) -> None:
    processes.open("cuda:1")
    opened = processes._idle.pid if processes._idle else None
    made = evaluator_of(processes, 64, kind, seed=3)
    raced = made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=3, fresh=False)
    assert raced.reference == f"seed 3 in {opened}, cuda:1 open"
    made.close()


def test_a_process_ends_without_being_waited_for(processes: Processes) -> None:
    """And is reaped when another one ends, or all do."""
    ending = []
    for _ in range(3):
        made = evaluator_of(processes, 65)  # the stand-in prepares it for 30 s
        made.submit({"deed": "slow"})
        made.anticipate(5)
        ending.append(made._anticipated[5].child)
        os.kill(ending[-1].pid or 0, signal.SIGSTOP)
        made.close()
        assert ending[-1] in processes._ending and ending[-1].pid is not None
    processes.close()
    assert all(child.pid is None for child in ending) and not processes._ending


def test_an_anticipated_process_that_died_is_started_again(processes: Processes) -> None:
    made = evaluator_of(processes, 64)
    made.screen({"deed": "ok"}, None)
    made.anticipate(5)
    pid = made._anticipated[5].child.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while made._anticipated[5].child.running:
        assert time.monotonic() < deadline
    assert made.race([{"deed": "ok"}], rounds=1, seconds=1.0, seed=5, fresh=True).status == "ok"
    made.close()


def test_where_memory_is_short_nothing_is_prepared_ahead(processes: Processes) -> None:
    problem = Problem(builtin_workload("vector_add"), {"n": 64}, "f32")
    made = LocalEvaluator(problem, "cpu", "cpu", "cuda", {}, 0, processes=processes, ahead=False)
    made.anticipate(5)
    assert not made._anticipated
    made.close()


def test_on_a_cpu_nothing_is_started_beside_what_is_measured(processes: Processes) -> None:
    made = evaluator_of(processes, 64, "cpu")
    made.anticipate(5)
    assert not made._anticipated
    made.close()


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("deed", ["ok", "segfault", "hang"])
def test_what_is_done_meanwhile_does_not_disturb_what_is_screened(processes: Processes, kind: str, deed: str) -> None:
    """Configurations are submitted, also while the process that measures has ended."""
    made = evaluator_of(processes, 64, kind)
    made._timeout = 1.0
    assert made.screen({"deed": "ok"}, None).status == "ok"
    done: list[bool] = []

    def meanwhile() -> None:
        deadline = time.monotonic() + 10
        while deed == "segfault" and made._measuring.child.running:
            assert time.monotonic() < deadline
        made.submit({"deed": "print"})
        done.append(True)

    screened = made.screen({"deed": deed}, None, meanwhile)
    assert screened.status == {"ok": "ok", "segfault": "crashed", "hang": "timeout"}[deed]
    assert ("SIGSEGV" in (screened.error or "")) == (deed == "segfault")
    assert bool(done) == (kind == "cuda")
    assert made.screen({"deed": "ok"}, None).reference == "ok of n=64"
    assert made.compiled({"deed": "print"}).status == "ok"
    made.close()


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
    larger = [Problem(spec, {"n": n}, "f32") for n in (511, 1023)]
    problem = Problem(spec, {"n": 64}, "f32")
    made = LocalEvaluator(
        problem, "cpu", "cpu", kind, {}, 0, timeout=5.0, processes=processes, larger=lambda config: larger
    )
    try:
        default, challenger = ({"deed": deed} for deed in deeds)
        assert made.race([default, challenger], rounds=1, seconds=1.0, seed=2, fresh=False).status == "ok"
        expected = [({"n": n}, config) for config in (challenger, default) for n in (511, 1023)]
        assert asked == ([] if kind == "cpu" else expected)
        assert made.compiled(default).metrics["n"] == 64
    finally:
        made.close()
