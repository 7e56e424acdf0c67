"""GPU launches of several threads and sessions: where each thread is, and which sessions get what it launches."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable

from child_names import names, times
from gpu_stand_in import FakeGpu

import deuteron.profiler as proton
from deuteron.profiler.recorder import recorder


def test_threads_without_scopes_are_where_the_main_thread_is(
    gpu: FakeGpu, tree: Callable[..., dict], launch: Callable
) -> None:
    """They are not within a launch of the main thread."""
    proton.start("p", hook="triton")

    def elsewhere(name: str, scoped: bool = False) -> None:
        def run() -> None:
            if scoped:
                with proton.scope("own"):
                    gpu.launch(name, 3)
            else:
                gpu.launch(name, 5)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    with proton.scope("A"):
        elsewhere("k")
        with proton.scope("B"):
            elsewhere("k")
            elsewhere("k", scoped=True)
        launch("raw", {"name": "nice"}, device="cuda:0", body=lambda: elsewhere("other"))
    elsewhere("k")
    proton.deactivate(flushing=True)
    assert tree("A", "other")["metrics"]["time (ns)"] == 5
    assert [tree(*path, "k")["metrics"]["time (ns)"] for path in (("A",), ("A", "B"), ("A", "B", "own"), ())] == [
        5,
        5,
        3,
        5,
    ]


def test_launches_of_unknown_threads_go_to_the_root(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    proton.start("p")
    with proton.scope("A"):
        gpu.launch("k", 5, joined=False)
    proton.deactivate(flushing=True)
    assert names(tree()) == ["A", "k"]


def test_two_sessions_get_the_launches_of_their_time(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    first = proton.start("one")
    gpu.launch("a", 1)
    second = proton.start("two")
    gpu.launch("b", 1)
    proton.deactivate(first)
    gpu.launch("c", 1)
    proton.deactivate(second, flushing=True)
    assert names(tree(session=first)) == ["a", "b"]
    assert names(tree(session=second)) == ["b", "c"]


def test_kernels_launched_while_no_session_is_active_are_in_none(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    """Also where their records come when a session is active again."""
    session = proton.start("p")
    with proton.scope("A"):
        gpu.launch("before", 1)
        proton.deactivate(session)
        gpu.launch("meanwhile", 1)
        with proton.scope("B"):
            gpu.launch("meanwhile", 1)
            proton.activate(session)
            gpu.launch("after", 1)
    proton.deactivate(session)
    gpu.launch("meanwhile", 1)
    proton.deactivate(session, flushing=True)
    assert times(tree()) == {("A", "before"): (1, 1), ("A", "B", "after"): (1, 1)}


def test_other_threads_follow_when_sessions_pause(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    """A thread in a scope of its own, and one that has left its scope, are marked by whoever pauses and resumes."""
    session = proton.start("p")
    barrier = threading.Barrier(3)

    def work(name: str, *, stays: bool) -> None:
        with proton.scope(name):
            gpu.launch("early", 1)
            if stays:
                launch_in_turns(name)
        if not stays:
            launch_in_turns(name)

    def launch_in_turns(name: str) -> None:
        for moment in ("resumed", "paused", "resumed"):
            barrier.wait()
            gpu.launch(f"{moment} {name}", 1)
            barrier.wait()

    threads = [
        threading.Thread(target=work, args=("stays",), kwargs={"stays": True}),
        threading.Thread(target=work, args=("leaves",), kwargs={"stays": False}),
    ]
    for thread in threads:
        thread.start()
    with proton.scope("main"):
        for change in (None, proton.deactivate, proton.activate):
            if change is not None:
                change(session)
            barrier.wait()
            barrier.wait()
    for thread in threads:
        thread.join()
    proton.deactivate(session, flushing=True)
    assert times(tree()) == {
        ("stays", "early"): (1, 1),
        ("leaves", "early"): (1, 1),
        ("stays", "resumed stays"): (2, 2),
        ("main", "resumed leaves"): (2, 2),
    }


def test_a_thread_of_an_earlier_session_follows_when_one_pauses(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    barrier = threading.Barrier(2)

    def work() -> None:
        with proton.scope("thread"):
            gpu.launch("first", 1)
        for _ in range(2):
            barrier.wait(10)
        with proton.scope("thread"):
            gpu.launch("second", 1)
            for _ in range(2):
                barrier.wait(10)
            gpu.launch("paused", 1)

    proton.start("first")
    thread = threading.Thread(target=work)
    thread.start()
    barrier.wait(10)
    proton.finalize()
    recorder.start_gpu(required=True, source=gpu)
    session = proton.start("second")
    barrier.wait(10)
    barrier.wait(10)
    proton.deactivate(session)
    barrier.wait(10)
    thread.join()
    proton.deactivate(session, flushing=True)
    assert times(tree(session=session)) == {("thread", "second"): (1, 1)}


def test_a_session_paused_by_another_thread_pauses_for_the_main_thread(gpu: FakeGpu, tree: Callable[..., dict]) -> None:
    session = proton.start("p")
    with proton.scope("A"):
        for change in (proton.deactivate, proton.activate):
            thread = threading.Thread(target=change, args=(session,))
            thread.start()
            thread.join()
            gpu.launch(change.__name__, 1)
    proton.deactivate(session, flushing=True)
    assert times(tree()) == {("A", "activate"): (1, 1)}


def test_a_thread_that_leaves_a_scope_is_not_in_the_one_around_that_was_left_meanwhile(
    gpu: FakeGpu, tree: Callable[..., dict]
) -> None:
    """The context of its task has both scopes, and the task has gone on."""
    proton.start("p")
    inside, go_on = threading.Event(), threading.Event()

    def work() -> None:
        with proton.scope("inner"):
            inside.set()
            go_on.wait(10)
        gpu.launch("k", 5)

    with proton.scope("outer"):
        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
        thread.start()
        assert inside.wait(10)
    go_on.set()
    thread.join()
    proton.deactivate(flushing=True)
    assert tree("k")["metrics"]["count"] == 1
    assert names(tree("outer")) == ["inner"]
