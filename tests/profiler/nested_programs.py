"""Programs made up from a seed that nest scopes over tasks, threads, generators and forks, with several sessions at
once, and what their trees must be.

A program is a tree of steps. :func:`run` does them with the profiler; :func:`expected` walks over the same steps with
nothing but the path that the program is at, and counts. A scope adds 1 to the metric ``n`` where it is entered.

    python nested_programs.py FIRST COUNT DEPTH    runs programs, and says which trees differ

Where threads go is written down as: a new thread is where the main thread is, ``asyncio.to_thread`` where its task is.
So there are no threads of the other kind below tasks, where "the main thread" would be several places at once. Nor do
asynchronous generators make tasks and threads: those are where the consumer is.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import deuteron.profiler as proton
from deuteron.profiler.session import registry

Place = tuple[str, ...]
#: Of each process ("" is the first one, children have numbers of their steps) and session: how often each place was
#: entered.
Trees = dict[str, dict[str, dict[Place, int]]]


@dataclass(frozen=True)
class Step:
    """``kind`` says what is done, with ``parts``: one list of steps, or several that run beside each other."""

    kind: str
    name: str
    parts: tuple[tuple[Step, ...], ...] = ()


class Failed(Exception):
    """Raised by programs, and caught by them."""


# -- making programs

_ANYWHERE = ("scope", "scope", "by hand", "decorated", "context manager", "fails")
_SYNC = ("generator", "decorated generator", "dropped generator")
_MAIN = ("asyncio", "pool", "thread", "fork", "session", "pause", "chdir")
KINDS = {
    "main": (*_ANYWHERE, *_SYNC, *_MAIN),
    "thread": (*_ANYWHERE, *_SYNC, "thread", "fork"),
    "task": (*_ANYWHERE, *_SYNC, "tasks", "tasks", "to_thread", "async generator"),
    "thread of task": (*_ANYWHERE, *_SYNC),
    "async generator": (*_ANYWHERE, *_SYNC, "async generator"),
    # Sessions of a child are its own, but the names of their files end in its parent's.
    "child": (*_ANYWHERE, *_SYNC, "asyncio", "pool", "thread", "fork"),
}
_INSIDE = {"asyncio": "task", "pool": "thread", "thread": "thread", "fork": "child", "to_thread": "thread of task"}
_INSIDE["async generator"] = "async generator"


def make_program(seed: int, depth: int = 4) -> tuple[Step, ...]:
    """The steps of a program."""
    draw = random.Random(seed)
    numbers = iter(range(1_000_000))

    def steps(where: str, depth: int) -> tuple[Step, ...]:
        return tuple(step(where, depth) for _ in range(draw.randint(1, 3 if depth else 2)))

    def step(where: str, depth: int) -> Step:
        kind = draw.choice(KINDS[where] if depth else ("scope", "by hand", "decorated"))
        if kind in ("session", "chdir", "fork"):
            name = str(next(numbers))
        else:
            name = draw.choice("abcd")
        many = draw.randint(2, 3) if kind in ("tasks", "pool") or "generator" in kind else 1
        inside = _INSIDE.get(kind, where)
        return Step(kind, name, tuple(steps(inside, depth - 1) if depth else () for _ in range(many)))

    return steps("main", depth)


# -- running them


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


# -- what must come out


@dataclass
class Model:
    """The sessions that a process has, whether they record, and what they have counted."""

    trees: dict[str, dict[str, Counter[Place]]]
    process: str = ""
    active: dict[str, bool] = field(default_factory=dict)

    def enter(self, place: Place) -> None:
        """A scope is entered; ``place`` has its name."""
        for session, recording in self.active.items():
            if recording:
                self.trees[self.process].setdefault(session, Counter())[place] += 1

    def walk(self, steps: Sequence[Step], place: Place, main: Place | None) -> None:
        """``place`` is where the code is, ``main`` where the main thread is, None if the code runs on it."""
        for step in steps:
            self.step(step, place, main)

    def step(self, step: Step, place: Place, main: Place | None) -> None:
        """One step."""
        body, inside = (step.parts[0] if step.parts else ()), (*place, step.name)
        match step.kind:
            case "scope" | "by hand" | "decorated" | "context manager" | "fails":
                self.enter(inside)
                self.walk(body, inside, main)
            case "asyncio" | "to_thread":
                self.walk(body, place, main)
            case "tasks":
                for part in step.parts:
                    self.walk(part, place, main)
            case "thread" | "pool":
                there = place if main is None else main
                for part in step.parts:
                    self.walk(part, there, there)
            case "fork":
                child = Model(self.trees, step.name, dict(self.active))
                self.trees[step.name] = {}
                child.walk(body, place, None)
            case "session":
                name = f"session {step.name}"
                self.active[name] = True
                self.trees[self.process].setdefault(name, Counter())
                self.walk(body, place, main)
                del self.active[name]
            case "pause":
                paused = [name for name, recording in self.active.items() if recording][-1:]
                self.active.update(dict.fromkeys(paused, False))
                self.walk(body, place, main)
                self.active.update(dict.fromkeys(paused, True))
            case "chdir":
                self.walk(body, place, main)
            case _:
                self.generator(step, place, main)

    def generator(self, step: Step, place: Place, main: Place | None) -> None:
        """A scope that a generator opens is around what the generator does, wherever it is resumed; a decorated
        generator enters its scope anew where it is resumed, and counts once."""
        consumer, around = (*place, "consumer"), None
        inner = list(step.parts[1::2])
        for part in step.parts[::2]:
            self.enter(consumer)
            if around is None:
                around = (*consumer, step.name)
                self.enter(around)
            if inner:
                self.walk(inner.pop(0), around, main)
            self.walk(part, consumer, main)
        self.enter((*place, "after"))


def expected(steps: Sequence[Step]) -> Trees:
    """The trees that the program must leave."""
    model = Model({"": {"first": Counter()}}, active={"first": True})
    model.walk(steps, (), None)
    return {
        process: {name: dict(tree) for name, tree in sessions.items() if tree or not process}
        for process, sessions in model.trees.items()
    }


def simplified(steps: Sequence[Step], in_task: bool = False) -> tuple[Step, ...]:
    """The program as it is run: generators of tasks do no more than enter scopes in their own parts."""
    made = []
    for step in steps:
        deeper = step.kind == "asyncio" or (in_task and step.kind != "to_thread")
        parts = [simplified(part, deeper) for part in step.parts]
        if in_task and step.kind in ("generator", "decorated generator", "dropped generator"):
            for at in range(1, len(parts), 2):
                parts[at] = tuple(Step("scope", inner.name, ((),)) for inner in parts[at])
        made.append(Step(step.kind, step.name, tuple(parts)))
    return tuple(made)


def shown(steps: Sequence[Step], indent: str = "") -> str:
    """A program as an outline."""
    lines = []
    for step in steps:
        lines.append(f"{indent}{step.kind} {step.name}\n")
        for number, part in enumerate(step.parts):
            lines.append(shown(part, indent + ("  " if len(step.parts) == 1 else f" {number} ")))
    return "".join(lines)


def differences(found: Trees, wanted: Trees) -> Iterator[str]:
    """Where two sets of trees differ, a line for each place."""
    for process in sorted({*found, *wanted}):
        mine, other = found.get(process, {}), wanted.get(process, {})
        for session in sorted({*mine, *other}):
            one, two = mine.get(session, {}), other.get(session, {})
            for place in sorted({*one, *two}):
                if one.get(place) != two.get(place):
                    yield f"  {process} {session}: {place}: {one.get(place)}, not {two.get(place)}"


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
