"""Compiling many configurations in parallel child processes."""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait

from ..codec import JsonObject
from ..space import Configuration, config_key
from .child import WORKER, ChildCrashed, ChildProcess, ChildTimeout
from .messages import Compile, Compiled
from .nursery import Nursery


def default_workers() -> int:
    """One per core that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class _Wanted:
    """A configuration of the problem that ``prepare`` says; ``problem`` is its number."""

    key: str
    config: Configuration
    problem: int
    prepare: JsonObject


@dataclass
class _Slot:
    """A process and what it compiles, if anything. ``problem``: of which one it was told last. ``preparing``: the
    number of that request while its answer is still to come; ``compiling``: of the request for ``wanted``, which is
    sent along."""

    child: ChildProcess
    wanted: _Wanted | None = None
    deadline: float = 0.0
    problem: int = 0
    preparing: int | None = None
    compiling: int = 0

    @property
    def busy(self) -> bool:
        """Whether something is compiled."""
        return self.wanted is not None

    @property
    def awaited(self) -> int:
        """The number of the request that is answered next."""
        return self.compiling if self.preparing is None else self.preparing

    def begin(self, wanted: _Wanted, timeout: float) -> None:
        """Compile, in a process that is told of the problem first if it does not know it. Raises
        :class:`ChildCrashed`."""
        self.wanted = wanted
        told = self.problem == wanted.problem and self.child.running
        self.problem = wanted.problem
        self.preparing = None if told else self.child.send("prepare", wanted.prepare)
        self.compiling = self.child.send("compile", Compile(wanted.config).to_json())
        self.deadline = time.monotonic() + timeout  # a template may have had to start before


class CompilePool:
    """Child processes that compile one problem's configurations at a time into the shared disk cache.

    ``submit`` never blocks on a compilation, ``result`` waits for one. A compilation that crashes its process or takes
    longer than ``timeout`` seconds gives the status ``crashed`` or ``timeout``; the process is replaced.
    """

    def __init__(
        self,
        prepare: JsonObject,
        *,
        workers: int | None = None,
        timeout: float = 120.0,
        command: Sequence[str] = WORKER,
        nursery: Nursery | None = None,
    ) -> None:
        self._prepare, self._problem, self._problems = prepare, 1, 1
        self._timeout = timeout
        self.workers = workers or default_workers()
        self._fresh = functools.partial(ChildProcess, command, nursery)
        self._slots = [_Slot(self._fresh()) for _ in range(self.workers)]
        self._queue: deque[_Wanted] = deque()
        self._results: dict[str, Compiled] = {}

    def prepare(self, prepare: JsonObject) -> None:
        """Go over to another problem. What is compiled for the one before is brought to its end and forgotten."""
        self._prepare, self._problem = prepare, self._number()
        self._queue.clear()
        self._results.clear()

    def submit(self, config: Configuration) -> None:
        """Compile ``config`` as soon as a process is free, unless that was asked for before."""
        key = config_key(config)
        busy = {wanted.key for wanted in self._under_way() if wanted.problem == self._problem}
        if key not in self._results and key not in busy:
            self._queue.append(_Wanted(key, config, self._problem, self._prepare))
            self._begin_queued()

    def fill_cache(self, wanted: Sequence[tuple[JsonObject, Configuration]]) -> None:
        """Compile configurations, each of a problem of its own, for whoever looks into the shared cache later, in place
        of what no process has begun yet. There is no outcome."""
        self._queue.clear()
        self._read_arrived()
        for prepare, config in wanted:
            key = config_key(config)
            if not any(other.key == key and other.prepare == prepare for other in self._under_way()):
                self._queue.append(_Wanted(key, config, self._number(), prepare))
        self._begin_queued()

    def result(self, config: Configuration) -> Compiled:
        """The outcome for ``config``, submitted here if it was not before."""
        self.submit(config)
        key = config_key(config)
        while key not in self._results:
            self._wait_for_one()
        return self._results[key]

    def first_done(self, configs: Sequence[Configuration]) -> int:
        """The place of the first of ``configs`` for which there is an outcome; waits until there is one."""
        for config in configs:
            self.submit(config)
        places = {config_key(config): place for place, config in reversed(list(enumerate(configs)))}
        while not (done := places.keys() & self._results.keys()):
            self._wait_for_one()
        return min(places[key] for key in done)

    def is_done(self, configs: Sequence[Configuration]) -> bool:
        """Whether there is an outcome for one of ``configs``; never waits for a compilation."""
        self._read_arrived()
        return any(config_key(config) in self._results for config in configs)

    def settle(self) -> None:
        """Wait until nothing is compiling: timing on the same cores must not be disturbed."""
        while self._queue or any(slot.busy for slot in self._slots):
            self._wait_for_one()

    def drop_work(self) -> list[ChildProcess]:
        """Nothing more is wanted for now. The processes that are at work, in whose place others will be; they are the
        caller's to end."""
        self._queue.clear()
        busy = [slot for slot in self._slots if slot.busy]
        dropped = [slot.child for slot in busy]
        for slot in busy:
            slot.child, slot.wanted = self._fresh(), None
        return dropped

    def close(self) -> None:
        """End the processes, all at the same time; what was still compiling is lost."""
        for slot in self._slots:
            slot.child.kill()
        for slot in self._slots:
            slot.child.end()

    def _under_way(self) -> list[_Wanted]:
        """What is compiled or will be."""
        return [*(slot.wanted for slot in self._slots if slot.wanted is not None), *self._queue]

    def _number(self) -> int:
        self._problems += 1
        return self._problems

    def _read_arrived(self) -> None:
        """Read the answers that are there; never waits."""
        for slot in self._slots:
            while slot.busy and slot.child.arrived:
                self._read_answer(slot)

    def _begin_queued(self) -> None:
        for slot in self._slots:
            if not slot.busy and self._queue:
                try:
                    slot.begin(self._queue.popleft(), self._timeout)
                except ChildCrashed as error:
                    self._finish(slot, Compiled("crashed", str(error)))

    def _wait_for_one(self) -> None:
        """Read the next answer or run into the next deadline."""
        self._begin_queued()
        working = [slot for slot in self._slots if slot.busy]
        if not working:
            return
        readable = [slot.child for slot in working if slot.child.answered]
        if not readable:
            left = min(slot.deadline for slot in working) - time.monotonic()
            ready = wait([slot.child.fileno() for slot in working], max(left, 0))
            readable = [slot.child for slot in working if slot.child.fileno() in ready]
        now = time.monotonic()
        for slot in working:
            if slot.child in readable or slot.deadline <= now:
                self._read_answer(slot)

    def _read_answer(self, slot: _Slot) -> None:
        try:
            answer = slot.child.receive(slot.awaited, slot.deadline)
        except ChildTimeout:
            seconds = self._timeout
            self._finish(slot, Compiled("timeout", f"compiling took more than {seconds:g} s"))
            return
        except ChildCrashed as error:
            self._finish(slot, Compiled("crashed", f"compiling: {error}"))
            return
        if slot.preparing is not None and answer.get("status") == "ok":
            slot.preparing = None
            return
        if slot.preparing is not None:
            slot.child.end()  # it would answer the compilation that was sent along, too
        self._finish(slot, Compiled.from_json(answer))

    def _finish(self, slot: _Slot, compiled: Compiled) -> None:
        if slot.wanted is not None and slot.problem == self._problem:
            self._results[slot.wanted.key] = compiled
        slot.wanted = None
        self._begin_queued()
