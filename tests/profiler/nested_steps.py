"""Programs made up from a seed that nest scopes over tasks, threads, generators and forks, with several sessions at
once, and the trees that they must leave; ``nested_programs.py`` runs them.

A program is a tree of steps. :func:`expected` walks over them with nothing but the path that the program is at, and
counts.

Where threads go is written down as: a new thread is where the main thread is, ``asyncio.to_thread`` where its task is.
So there are no threads of the other kind below tasks, where "the main thread" would be several places at once. Nor do
asynchronous generators make tasks and threads: those are where the consumer is.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
