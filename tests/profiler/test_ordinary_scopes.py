"""The ordinary case of scopes (scopes.py) does what the recorder does, in programs that leave it in every way."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from gpu_stand_in import FakeGpu
from scope_programs import KINDS, Step, make_program
from scope_runner import Runner

import deuteron.profiler as proton
from deuteron.profiler import open_scopes
from deuteron.profiler.session import registry


class NothingIsOrdinary(open_scopes._Shared):
    """Sends every scope to the recorder."""

    ordinary = property(lambda self: None, lambda self, epoch: None)


Seen = Callable[[tuple[Step, ...]], list[object]]


@pytest.fixture
def seen(synthetic: SimpleNamespace, launch: Callable[..., None]) -> Seen:
    """What is seen of a program."""

    def run(steps: tuple[Step, ...]) -> list[object]:
        registry._next = 0
        runner = Runner(FakeGpu(synthetic), launch)
        return contextvars.copy_context().run(runner.whole, steps)

    return run


def check(steps: tuple[Step, ...], seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with what is seen when there is no ordinary case."""
    both = []
    for kind in (open_scopes._Shared, NothingIsOrdinary):  # in a loop, so that Python frames are the same
        with monkeypatch.context() as patched:
            patched.setattr(open_scopes.shared, "__class__", kind)
            both.append(seen(steps))
    found, wanted = both
    assert len(found) == len(wanted)
    for mine, other in zip(found, wanted, strict=True):
        assert mine == other, steps


@pytest.mark.parametrize("kind", KINDS)
def test_programs_of_one_kind(kind: str, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        check(make_program(seed, (kind,) * 2, depth=3), seen, monkeypatch)


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_programs_of_several_kinds(first: int, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 10):
        check(make_program(seed), seen, monkeypatch)


def test_a_thread_that_forked_is_the_main_thread_of_the_child() -> None:
    """Its threads are where it is."""
    proton.start("p", backend="cpu")
    paths: list[tuple[str, ...]] = []
    statuses: list[int] = []

    def in_child() -> bool:
        for _ in range(2):
            with proton.scope("outer"), proton.scope("inner"):
                thread = threading.Thread(target=lambda: paths.append(open_scopes.scope_path()))
                thread.start()
                thread.join()
        return paths == [("outer", "inner")] * 2

    def fork() -> None:
        with proton.scope("parent"):
            pass
        pid = os.fork()
        if not pid:
            status = 1
            try:
                status = 0 if in_child() else 1
            finally:
                os._exit(status)
        statuses.append(os.waitpid(pid, 0)[1])

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert statuses == [0]
