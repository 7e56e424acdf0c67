"""Processes that check kernels, each of which may crash or hang: its kernel is a finding then, and another goes on."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path

from .bounds import Discard, Reject
from .outcomes import Outcome, Work, check

#: Seconds for the imports of a new process, and those after which a process that has nothing to do any more is killed.
START_SECONDS, END_SECONDS = 60, 5


def _serve(pipe: Connection) -> None:
    """A child: what comes, until None comes."""
    while (work := pipe.recv()) is not None:
        try:
            outcome = check(work)
        except (Discard, Reject) as error:
            outcome = Outcome(work, "resources", f"no kernel: {error}")
        pipe.send(outcome)


class Child:
    """A process and what it works on."""

    def __init__(self, seconds: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.seconds, self.allowed, self.deadline = seconds + START_SECONDS, seconds, float("inf")
        self.work: Work | None = None
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, work: Work) -> bool:
        """Begin; False if the process is gone."""
        try:
            self.pipe.send(work)
        except OSError:
            return False
        self.work, self.deadline = work, time.monotonic() + self.seconds
        self.seconds = self.allowed
        return True

    def outcome(self) -> Outcome | None:
        """How the work ended; None while it goes on."""
        assert self.work is not None
        made = None
        try:
            if self.pipe.poll():
                made = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(END_SECONDS)
            made = Outcome(self.work, "crashed", f"the process ended with status {self.process.exitcode}")
        if made is None and time.monotonic() > self.deadline:
            made = Outcome(self.work, "hangs", f"no result after {self.allowed:.0f} s")
        if made is not None:
            self.work = None
        return made

    def end(self) -> None:
        self.process.kill()
        self.process.join(END_SECONDS)
        self.pipe.close()


class Team:
    """Children that share work. ``seconds``: for one kernel."""

    def __init__(self, size: int, seconds: float) -> None:
        self.seconds = seconds
        self.cache = tempfile.TemporaryDirectory(prefix="random-kernels-", ignore_cleanup_errors=True)
        with _environment(self.cache.name):
            self.children = [Child(seconds) for _ in range(size)]

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.end()
        self.cache.cleanup()

    def run(self, works: Iterable[Work]) -> Iterator[Outcome]:
        """The outcomes of all work, as they come."""
        waiting, given = iter(works), True
        while True:
            for place, child in enumerate(self.children):
                if child.work is None and given:
                    given = self._give(place, waiting)
            busy = [child for child in self.children if child.work is not None]
            if not busy:
                return
            wait([child.pipe for child in busy], timeout=0.2)
            for place, child in enumerate(self.children):
                outcome = child.outcome() if child.work is not None else None
                if outcome is not None:
                    lost = outcome.kind == "failed" and outcome.work.target == "cuda"  # its context may be
                    if lost or outcome.kind in ("crashed", "hangs"):
                        self._replace(place)
                    yield outcome

    def one(self, work: Work) -> Outcome:
        """The outcome of one kernel."""
        return next(iter(self.run([work])))

    def _give(self, place: int, waiting: Iterator[Work]) -> bool:
        work = next(waiting, None)
        if work is None:
            return False
        while not self.children[place].give(work):
            self._replace(place)
        return True

    def _replace(self, place: int) -> None:
        self.children[place].end()
        with _environment(self.cache.name):
            self.children[place] = Child(self.seconds)


@contextmanager
def _environment(cache: str) -> Iterator[None]:
    """What children inherit: NumPy's products run in one thread, since processes share the cores; modules are found as
    they are here; the user's cache of kernels stays as it is."""
    folders = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[3] / "development")]
    paths = [*folders, *filter(None, [os.environ.get("PYTHONPATH")])]
    changed = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    changed |= {"DEUTERON_CACHE_DIR": cache}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
