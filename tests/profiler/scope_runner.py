"""Does the programs of scope_programs.py beside a GPU that is none, and says what the profiler makes of them: where the
program was at each launch, by the number that the launch carried, and the trees.

Programs are deterministic: threads are joined, or wait, where they are started.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gpu_stand_in import FakeGpu
from scope_programs import Step

import deuteron.profiler as proton
from deuteron.profiler import open_scopes
from deuteron.profiler.recorder import recorder
from deuteron.profiler.session import registry

Launch = Callable[..., None]


@dataclass
class Runner:
    """Does steps, and writes down what is seen of them."""

    gpu: FakeGpu
    launch: Launch
    seen: list[object] = field(default_factory=list)
    objects: dict[str, proton.scope] = field(default_factory=dict)
    copies: list[contextvars.Context] = field(default_factory=list)
    started: int = 0

    def run(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            getattr(self, step.kind)(step)

    def look(self, *what: object) -> None:
        """Write down where the program is, and where its launches belong."""
        where: list[object] = []
        if recorder.gpu is not None:
            for target in recorder.gpu.correlations.targets_of(self.gpu.number) or ():
                session = registry.sessions.get(target.phase.session)
                phases = {} if session is None else session.phases
                number = next((number for number, phase in phases.items() if phase is target.phase), None)
                where.append((target.phase.session, number, target.path, target.is_launch))
        self.seen.append((*what, open_scopes.shadow_path(), open_scopes.follows_main(), tuple(where)))

    def tried(self, name: str, step: Callable[[], object]) -> None:
        try:
            step()
        except (proton.UsageError, RuntimeError) as error:
            self.seen.append((name, str(error)))

    # -- scopes

    def kernel(self, step: Step) -> None:
        self.look("kernel")
        if registry.sessions:
            self.gpu.launch(f"kernel {step.name}", 1)

    def scope(self, step: Step) -> None:
        for _ in range(2):
            with proton.scope(step.name):
                self.run(step.body)
        self.look("after")

    def kept(self, step: Step) -> None:
        """An object that is entered again and again, also while it is open."""
        with self.objects.setdefault(step.name, proton.scope(step.name)):
            self.run(step.body)

    def metrics(self, step: Step) -> None:
        with proton.scope(step.name, {"n": 1}):
            self.run(step.body)

    def timed(self, step: Step) -> None:
        with proton.cpu_timed_scope(step.name):
            self.run(step.body)

    def decorated(self, step: Step) -> None:
        proton.scope(step.name)(self.run)(step.body)

    def fails(self, step: Step) -> None:
        with contextlib.suppress(ZeroDivisionError), proton.scope(step.name):
            self.run(step.body)
            raise ZeroDivisionError

    def by_hand(self, step: Step) -> None:
        proton.enter_scope(step.name)
        self.run(step.body)
        self.tried("exit_scope", lambda: proton.exit_scope(step.name))

    def out_of_order(self, step: Step) -> None:
        outer, inner = proton.scope(step.name), proton.scope("inner")
        outer.__enter__()
        inner.__enter__()
        self.run(step.body)
        self.tried("outer", lambda: outer.__exit__(None, None, None))
        self.look("outer is left")
        self.tried("inner", lambda: inner.__exit__(None, None, None))

    def left_twice(self, step: Step) -> None:
        with proton.scope("around"):
            opened = proton.scope(step.name)
            opened.__enter__()
            self.run(step.body)
            for _ in range(2):
                self.tried("left", lambda: opened.__exit__(None, None, None))
                self.look("left")

    def misnamed(self, step: Step) -> None:
        for name in ("", [step.name]):
            self.tried("misnamed", proton.scope(name).__enter__)  # type: ignore[arg-type]
        with proton.scope(type("Name", (str,), {})(step.name)):
            self.run(step.body)

    # -- states

    def state(self, step: Step) -> None:
        with proton.state(f"state {step.name}"):
            self.run(step.body)

    def state_begins(self, step: Step) -> None:
        with proton.scope(step.name):
            self.run(step.body)
        with proton.scope(step.name):
            proton.enter_state(f"state {step.name}")
        self.look("in a state")

    def state_ends(self, step: Step) -> None:
        with proton.scope(step.name):
            proton.exit_state()
            self.run(step.body)

    # -- threads and contexts

    def thread(self, step: Step, context: contextvars.Context | None = None) -> None:
        def work() -> None:
            self.run(step.body)
            self.look("end of thread")

        target = work if context is None else lambda: context.run(work)
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()

    def copied(self, step: Step) -> None:
        """A context is copied here, and run in later, when the scopes around may have been left."""
        with proton.scope(step.name):
            self.copies.append(contextvars.copy_context())
            self.run(step.body)
        if len(self.copies) > 1:
            with contextlib.suppress(RuntimeError):  # one that is being run in
                self.copies[-2].run(self.run, step.body)

    def thread_in_copy(self, step: Step) -> None:
        with proton.scope("copied from"):
            context = contextvars.copy_context()
            self.thread(step, context)
        self.thread(step, context)

    def left_by_thread(self, step: Step) -> None:
        """By hand, in a copy of the context that it was entered in."""
        opened = proton.scope(step.name)
        opened.__enter__()

        def leave() -> None:
            with proton.scope("in thread"):
                self.run(step.body)
            self.tried("left by a thread", lambda: opened.__exit__(None, None, None))
            self.look("left by a thread")

        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: context.run(leave))
        thread.start()
        thread.join()
        self.look("left by a thread")
        with proton.scope(step.name):
            self.run(step.body)

    def left_in_copy(self, step: Step) -> None:
        """Once more, where it still is the last one that was opened."""
        with proton.scope("around"):
            opened = proton.scope(step.name)
            opened.__enter__()
            context = contextvars.copy_context()
            opened.__exit__(None, None, None)
            with proton.scope("then"):
                context.run(lambda: self.tried("left in a copy", lambda: opened.__exit__(None, None, None)))
                self.look("left in a copy")

    def stays(self, step: Step) -> None:
        """A thread stays in a scope while the main thread does more."""
        inside, leave = threading.Event(), threading.Event()

        def deeper(when: str) -> None:
            with proton.scope("deeper"):
                self.look(when)

        def work() -> None:
            with proton.scope(step.name), proton.scope("stays"):
                deeper("early")
                inside.set()
                leave.wait(10)
                deeper("late")
                self.look("stayed")
            self.look("left")
            deeper("after")

        thread = threading.Thread(target=work)
        thread.start()
        inside.wait(10)
        self.run(step.body)
        leave.set()
        thread.join()

    def outlives(self, step: Step) -> None:
        """A thread is in a scope when the one around it is left."""
        inside, leave = threading.Event(), threading.Event()

        def work() -> None:
            with proton.scope("inside"):
                self.look("inside")
                inside.set()
                leave.wait(10)
            self.look("outlived")

        with proton.scope(step.name):
            with proton.scope("inside"):
                pass
            context = contextvars.copy_context()
            thread = threading.Thread(target=lambda: context.run(work))
            thread.start()
            inside.wait(10)
        self.run(step.body)
        leave.set()
        thread.join()

    # -- launches

    def gpu_launch(self, step: Step) -> None:
        def body() -> None:
            self.look("launch")
            self.run(step.body)

        self.launch("kernel", metadata={"name": f"{step.name}!", "flops": 1.0}, device="cuda:0", body=body)
        self.look("launched")

    def cpu_launch(self, step: Step) -> None:
        self.launch(f"on cpu {step.name}", body=lambda: self.run(step.body))

    # -- sessions

    def beside(self, step: Step, **options: str) -> None:
        """A session that begins and ends meanwhile."""
        if len(registry.sessions) > 3:
            return
        self.started += 1
        number = proton.start(f"beside-{self.started}", **options)  # type: ignore[arg-type]
        self.run(step.body)
        assert number is not None
        self.finish(number)

    def finish(self, number: int) -> None:
        """Write down what a session has, and end it."""
        session = registry.sessions.get(number)
        if session is None:
            return
        proton.deactivate(number, flushing=True)
        for phase, data in sorted(session.phases.items()):
            events = [] if data.timeline is None else data.timeline.all_events()
            spans = sorted((event.path, event.category) for event in events if event.category != "launch")
            self.seen.append((number, phase, _shape(data.profile.to_literal()[0]), spans))
        proton.finalize(number)
        self.look("finalized")

    def session(self, step: Step) -> None:
        self.beside(step)

    def frames(self, step: Step) -> None:
        self.beside(step, context="python")

    def trace(self, step: Step) -> None:
        self.beside(step, data="trace")

    def metadata(self, step: Step) -> None:
        self.beside(step, hook="triton")

    def pause(self, step: Step) -> None:
        number = min(registry.sessions, default=None)
        with proton.scope(step.name):
            if number is not None:
                proton.deactivate(number)
            self.look("paused")
            self.run(step.body)
            if number in registry.sessions:
                proton.activate(number)
        self.look("resumed")

    def pause_in_thread(self, step: Step) -> None:
        for change in (proton.deactivate, proton.activate):
            thread = threading.Thread(target=lambda change=change: registry.sessions and change(None))
            thread.start()
            thread.join()
            self.look("changed")
            self.run(step.body)

    def phase(self, step: Step) -> None:
        with proton.scope(step.name):
            number = min(registry.sessions, default=None)
            if number is not None:
                proton.data.advance_phase(number)
            self.run(step.body)

    def restart(self, step: Step) -> None:
        """The last session ends in a scope, and another begins there."""
        with proton.scope(step.name):
            for number in list(registry.sessions):
                self.finish(number)
            self.started += 1
            self.begin(f"again-{self.started}")
            self.run(step.body)

    def whole(self, steps: tuple[Step, ...]) -> list[object]:
        """Everything that is seen of a program that runs twice in a session of its own."""
        self.begin("whole")
        self.run(steps)
        self.run(steps)
        for number in list(registry.sessions):
            self.finish(number)
        return self.seen

    def begin(self, name: str) -> None:
        recorder.start_gpu(required=True, source=self.gpu)
        proton.start(name)

    # -- generators and tasks

    def numbers(self, step: Step) -> Iterator[None]:
        with proton.scope(step.name):
            for inner in step.body:
                yield
                self.run((inner,))
            self.look("in generator")
        yield

    def generator(self, step: Step) -> None:
        for _ in self.numbers(step):
            with proton.scope("consumer"):
                self.look("consumer")

    def suspended(self, step: Step) -> None:
        iterator = self.numbers(step)
        next(iterator)
        self.run(step.body)
        with proton.scope("resumes"):
            list(iterator)
        self.look("resumed")

    async def task(self, steps: tuple[Step, ...], name: str) -> None:
        for step in steps:
            with proton.scope(name):
                await asyncio.sleep(0)
                self.look("in task")
                with proton.scope(step.name):
                    self.look("inside")
            self.run((step,))

    def tasks(self, step: Step) -> None:
        async def both() -> None:
            await asyncio.gather(*(self.task(step.body, name) for name in "ab"))

        self.tried("asyncio", lambda: self.asyncio_run(both()))

    def callback(self, step: Step) -> None:
        """Functions that a loop calls in copies of the context of the moment."""

        async def main() -> None:
            loop = asyncio.get_running_loop()
            for _ in range(2):
                loop.call_soon(self.run, step.body)
                await asyncio.sleep(0)

        self.tried("asyncio", lambda: self.asyncio_run(main()))

    def asyncio_run(self, coroutine: object) -> None:
        try:
            asyncio.run(coroutine)  # type: ignore[arg-type]
        except RuntimeError:  # a loop runs already
            coroutine.close()  # type: ignore[attr-defined]
            raise


def _shape(node: dict) -> object:
    """A tree without times. Kernels come in no order."""
    counts = {name: node["metrics"][name] for name in ("count", "n") if name in node["metrics"]}
    return node["frame"]["name"], counts, sorted((_shape(child) for child in node["children"]), key=str)
