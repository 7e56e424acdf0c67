"""What one job leaves to the next: processes of finals, which forget what they did, for a while."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deuteron.tuner.evaluate import kept
from deuteron.tuner.evaluate.evaluator import LocalEvaluator
from deuteron.tuner.evaluate.kept import KeptProcesses
from deuteron.tuner.evaluate.nursery import Nursery
from deuteron.tuner.evaluate.processes import Processes
from deuteron.tuner.workloads import Problem, builtin_workload

COMMAND = (sys.executable, "-X", "faulthandler", str(Path(__file__).with_name("stand_in.py")))
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


def search(processes: Processes, n: int = 64) -> tuple[int, set[int], int]:
    """A search: the processes that screened, that were in its finals, and that compiled."""
    problem = Problem(builtin_workload("vector_add"), {"n": n}, "f32")
    evaluator = LocalEvaluator(problem, "cuda:1", "cpu", "cuda", {}, 0, timeout=5.0, processes=processes)
    for seed in (5, 6):
        evaluator.anticipate(seed)
    evaluator.submit(OK)
    assert evaluator.compiled(OK).metrics["n"] == n
    assert evaluator.screen(OK, None).reference == f"ok of n={n}"
    screened = raced_by(evaluator, 1, fresh=False)
    finals = {raced_by(evaluator, seed) for seed in (5, 6)}
    compiling = evaluator._pool._slots[0].child.pid
    evaluator.close()
    assert compiling is not None
    return screened, finals, compiling


def test_the_next_job_has_the_processes_of_finals(lender: KeptProcesses) -> None:
    """One of them screens now, one is in a final; what had screened is gone, as it ran whatever was proposed."""
    with lender.lent("cuda:1") as first:
        screened, finals, compiling = search(first)
    with lender.lent("cuda:1") as second:
        assert second is first
        screens, others, compiles = search(second, 128)
    assert screens in finals and compiles == compiling
    assert len(others & finals) == 1 and screens not in others and screened not in {screens, *others}


def test_what_is_not_kept_ends(lender: KeptProcesses) -> None:
    """Such as what screened, which may hold much of the memory of the device."""
    with lender.lent("cuda:1") as processes:
        search(processes)
        screened = processes._idle
        processes.rest("cuda:1")
        search(processes)
        other = processes._idle
    assert screened is not None and other is not None and screened is not other
    deadline = time.monotonic() + 20
    while screened.running or other.running:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert processes._finals and all(child.running for child in processes._finals)


def test_a_timer_that_comes_too_late_ends_no_others(make: Callable[[], Processes]) -> None:
    """It was cancelled when it had begun."""
    lender = KeptProcesses(make, seconds=60.0)
    with lender.lent("cuda:1") as first:
        pass
    with lender.lent("cuda:2") as second:
        assert second is not first
    lender._let_go(first)
    with lender.lent("cuda:2") as third:
        assert third is second
    lender.close()


def test_what_is_kept_has_forgotten_its_problem(lender: KeptProcesses) -> None:
    with lender.lent("cuda:1") as processes:
        search(processes)
    for child in processes._finals:
        assert child.request("screen", {"config": OK}, 5.0)["reference"] == "ok of n=None"


def test_it_ends_when_no_job_follows(make: Callable[[], Processes]) -> None:
    lender = KeptProcesses(make, seconds=0.2)
    with lender.lent("cuda:1") as processes:
        search(processes)
    children = list(processes._finals)
    assert all(child.running for child in children) and len(children) == 2
    deadline = time.monotonic() + 20
    while any(child.pid is not None for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with lender.lent("cuda:1") as other:
        assert other is not processes
    lender.close()


def test_a_job_that_fails_leaves_nothing(lender: KeptProcesses) -> None:
    with pytest.raises(RuntimeError), lender.lent("cuda:1") as processes:
        search(processes)
        children = list(processes._finals)
        raise RuntimeError
    assert children and all(child.pid is None for child in children)
    with lender.lent("cuda:1") as other:
        assert other is not processes


@pytest.mark.parametrize("changed", ["device", "environment", "unknown"])
def test_elsewhere_there_are_new_ones(lender: KeptProcesses, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    """On another device, in another environment, and where the environment cannot be found out."""

    def nowhere() -> object:
        raise OSError

    with lender.lent("cuda:1") as first:
        search(first)
    children = list(first._finals)
    if changed == "environment":
        monkeypatch.setenv("DEUTERON_CACHE_DIR", "/elsewhere")
    if changed == "unknown":
        monkeypatch.setattr(kept, "surroundings", nowhere)
    with lender.lent("cuda:2" if changed == "device" else "cuda:1") as second:
        assert second is not first
        assert children and all(child.pid is None for child in children)
    with lender.lent("cuda:1") as third:
        assert (third is second) == (changed == "environment")


def test_two_jobs_at_once_have_their_own(lender: KeptProcesses) -> None:
    with lender.lent("cuda:1") as first:
        search(first)
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
        search(mine)
        go_on.set()
        thread.join()
    assert not first._finals, "it was kept first, and ended when the other job left its own"
    with lender.lent("cuda:1") as last:
        assert last is mine


def test_they_serve_so_many_jobs(lender: KeptProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_JOBS", 2)
    served = []
    for _ in range(3):
        with lender.lent("cuda:1") as processes:
            served.append(processes)
    assert served[0] is served[1] and served[2] is not served[0]


def test_what_still_compiles_is_ended(lender: KeptProcesses) -> None:
    with lender.lent("cuda:1") as processes:
        search(processes)
        pool = processes._pool
        assert pool is not None
        pool.submit({"deed": "hang"})
    with lender.lent("cuda:1") as processes:
        began = time.monotonic()
        search(processes)
        assert time.monotonic() - began < 20
