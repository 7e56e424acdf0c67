"""Evaluating configurations: the interface that searches use, and the one that runs on this machine."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from ..codec import JsonObject, Scalar
from ..space import Configuration
from ..workloads import Problem
from .finals import FinalProcesses
from .hanging import ScreenLimit
from .measuring import PREPARE_SECONDS
from .messages import Compiled, Extend, Extended, Prepare, Race, Raced, Screen, Screened
from .processes import Processes

if TYPE_CHECKING:
    from .growth import LargerVariant

#: For larger problems so many variants are compiled ahead: of a final of three all, at three shapes each, even where
#: two of a configuration's numbers are made larger besides.
MOST_LARGER = 27


class Evaluator(Protocol):
    """Compiles, checks and times configurations of one problem. Nothing a configuration does raises: failures are
    statuses. ``exclusive``: compiling would disturb timing (same cores), so searches settle before they screen."""

    exclusive: bool
    workers: int

    def submit(self, config: Configuration) -> None:
        """Start compiling in the background."""
        ...

    def compiled(self, config: Configuration) -> Compiled:
        """Wait for the compilation of ``config``."""
        ...

    def next_compiled(self, configs: Sequence[Configuration]) -> int:
        """The place of the first of ``configs`` that are compiled; waits until one of them is."""
        ...

    def must_wait(self, configs: Sequence[Configuration]) -> bool:
        """Whether none of ``configs`` is known to be compiled."""
        ...

    def settle(self) -> None:
        """Wait until nothing compiles."""
        ...

    def screen(
        self, config: Configuration, best_ns: float | None, meanwhile: Callable[[], None] = lambda: None
    ) -> Screened:
        """Check, then a first look at the time; ``best_ns`` lets hopeless candidates end early. ``meanwhile`` is called
        once the device is at work, where what this process does then disturbs nothing."""
        ...

    def prepare_final(self, seed: int) -> None:
        """A final of ``seed`` will follow: begin to prepare its process where that disturbs nothing."""
        ...

    def prepare_next_problem(self, problem: Problem, default: Mapping[str, Scalar]) -> None:
        """Another problem will follow, with room for both: begin to prepare it where that disturbs nothing. Another
        thread may say so while this one measures."""
        ...

    def race(
        self,
        configs: Sequence[Configuration],
        *,
        rounds: int,
        seconds: float,
        seed: int,
        fresh: bool,
    ) -> Raced:
        """Time candidates in interleaved rounds, the default first. ``fresh``, for the final: in another
        process, on new inputs, checked again, and only until the verdicts on all of them are settled."""
        ...

    def extend(self, config: Configuration, seed: int) -> Extended:
        """Try ``config``, which is right at the problem's shape, at larger ones."""
        ...

    def close(self) -> None:
        """Nothing more is evaluated."""
        ...


class ProblemPhase(Enum):
    """What measures a problem. A search that fails before its finals closes its evaluator while it screens."""

    #: One process screens, and races what was fastest. Those of finals prepare beside it.
    SCREENING = auto()
    #: Each final has a process of its own. What screened is given back, and prepares the next problem as soon as that
    #: is known, which may be after this one is closed.
    FINALS = auto()


