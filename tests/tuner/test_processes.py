"""The processes of a job: one shape after the other in the same ones, and new ones ready before they are needed."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from deuteron.compiler import get_device
from deuteron.tuner.codec import JsonObject
from deuteron.tuner.evaluate import hanging, measuring
from deuteron.tuner.evaluate.child import ChildProcess
from deuteron.tuner.evaluate.compile_pool import CompilePool
from deuteron.tuner.evaluate.evaluator import LocalEvaluator
from deuteron.tuner.evaluate.hanging import ScreenLimit
from deuteron.tuner.evaluate.measuring import MeasuringProcess
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


def evaluator_of(
    processes: Processes, n: int, kind: str = "cuda", seed: int = 0, timeout: float = 2.0, **more: Any
) -> LocalEvaluator:
    problem = Problem(builtin_workload("vector_add"), {"n": n}, "f32")
    return LocalEvaluator(problem, "cpu", "cpu", kind, {}, seed, timeout=timeout, processes=processes, **more)


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.001)


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


def test_evaluator_races(evaluator: LocalEvaluator) -> None:
    two = [{"deed": "ok"}, {"deed": "print"}]
    raced = evaluator.race(two, rounds=7, seconds=1.0, seed=1, fresh=True)
    assert raced.status == "ok" and len(raced.times) == 2 and raced.sm_mhz == 1500
    bad = evaluator.race([*two, {"deed": "segfault"}], rounds=7, seconds=1, seed=1, fresh=False)
    assert bad.status == "crashed" and "SIGSEGV" in (bad.error or "")


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
