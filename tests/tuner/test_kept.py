"""What one job leaves to the next: processes of finals, which forget what they did, for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from stand_in_processes import COMMAND, until

from deuteron.tuner.evaluate import kept
from deuteron.tuner.evaluate.child import ChildProcess
from deuteron.tuner.evaluate.evaluator import LocalEvaluator
from deuteron.tuner.evaluate.kept import KeptProcesses
from deuteron.tuner.evaluate.nursery import Nursery
from deuteron.tuner.evaluate.processes import Processes
from deuteron.tuner.workloads import Problem, builtin_workload

OK = {"deed": "ok"}


@pytest.fixture
def make(nursery: Nursery | None) -> Callable[[], Processes]:
    return lambda: Processes(workers=1, command=COMMAND, nursery=nursery)


@pytest.fixture
def lender(make: Callable[[], Processes]) -> Iterator[KeptProcesses]:
    made = KeptProcesses(make, seconds=60.0)
    yield made
    made.close()


def raced_by(evaluator: LocalEvaluator, seed: int, *, fresh: bool = True) -> int:
    """The process that raced, on inputs of its seed."""
    raced = evaluator.race([OK], rounds=1, seconds=1.0, seed=seed, fresh=fresh)
    words = (raced.reference or "").split()
    assert words[:3] == ["seed", str(seed if fresh else 0), "in"], raced
    return int(words[3].rstrip(","))


def evaluator_of(processes: Processes, n: int) -> LocalEvaluator:
    problem = Problem(builtin_workload("vector_add"), {"n": n}, "f32")
    return LocalEvaluator(problem, "cuda:1", "cpu", "cuda", {}, 0, timeout=5.0, processes=processes)


class Searched(NamedTuple):
    """The processes of a search that screened, that were in its finals, and that compiled, by their ids; and the
    children that had the first two."""

    screened: int
    finals: set[int]
    compiling: int
    screening_child: ChildProcess
    final_children: set[ChildProcess]


def search(processes: Processes, told: Any, n: int = 64) -> Searched:
    evaluator = evaluator_of(processes, n)
    for seed in (5, 6):
        evaluator.prepare_final(seed)
    evaluator.submit(OK)
    assert evaluator.compiled(OK).metrics["n"] == n
    assert evaluator.screen(OK, None).reference == f"ok of n={n}"
    compiling = told.last("compile").pid
    screened, screening_child = raced_by(evaluator, 1, fresh=False), told.measured().child
    finals, final_children = set(), set()
    for seed in (5, 6):
        finals.add(raced_by(evaluator, seed))
        final_children.add(told.measured().child)
    evaluator.close()
    return Searched(screened, finals, compiling, screening_child, final_children)


def test_the_next_job_has_the_processes_of_finals(lender: KeptProcesses, told: Any) -> None:
    """One of them screens now, one is in a final; what had screened is gone, as it ran whatever was proposed."""
    with lender.lent("cuda:1") as first:
        before = search(first, told)
    opened = len(told.of("open"))
    with lender.lent("cuda:1") as second:
        assert second is first
        (other,) = told.of("open")[opened:]
        after = search(second, told, 128)
    assert after.screened in before.finals and after.compiling == before.compiling
    assert len(after.finals & before.finals) == 1 and after.screened not in after.finals
    assert before.screened not in {after.screened, *after.finals}
    assert other.pid in after.finals - before.finals, "which opens the device before it is known what for"


def test_what_is_not_kept_ends(lender: KeptProcesses, told: Any) -> None:
    """Such as what screened, which may hold much of the memory of the device."""
    with lender.lent("cuda:1") as processes:
        first = search(processes, told)
        assert first.screening_child.running
        processes.end_job("cuda:1")
        second = search(processes, told)
        assert second.screening_child.running
    assert first.screening_child is not second.screening_child
    until(lambda: not first.screening_child.running and not second.screening_child.running)
    assert len(second.final_children) == 2 and told.measuring() == second.final_children


def test_a_timer_that_comes_too_late_ends_no_others(
    make: Callable[[], Processes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cancelled when it had begun."""
    timers: list[threading.Timer] = []

    class Noted(threading.Timer):
        def __init__(self, *what: Any) -> None:
            super().__init__(*what)
            timers.append(self)

    monkeypatch.setattr(kept.threading, "Timer", Noted)
    lender = KeptProcesses(make, seconds=60.0)
    with lender.lent("cuda:1") as first:
        pass
    (late,) = timers
    with lender.lent("cuda:2") as second:
        assert second is not first
    late.function(*late.args)
    with lender.lent("cuda:2") as third:
        assert third is second
    lender.close()