class LocalEvaluator:
    """Child processes on this machine: a pool that compiles and one that measures on the device.

    Where memory has no room for several that measure, and on a CPU, whose times need all cores, one ends before the
    next one starts, and nothing is prepared ahead.

    ``processors``: SMs or cores of the device; ``processes``: those of a job, which other problems had before; without
    them there are some for this problem alone. ``ahead``: whether memory has room for processes that prepare before
    they are needed. ``patience``: seconds that preparing may take. ``larger``: what extending a configuration begins
    with, which is compiled while others are timed.
    """

    def __init__(
        self,
        problem: Problem,
        device: str,
        target: str,
        kind: str,
        default: Configuration,
        seed: int,
        *,
        processors: int | None = None,
        timeout: float = 60.0,
        processes: Processes | None = None,
        ahead: bool = True,
        patience: float = PREPARE_SECONDS,
        larger: Callable[[Configuration], Iterable[LargerVariant]] = lambda config: (),
    ) -> None:
        self.exclusive = kind == "cpu"
        self._processes, self._shared = processes or Processes(), processes is not None
        base = Prepare(problem.spec, problem.dims, problem.dtype, target, processors)
        self._base, self._larger = base, larger
        self._pool = self._processes.pool(base.to_json())
        self._prepare = replace(base, device=device, default=default, seed=seed)
        self._timeout, self._patience = timeout, patience
        self._screen_limit = ScreenLimit(timeout)
        self._measuring = self._processes.take_screening(self._prepare, limited=self.exclusive)
        self._ahead = ahead and not self.exclusive
        self._finals = FinalProcesses(self._processes, self._prepare)
        if not self._ahead:
            self._processes.end_finals()
        self._phase = ProblemPhase.SCREENING
        self._next_problem: Prepare | None = None
        self._lock = threading.Lock()  # of the phase and the next problem: whichever comes second begins with that
        self.workers = self._pool.workers

    def submit(self, config: Configuration) -> None:
        """Hand ``config`` to the compile pool. On a GPU the measuring process prepares meanwhile."""
        self._pool.submit(config)
        if not self.exclusive:
            self._measuring.begin_preparing()

    def compiled(self, config: Configuration) -> Compiled:
        """What became of compiling ``config``; waits for it."""
        return self._pool.result(config)

    def next_compiled(self, configs: Sequence[Configuration]) -> int:
        """The place of the first of ``configs`` that the pool is done with; waits for one."""
        return self._pool.first_done(configs)

    def must_wait(self, configs: Sequence[Configuration]) -> bool:
        """Whether :meth:`next_compiled` would wait."""
        return not self._pool.is_done(configs)

    def settle(self) -> None:
        """Wait until the pool is idle."""
        self._pool.settle()

    def screen(
        self, config: Configuration, best_ns: float | None, meanwhile: Callable[[], None] = lambda: None
    ) -> Screened:
        """Check and time ``config`` in the measuring process; a crash or a hang is a status."""
        request, asked = Screen(config, best_ns).to_json(), None if self.exclusive else meanwhile
        limit = self._screen_limit.seconds
        answer = self._measuring.request("screen", request, limit, asked, patience=self._patience)
        self._finals.prepare_wanted()
        screened = Screened.from_json(answer)
        if screened.status == "ok":
            self._screen_limit.note(screened.check_seconds + screened.measure_seconds)
        return screened

    def prepare_final(self, seed: int) -> None:
        """Prepare another process beside what is measured, once what measures first has begun to; on a CPU it would
        take the cores of that."""
        if not self._ahead:
            return
        self._finals.want(seed)
        if self._measuring.has_begun:
            self._finals.prepare_wanted()

    def prepare_next_problem(self, problem: Problem, default: Mapping[str, Scalar]) -> None:
        """Prepare what screened for it once that is free, under the same conditions."""
        if not self._ahead:
            return
        with self._lock:
            self._next_problem = replace(self._prepare, dims=problem.dims, dtype=problem.dtype, default=default)
            if self._phase is ProblemPhase.FINALS:
                self._processes.prepare_next_problem(self._next_problem)

    def race(
        self,
        configs: Sequence[Configuration],
        *,
        rounds: int,
        seconds: float,
        seed: int,
        fresh: bool,
    ) -> Raced:
        """Time ``configs`` in the measuring process, in another one if ``fresh``; ``seconds`` is for timing alone,
        checks come on top."""
        if fresh:
            self._go_over_to_final(seed)
        request = Race(tuple(configs), rounds, seconds, seed, final=fresh)
        limit = self._timeout * max(1, len(configs)) + seconds
        answer = self._measuring.request(
            "race", request.to_json(), limit, lambda: self._compile_larger(configs), patience=self._patience
        )
        return Raced.from_json(answer)

    def extend(self, config: Configuration, seed: int) -> Extended:
        """Try larger shapes in the process that measured last; a crash or a hang is a status."""
        self._compile_larger([config], 1)  # in place of what is left of the others; the first one that process makes
        request = Extend(config, seed).to_json()
        return Extended.from_json(self._measuring.request("extend", request, self._timeout))

    def _compile_larger(self, configs: Sequence[Configuration], begin: int = 0) -> None:
        """Begin to compile ``configs``, one of which will be extended, for larger problems, first what challenges the
        default, from the variant ``begin`` on, now that nothing else waits for the pool: as many as it has processes,
        since nobody reads its answers before the device's. On a CPU that would disturb what is timed."""
        if self.exclusive:
            return
        variants = (variant for config in (*configs[1:], *configs[:1]) for variant in self._larger(config))
        wanted = [
            (self._prepare_for(variant), variant.config) for variant in itertools.islice(variants, begin, MOST_LARGER)
        ]
        self._pool.fill_cache(wanted)

    def _prepare_for(self, variant: LargerVariant) -> JsonObject:
        """What tells a process that compiles of the variant's problem."""
        dims, target, processors = variant.problem.dims, variant.target, variant.processors
        return replace(self._base, dims=dims, target=target, processors=processors).to_json()

    def close(self) -> None:
        """Leave the processes to the next problem, or end them where they are of this one alone."""
        self._finals.give_back()
        if self._phase is ProblemPhase.SCREENING or not self._ahead:
            self._processes.give_back_screening(self._measuring)
        if not self._shared:
            self._processes.close()

    def _go_over_to_final(self, seed: int) -> None:
        if not self._ahead:
            self._phase = ProblemPhase.FINALS
            self._measuring.end()
            self._measuring = self._processes.take_final(replace(self._prepare, seed=seed), limited=self.exclusive)
            return
        if self._phase is ProblemPhase.SCREENING:
            self._end_screening()
        self._measuring = self._finals.take(seed)

    def _end_screening(self) -> None:
        """What screened is free for the next problem, and begins with it if that is known by now."""
        with self._lock:
            self._phase = ProblemPhase.FINALS
            self._processes.give_back_screening(self._measuring)
            if self._next_problem is not None:
                self._processes.prepare_next_problem(self._next_problem)
