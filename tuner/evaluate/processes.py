"""The child processes of a job, which serve one shape after the other: starting one takes longer than a small kernel's
whole search may."""

from __future__ import annotations

from collections.abc import Sequence

from ..codec import JsonObject
from .child import WORKER, ChildProcess
from .compile_pool import CompilePool
from .nursery import Nursery


class Processes:
    """A pool that compiles, and one process that measured and may do so again. Close it at the end.

    ``nursery``: what they are forked from, which other jobs use after this one.
    """

    def __init__(
        self, *, workers: int | None = None, command: Sequence[str] = WORKER, nursery: Nursery | None = None
    ) -> None:
        self._workers, self._command, self._nursery = workers, command, nursery
        self._pool: CompilePool | None = None
        self._idle: ChildProcess | None = None

    def pool(self, prepare: JsonObject) -> CompilePool:
        """The pool, for the problem of ``prepare``; what it was compiling for another one is of no use any more."""
        if self._pool is None:
            if self._nursery is not None:
                self._nursery.begin()
            self._pool = CompilePool(prepare, workers=self._workers, command=self._command, nursery=self._nursery)
        else:
            self._pool.prepare(prepare)
        return self._pool

    def take(self) -> ChildProcess:
        """A process to measure with: the idle one, or one that starts with its first request."""
        taken, self._idle = self._idle, None
        return taken or self.fresh()

    def fresh(self) -> ChildProcess:
        """A process that has measured nothing; it starts with its first request."""
        return ChildProcess(self._command, self._nursery)

    def give_back(self, child: ChildProcess) -> None:
        """Keep a process for the next problem, which must not wait for what this one began, nor read its answers: a
        process that owes one is ended, and started again when it is needed."""
        if child.owes:
            child.kill()
        if self._idle is not None:
            self._idle.kill()
        self._idle = child

    def close(self) -> None:
        """End all of them; what was still compiling is lost."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._idle is not None:
            self._idle.kill()
            self._idle = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