def test_what_is_kept_has_forgotten_its_problem(lender: KeptProcesses, told: Any) -> None:
    with lender.lent("cuda:1") as processes:
        searched = search(processes, told)
    assert len(searched.final_children) == 2
    for child in searched.final_children:
        assert child.request("screen", {"config": OK}, 5.0)["reference"] == "ok of n=None"


def test_it_ends_when_no_job_follows(make: Callable[[], Processes], told: Any) -> None:
    lender = KeptProcesses(make, seconds=0.2)
    with lender.lent("cuda:1") as processes:
        children = search(processes, told).final_children
    assert all(child.running for child in children) and len(children) == 2
    until(lambda: all(child.pid is None for child in children))
    with lender.lent("cuda:1") as other:
        assert other is not processes
    lender.close()


def test_a_job_that_fails_leaves_nothing(lender: KeptProcesses, told: Any) -> None:
    with pytest.raises(RuntimeError), lender.lent("cuda:1") as processes:
        searched = search(processes, told)
        children = {searched.screening_child, *searched.final_children}
        raise RuntimeError
    assert children and all(child.pid is None for child in children)
    with lender.lent("cuda:1") as other:
        assert other is not processes


@pytest.mark.parametrize("changed", ["device", "environment", "unknown"])
def test_elsewhere_there_are_new_ones(
    lender: KeptProcesses, told: Any, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """On another device, in another environment, and where the environment cannot be found out."""

    def nowhere() -> object:
        raise OSError

    with lender.lent("cuda:1") as first:
        children = search(first, told).final_children
    if changed == "environment":
        monkeypatch.setenv("DEUTERON_CACHE_DIR", "/elsewhere")
    if changed == "unknown":
        monkeypatch.setattr(kept, "surroundings", nowhere)
    with lender.lent("cuda:2" if changed == "device" else "cuda:1") as second:
        assert second is not first
        assert children and all(child.pid is None for child in children)
    with lender.lent("cuda:1") as third:
        assert (third is second) == (changed == "environment")


def test_two_jobs_at_once_have_their_own(lender: KeptProcesses, told: Any) -> None:
    with lender.lent("cuda:1") as first:
        children = search(first, told).final_children
    begun, go_on = threading.Event(), threading.Event()
    found: list[Processes] = []

    def other() -> None:
        with lender.lent("cuda:1") as processes:
            found.append(processes)
            begun.set()
            assert go_on.wait(20)

    thread = threading.Thread(target=other)
    thread.start()
    assert begun.wait(20)
    with lender.lent("cuda:1") as mine:
        assert found == [first] and mine is not first
        search(mine, told)
        go_on.set()
        thread.join()
    assert all(child.pid is None for child in children), "it was kept first, and ended when the other job left its own"
    with lender.lent("cuda:1") as last:
        assert last is mine


def test_they_serve_so_many_jobs(lender: KeptProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_JOBS", 2)
    served = []
    for _ in range(3):
        with lender.lent("cuda:1") as processes:
            served.append(processes)
    assert served[0] is served[1] and served[2] is not served[0]


def test_what_still_compiles_is_ended(lender: KeptProcesses, told: Any) -> None:
    with lender.lent("cuda:1") as processes:
        search(processes, told)
        evaluator = evaluator_of(processes, 64)
        evaluator.submit({"deed": "hang"})
        evaluator.close()
    with lender.lent("cuda:1") as processes:
        began = time.monotonic()
        search(processes, told)
        assert time.monotonic() - began < 20
