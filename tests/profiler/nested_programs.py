"""Runs the programs of nested_steps.py with the profiler, and compares the trees with those that they must leave.

A scope adds 1 to the metric ``n`` where it is entered.

    python nested_programs.py FIRST COUNT DEPTH    runs programs, and says which trees differ
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import deuteron.profiler as proton
from deuteron.profiler.session import registry

sys.path.insert(0, str(Path(__file__).parent))  # python -P leaves the folder out
from nested_steps import (  # noqa: E402
    Place,
    Step,
    Trees,
    differences,
    expected,
    make_program,
    shown,
    simplified,
)


class Failed(Exception):
    """Raised by programs, and caught by them."""


def run(steps: Sequence[Step], results: Trees) -> None:
    """Do steps in code that is not a coroutine."""
    for step in steps:
        _run_step(step, results)


@contextmanager
def _region(name: str) -> Iterator[None]:
    with proton.scope(name, {"n": 1}):
        yield


@asynccontextmanager
async def _region_in_task(name: str) -> AsyncIterator[None]:
    with _region(name):
        yield


def _run_step(step: Step, results: Trees) -> None:
    body = step.parts[0] if step.parts else ()
    match step.kind:
        case "scope":
            with proton.scope(step.name, {"n": 1}):
                run(body, results)
        case "by hand":
            proton.enter_scope(step.name, metrics={"n": 1})
            run(body, results)
            proton.exit_scope(step.name)
        case "decorated":
            proton.scope(step.name, {"n": 1})(run)(body, results)
        case "context manager":
            with _region(step.name):
                run(body, results)
        case "fails":
            try:
                with proton.scope(step.name, {"n": 1}):
                    run(body, results)
                    raise Failed
            except Failed:
                pass
        case "generator" | "decorated generator" | "dropped generator":
            _run_generator(step, results)
        case "asyncio":
            asyncio.run(run_in_task(body))
        case "thread":
            thread = threading.Thread(target=run, args=(body, results))
            thread.start()
            thread.join()
        case "pool":
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(run, step.parts, [results] * len(step.parts)))
        case "fork":
            _fork(step, results)
        case "session":
            number = started(f"session {step.name}")
            run(body, results)
            results[""][f"session {step.name}"] = finished(number)
        case "pause":
            paused = [number for number in registry.sessions if registry.sessions[number].active][-1:]
            for number in paused:
                proton.deactivate(number)
            run(body, results)
            for number in paused:
                proton.activate(number)
        case "chdir":
            os.mkdir(step.name)
            os.chdir(step.name)
            run(body, results)
        case other:
            raise AssertionError(other)


def _run_generator(step: Step, results: Trees) -> None:
    """A generator does the odd parts, its consumer the even ones in a scope of its own."""

    def in_scope() -> Iterator[None]:
        with proton.scope(step.name, {"n": 1}):
            for part in step.parts[1::2]:
                run(part, results)
                yield

    def bare() -> Iterator[None]:
        for part in step.parts[1::2]:
            run(part, results)
            yield

    decorated = step.kind == "decorated generator"
    made = proton.scope(step.name, {"n": 1})(bare)() if decorated else in_scope()
    for part in step.parts[::2]:
        with proton.scope("consumer", {"n": 1}):
            next(made, None)
            run(part, results)
    if step.kind != "dropped generator":
        list(made)
    del made
    _after()


def _after() -> None:
    """Where the program is once a generator has ended or was dropped."""
    with proton.scope("after", {"n": 1}):
        pass


def _fork(step: Step, results: Trees) -> None:
    pid = os.fork()
    if pid:
        assert os.waitpid(pid, 0)[1] == 0, f"child {step.name} failed"
        return
    status = 1
    try:
        mine: Trees = {step.name: {}}
        results.clear()
        results.update(mine)
        run(step.parts[0], results)
        results[step.name] = {
            session.name.split(".")[0]: finished(number) for number, session in dict(registry.sessions).items()
        }
        (FOLDER[0] / f"fork-{step.name}.json").write_text(json.dumps(as_lists(results)))
        status = 0
    finally:
        os._exit(status)


async def run_in_task(steps: Sequence[Step]) -> None:
    """Do steps in a coroutine, which lets others run between them."""
    for step in steps:
        await asyncio.sleep(0)
        body = step.parts[0] if step.parts else ()
        match step.kind:
            case "scope":
                with proton.scope(step.name, {"n": 1}):
                    await run_in_task(body)
            case "by hand":
                proton.enter_scope(step.name, metrics={"n": 1})
                await run_in_task(body)
                proton.exit_scope(step.name)
            case "decorated":
                await proton.scope(step.name, {"n": 1})(run_in_task)(body)
            case "context manager":
                async with _region_in_task(step.name):
                    await run_in_task(body)
            case "fails":
                try:
                    with proton.scope(step.name, {"n": 1}):
                        await run_in_task(body)
                        raise Failed
                except Failed:
                    pass
            case "tasks":
                await asyncio.gather(*(asyncio.create_task(run_in_task(part)) for part in step.parts))
            case "to_thread":
                await asyncio.to_thread(run, body, {})
            case "async generator":
                await _run_async_generator(step)
            case "generator" | "decorated generator" | "dropped generator":
                await _run_generator_in_task(step)
            case other:
                raise AssertionError(other)


async def _run_async_generator(step: Step) -> None:
    async def in_scope():  # type: ignore[no-untyped-def]
        with proton.scope(step.name, {"n": 1}):
            for part in step.parts[1::2]:
                await run_in_task(part)
                yield

    made = in_scope()
    for part in step.parts[::2]:
        with proton.scope("consumer", {"n": 1}):
            await anext(made, None)
            await run_in_task(part)
    async for _ in made:
        pass
    with proton.scope("after", {"n": 1}):
        pass


async def _run_generator_in_task(step: Step) -> None:
    """As outside tasks; the generator cannot wait, so its parts are scopes alone."""

    def in_scope() -> Iterator[None]:
        with proton.scope(step.name, {"n": 1}):
            for part in step.parts[1::2]:
                for inner in part:
                    with proton.scope(inner.name, {"n": 1}):
                        pass
                yield

    def bare() -> Iterator[None]:
        for part in step.parts[1::2]:
            for inner in part:
                with proton.scope(inner.name, {"n": 1}):
                    pass
            yield

    decorated = step.kind == "decorated generator"
    made = proton.scope(step.name, {"n": 1})(bare)() if decorated else in_scope()
    for part in step.parts[::2]:
        with proton.scope("consumer", {"n": 1}):
            next(made, None)
            await run_in_task(part)
    if step.kind != "dropped generator":
        list(made)
    del made
    _after()


def started(name: str) -> int:
    """Start a session; its file belongs to the folder that is current now."""
    STARTED[name] = Path.cwd()
    return proton.start(name, backend="cpu")


def finished(number: int) -> dict[Place, int]:
    """Finalize a session, whatever the folder is now, and read its tree."""
    session = registry.get(number)
    path = session.path
    assert path is not None and path.parent == STARTED[session.name.split(".")[0]]
    proton.finalize(number)
    literal = json.loads(path.with_name(f"{path.name}.hatchet").read_text())
    counts: dict[Place, int] = {}
    pending: list[tuple[Place, dict]] = [((), literal[0])]
    while pending:
        place, node = pending.pop()
        if node["metrics"].get("n"):  # ROOT has 0
            counts[place] = node["metrics"]["n"]
        pending += [((*place, child["frame"]["name"]), child) for child in node["children"]]
    return counts


def as_lists(trees: Trees) -> object:
    """For JSON."""
    return {
        process: {name: [[list(place), n] for place, n in tree.items()] for name, tree in sessions.items()}
        for process, sessions in trees.items()
    }


#: Where the program began, and where its sessions were started.
FOLDER: list[Path] = []
STARTED: dict[str, Path] = {}


def run_program(steps: Sequence[Step], folder: Path) -> Trees:
    """Run a program in an empty folder, and collect the trees of its processes and sessions."""
    FOLDER[:] = [folder]
    os.chdir(folder)
    results: Trees = {"": {}}
    number = started("first")
    run(steps, results)
    results[""]["first"] = finished(number)
    for path in folder.glob("fork-*.json"):
        for process, sessions in json.loads(path.read_text()).items():
            results[process] = {name: {tuple(place): n for place, n in tree} for name, tree in sessions.items() if tree}
    return results


def main(first: int, count: int, depth: int) -> int:
    """Run programs; the number of those whose trees differ."""
    wrong = 0
    for seed in range(first, first + count):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
            steps = make_program(seed, depth)
            wanted = expected(simplified(steps))
            try:
                lines = list(differences(run_program(steps, folder), wanted))
            except Exception:
                lines = [traceback.format_exc()]
                for session in list(registry.sessions):
                    proton.finalize(session)
            if lines:
                wrong += 1
                print(f"program {seed}:\n{shown(steps)}", "\n".join(lines), flush=True)
            os.chdir("/")
    print(f"{count} programs, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(*map(int, sys.argv[1:4])), 100))
