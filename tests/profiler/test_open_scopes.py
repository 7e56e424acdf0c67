"""Scopes in tasks, generators and threads: each nests where its code runs."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

import pytest

import deuteron.profiler as proton
from deuteron.profiler import open_scopes


def shape(node: dict) -> dict:
    """Names below a node, as nested dictionaries."""
    return {child["frame"]["name"]: shape(child) for child in node["children"]}


@pytest.fixture
def recorded(tree: Callable[..., dict]) -> Iterator[Callable[[], dict]]:
    """What a test has recorded; everything is left by then."""
    session = proton.start("p")

    def result() -> dict:
        assert proton.context.depth(session) == 0
        return shape(tree(session=session))

    yield result


def test_tasks_nest_below_the_scope_that_made_them(recorded, tree) -> None:
    async def task(name: str, pause: float) -> None:
        with proton.cpu_timed_scope(name):
            await asyncio.sleep(pause)
            with proton.scope("inside"):
                await asyncio.sleep(0)

    async def main() -> None:
        with proton.scope("gather"):
            await asyncio.gather(task("A", 0.03), task("B", 0.01), task("C", 0.02))
        with proton.scope("after"):
            pass

    with proton.scope("async"):
        asyncio.run(main())
    inside = {"inside": {}}
    assert recorded() == {"async": {"gather": {"A": inside, "B": inside, "C": inside}, "after": {}}}
    assert tree("async", "gather", "A")["metrics"]["cpu_time (ns)"] >= 30_000_000
    assert 10_000_000 <= tree("async", "gather", "B")["metrics"]["cpu_time (ns)"] < 500_000_000


def test_a_task_that_fails_keeps_its_error(recorded) -> None:
    async def task(n: int) -> None:
        with proton.scope(f"t{n}"):
            await asyncio.sleep(0.001 * (3 - n))
            if n == 1:
                raise ValueError("mine")

    async def main() -> list:
        return await asyncio.gather(*(task(n) for n in range(3)), return_exceptions=True)

    made = asyncio.run(main())
    assert [type(m) for m in made] == [type(None), ValueError, type(None)]
    assert recorded() == {"t0": {}, "t1": {}, "t2": {}}


def test_a_suspended_generator_is_not_around_its_consumer(recorded) -> None:
    def numbers() -> Iterator[int]:
        with proton.scope("generator"):
            for n in range(3):
                with proton.scope("item"):
                    pass
                yield n

    with proton.scope("outer"):
        iterator = numbers()
        next(iterator)
        with proton.scope("consumer"):
            next(iterator)  # goes on below its own scope
            with proton.scope("inner"):
                pass
        assert list(iterator) == [2]
        with proton.scope("after"):
            pass
    assert recorded() == {"outer": {"generator": {"item": {}}, "consumer": {"inner": {}}, "after": {}}}


def test_two_generators_in_turns(recorded) -> None:
    def numbers(name: str) -> Iterator[int]:
        with proton.scope(name):
            for n in range(2):
                with proton.scope(f"{name}{n}"):
                    yield n

    for _ in zip(numbers("a"), numbers("b"), strict=True):
        with proton.scope("body"):
            pass
    assert recorded() == {"a": {"a0": {}, "a1": {}}, "b": {"b0": {}, "b1": {}}, "body": {}}


def test_a_generator_that_is_dropped_leaves_its_scope(recorded) -> None:
    def numbers() -> Iterator[int]:
        with proton.scope("generator"):
            yield 1

    with proton.scope("outer"):
        iterator = numbers()
        next(iterator)
        iterator.close()
        next(numbers())
        with proton.scope("after"):
            pass
    assert recorded() == {"outer": {"generator": {}, "after": {}}}


@contextmanager
def region(name: str) -> Iterator[None]:
    with proton.scope(name):
        yield


def test_a_context_manager_is_around_the_body_of_its_with(recorded) -> None:
    @contextmanager
    def by_hand() -> Iterator[None]:
        with region("outer"):
            proton.enter_scope("inner")
            yield
            proton.exit_scope("inner")

    with by_hand(), proton.scope("body"):
        pass
    assert open_scopes.shared.ordinary is not None  # scopes that follow are as fast as ever
    region("decorated")(proton.scope("function")(lambda: None))()
    with pytest.raises(ValueError, match="mine"), region("fails"):
        raise ValueError("mine")
    body = {"outer": {"inner": {"body": {}}}}
    assert recorded() == {**body, "decorated": {"function": {}}, "fails": {}}


def test_a_context_manager_of_a_generator_is_the_generators(recorded) -> None:
    def numbers() -> Iterator[int]:
        with region("generator"):
            yield 1
            with proton.scope("resumed"):
                pass

    for _ in numbers():
        with proton.scope("consumer"):
            pass
    assert recorded() == {"generator": {"resumed": {}}, "consumer": {}}


def test_asynchronous_context_managers(recorded) -> None:
    @asynccontextmanager
    async def asynchronous(name: str) -> AsyncIterator[None]:
        with region(name):
            await asyncio.sleep(0)
            yield

    async def task(name: str) -> None:
        async with asynchronous(name):
            await asyncio.sleep(0)
            with proton.scope("body"):
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(task("A"), task("B"))

    asyncio.run(main())
    assert recorded() == {"A": {"body": {}}, "B": {"body": {}}}


@pytest.fixture
def in_region(recorded) -> Iterator[None]:
    with proton.scope("fixture"):
        yield


@pytest.mark.usefixtures("in_region")
def test_a_fixture_is_around_its_test(tree) -> None:
    with proton.scope("test"):
        pass
    assert shape(tree()) == {"fixture": {"test": {}}}


def work(milliseconds: float) -> None:
    end = time.perf_counter() + milliseconds / 1e3
    while time.perf_counter() < end:
        pass


def test_decorated_generators_are_timed_while_they_run(recorded, tree) -> None:
    @proton.cpu_timed_scope("numbers", {"calls": 1})
    def numbers(count: int) -> Iterator[int]:
        sent = 0
        for n in range(count):
            work(10)
            sent += (yield n + sent) or 0
        return sent

    iterator = numbers(3)
    assert next(iterator) == 0
    work(80)
    assert iterator.send(10) == 11
    with pytest.raises(StopIteration) as end:
        iterator.send(5)
        next(iterator)
    assert end.value.value == 15
    spent = tree("numbers")["metrics"]["cpu_time (ns)"]
    assert 30_000_000 <= spent < 80_000_000
    assert tree("numbers")["metrics"]["calls"] == 1
    assert recorded() == {"numbers": {}}


def test_decorated_generators_take_exceptions_and_close(recorded) -> None:
    seen: list[str] = []

    @proton.scope("numbers")
    def numbers() -> Iterator[int]:
        try:
            try:
                yield 1
            except ValueError:
                seen.append("caught")
                yield 2
        finally:
            with proton.scope("closing"):
                seen.append("closed")

    iterator = numbers()
    assert next(iterator) == 1
    assert iterator.throw(ValueError()) == 2
    iterator.close()
    assert seen == ["caught", "closed"]
    assert recorded() == {"numbers": {"closing": {}}}


def test_decorated_coroutines_and_async_generators(recorded, tree) -> None:
    @proton.cpu_timed_scope("coroutine")
    async def coroutine() -> int:
        await asyncio.sleep(0.03)
        with proton.scope("inside"):
            return 7

    @proton.cpu_timed_scope("items")
    async def items():
        for n in range(2):
            await asyncio.sleep(0.01)
            yield n

    async def main() -> list[int]:
        found = []
        async for n in items():
            with proton.scope("body"):
                await asyncio.sleep(0.05)
            found.append(n)
        return [*found, *await asyncio.gather(coroutine(), coroutine())]

    assert asyncio.run(main()) == [0, 1, 7, 7]
    assert recorded() == {"items": {}, "body": {}, "coroutine": {"inside": {}}}
    assert tree("coroutine")["metrics"]["cpu_time (ns)"] >= 60_000_000
    assert 20_000_000 <= tree("items")["metrics"]["cpu_time (ns)"] < 100_000_000


def test_a_decorated_state_holds_while_a_generator_runs(recorded, launch) -> None:
    @proton.state("producing")
    def numbers() -> Iterator[int]:
        launch("a")
        yield 1

    for _ in numbers():
        launch("b")
    assert recorded() == {"producing": {"a": {}}, "b": {}}


def test_states_belong_to_tasks(recorded, launch) -> None:
    async def task(name: str) -> None:
        with proton.state(name):
            await asyncio.sleep(0.001)
            launch("k")

    async def main() -> None:
        await asyncio.gather(task("a"), task("b"))
        launch("k")

    asyncio.run(main())
    assert recorded() == {"a": {"k": {}}, "b": {"k": {}}, "k": {}}


def test_threads_of_a_pool_follow_the_main_thread(recorded, launch) -> None:
    def run(name: str) -> None:
        with proton.scope(name):
            launch("k")

    with ThreadPoolExecutor(2) as pool:
        for outer in ("first", "second"):
            with proton.scope(outer):
                list(pool.map(run, ["a", "b", "a"]))
                list(pool.map(launch, ["own"]))
    inside = {"a": {"k": {}}, "b": {"k": {}}, "own": {}}
    assert recorded() == {"first": inside, "second": inside}


def test_a_thread_that_runs_in_a_copied_context(recorded, launch) -> None:
    def run() -> None:
        with proton.scope("thread"):
            launch("k")

    with proton.scope("outer"):
        context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: context.run(run))
    with proton.scope("main"):
        thread.start()
        thread.join()
    made = recorded()
    assert made["main"] == {"thread": {"k": {}}} or made == {"outer": {}, "main": {}, "thread": {"k": {}}}


def test_to_thread_keeps_the_place_of_its_task(recorded, launch) -> None:
    async def task(name: str) -> None:
        with proton.scope(name):
            await asyncio.to_thread(launch, "k")

    async def main() -> None:
        await asyncio.gather(task("a"), task("b"))

    asyncio.run(main())
    assert recorded() == {"a": {"k": {}}, "b": {"k": {}}}


def test_to_thread_from_a_task_in_no_scope_is_in_none(recorded) -> None:
    """While another task of the main thread is in one."""

    async def other(entered: asyncio.Event, leave: asyncio.Event) -> None:
        with proton.scope("other"):
            entered.set()
            await leave.wait()

    def run() -> None:
        with proton.scope("thread"):
            pass

    async def main() -> None:
        entered, leave = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(other(entered, leave))
        await entered.wait()
        await asyncio.to_thread(run)
        leave.set()
        await task

    asyncio.run(main())
    assert recorded() == {"other": {}, "thread": {}}


def test_leaving_scopes_out_of_order_is_still_a_mistake(recorded) -> None:
    outer, inner = proton.scope("outer"), proton.scope("inner")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(proton.UsageError, match="reverse order"):
        outer.__exit__(None, None, None)
    assert proton.context.depth() == 0
    inner.__exit__(None, None, None)
    assert recorded() == {"outer": {"inner": {}}}


def test_ids_of_sessions_are_not_used_again() -> None:
    first = proton.start("a", backend="cpu")
    proton.finalize(first)
    second = proton.start("b", backend="cpu")
    assert second != first
    with pytest.raises(proton.UnknownSession, match=f"Session has not been initialized: {first}"):
        proton.deactivate(first)
    with proton.scope("x", {"m": 1.0}):
        pass
    assert [child["frame"]["name"] for child in proton.data.get()[0]["children"]] == ["x"]
    proton.finalize()
    with pytest.raises(proton.UnknownSession, match="no profiling session runs"):
        proton.data.get()
