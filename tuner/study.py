"""Running a job: every shape and dtype, with events, resumption and a profile."""

from __future__ import annotations

import functools
import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from deuteron.compiler.counting import counted
from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.folders import make_folder
from deuteron.compiler.runtime.arrays.dtypes import item_bytes
from deuteron.compiler.runtime.devices import get_device

from .decision import choose, decide
from .errors import JobError, SpaceError, WorkloadError
from .evaluate.evaluator import Evaluator
from .evaluate.messages import Extended
from .evaluators import EvaluatorFactory, local_evaluators
from .events import (
    JobCancelled,
    JobFailed,
    JobFinished,
    JobStarted,
    ShapeFinished,
    ShapeStarted,
    TrialFinished,
    TuneEvent,
)
from .experience import Companions, SearchLog, SearchPlace, Start, Waves, known_at, logs_of_trials, start_from
from .failures import ShapesFailed
from .job import JobSpec, shape_key, task_key
from .ledger import Ledger
from .measure.gauge import Gauge, Peaks
from .plan import Outset, Planner, SearchPlan
from .possible import check_possible, check_room, has_room
from .records import ConfigRecord, DeviceFingerprint, current_toolchain
from .records.reach import Reach
from .screening import Screening
from .search_profile import FILE_NAME, SearchProfile
from .search_run import Cancelled, SearchRun
from .setups import Finished, measured_with, setup_of
from .shape_search import search_shape
from .step_clock import BEGIN, END, LARGER, PROPOSE, StepClock
from .strategies import STARTING_FROM_OTHERS, make_strategy
from .trial import Trial
from .workloads import Problem, builtin_workload
from .workloads.references import INTERPRETER

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import Device, DeviceProperties

#: Asked before each search for what others measured near its place.
Known: TypeAlias = Callable[[SearchPlace], Iterable[SearchLog]]
_MOST_NAME_BYTES = 200


def run_job(
    spec: JobSpec,
    *,
    emit: Callable[[TuneEvent], None],
    finished: Finished = (),
    cancelled: Callable[[], bool] = lambda: False,
    workdir: Path,
    evaluator: EvaluatorFactory | None = None,
    known: Known = lambda place: (),
) -> list[ConfigRecord]:
    """Tune every shape and dtype of a job; the records, in order.

    ``emit`` gets each event as it happens, in this thread. ``finished``: trials of an earlier run of the same job; they
    are taken over, never measured again, and not emitted again, unless another device or toolchain measured them.
    ``cancelled`` is asked between trials; when it says True the records so far are returned after a JobCancelled event.
    The profile is written to ``workdir`` as ``search.hatchet``. ``known`` is asked before each search, which starts
    from what it answers and from the shapes and dtypes of this job that are finished. ``evaluator``: None for child
    processes on this machine.

    Raises:
        DeuteronError: the job cannot run (no such device, empty space, no configuration works); a JobFailed event with
            the same text was emitted before. What cannot be tuned at all is refused before anything is measured; of
            several shapes the others are tuned before :class:`ShapesFailed` says which have no result.
    """
    with local_evaluators(spec.device, spec.budget.seconds) if evaluator is None else nullcontext(evaluator) as make:
        try:
            return _JobRun(spec, emit, finished, cancelled, workdir, make, known).run()
        except DeuteronError as error:
            emit(JobFailed(error.message, error.hint))
            raise


@dataclass
class _Task:
    problem: Problem
    trials: list[Trial]


class _JobRun:
    def __init__(
        self,
        spec: JobSpec,
        emit: Callable[[TuneEvent], None],
        finished: Finished,
        cancelled: Callable[[], bool],
        workdir: Path,
        evaluator: EvaluatorFactory,
        known: Known,
    ) -> None:
        self._began = time.monotonic()
        self._known = known
        self._own: dict[str, list[SearchLog]] = {}
        self._spec = spec
        self._emit = emit
        self._cancelled = cancelled
        self._workdir = workdir
        self._evaluator = evaluator
        self._device = get_device(spec.device)
        self._planner = Planner(self._device, self._start)
        self._fingerprint = DeviceFingerprint.of(self._device.properties)
        self._setup = setup_of(self._device)
        self._profile = SearchProfile(self._device.properties)
        self._tasks = [_Task(problem, []) for problem in spec.problems()]
        self._take_over(measured_with(self._setup, finished))

    def run(self) -> list[ConfigRecord]:
        for task in self._tasks:
            with self._naming(task):
                check_possible(task.problem, self._device.properties)
            check_room(task.problem, self._device.properties)
        make_folder(self._workdir)
        budget = self._spec.budget
        self._emit(
            JobStarted(
                self._spec.workload.kernel.name,
                self._fingerprint.key,
                self._spec.strategy,
                len(self._tasks),
                budget.trials,
                budget.seconds,
            )
        )
        records: list[ConfigRecord] = []
        failed: list[JobError] = []
        try:
            for index, task in enumerate(self._tasks):
                try:
                    with self._naming(task):
                        records.append(self._tune(task, self._share(len(self._tasks) - index)))
                except JobError as error:
                    failed.append(error)
        except Cancelled:
            self._profile.write(self._workdir, FILE_NAME)
            self._emit(JobCancelled())
            return records
        finally:
            self._planner.close()
        digest = self._profile.write(self._workdir, FILE_NAME)
        if failed:
            raise failed[0] if len(self._tasks) == 1 else ShapesFailed(failed, records, len(self._tasks))
        ids = tuple(record.id for record in records)
        self._emit(JobFinished(ids, time.monotonic() - self._began, FILE_NAME, digest))
        return records

    @contextmanager
    def _naming(self, task: _Task) -> Iterator[None]:
        """What goes wrong with one of several shapes says with which."""
        try:
            yield
        except (JobError, SpaceError, WorkloadError) as error:
            if len(self._tasks) == 1:
                raise
            where = f"{shape_key(task.problem.dims)} {task.problem.dtype}"
            raise JobError(f"{where}: {error.message}", hint=error.hint) from error

    def _take_over(self, finished: Finished) -> None:
        done: dict[str, list[Trial]] = {}
        for shape, dtype, trial in finished:
            done.setdefault(task_key(shape, dtype), []).append(trial)
        for task in self._tasks:
            task.trials += sorted(done.get(task_key(task.problem.dims, task.problem.dtype), []), key=_number)

    def _share(self, tasks_left: int) -> float | None:
        """The part of the time budget for the next task; what one leaves over goes to those after it."""
        total = self._spec.budget.seconds
        if total is None:
            return None
        return max(total - (time.monotonic() - self._began), 0.0) / tasks_left

    def _tune(self, task: _Task, seconds: float | None) -> ConfigRecord:
        problem, clock = task.problem, StepClock()
        with clock.step(BEGIN):
            outset = self._planner.outset(problem)
        plan, start = outset.plan, outset.start
        names = () if start is None else start.names
        size = plan.space.count()
        self._emit(ShapeStarted(problem.dims, problem.dtype, size, problem.flops, problem.bytes, plan.held, names))
        profile = SearchProfile(self._device.properties)
        for trial in task.trials:
            profile.add(problem, trial)
            self._profile.add(problem, trial)

        def finish(trial: Trial, incumbent: str | None) -> None:
            profile.add(problem, trial)
            self._profile.add(problem, trial)
            self._emit(TrialFinished(problem.dims, problem.dtype, trial, incumbent))

        final, report, settled = Ledger(task.trials).complete("final"), None, None
        if final:
            extended = self._extend(task, plan, final)
        else:
            final, screening, extended = self._search(task, outset, seconds, finish, clock)
            settled, course = screening.ended, screening.course
            report = None if course is None else course.report(self._spec.budget.trials)
        # Not to the shape's own, which a run that takes all of its trials over makes again, byte for byte.
        self._profile.add_steps(problem, clock.seconds)
        digest = profile.write(self._workdir, _profile_name(problem))
        reach = reach_of(plan, extended)
        doubt = doubt_of(problem, task.trials)
        decided = decide(problem, final, self._fingerprint, current_toolchain(self._device), reach)
        record = replace(
            decided,
            trials=sum(trial.phase == "screen" for trial in task.trials),
            profile_sha256=digest,
            checked=decided.checked and doubt is None,
        )
        self._emit(ShapeFinished(record, report, settled, doubt))
        self._learn(task)  # whose trials may be of an earlier run
        return record

    def _start(self, plan: SearchPlan, least: int = 0) -> Start | None:
        """Where a search begins; None where nothing is known, or the strategy does not use it, or where fewer than
        ``least`` configurations are known for its device and text."""
        if self._spec.strategy not in STARTING_FROM_OTHERS:
            return None
        problem, key = plan.problem, self._fingerprint.key
        source = problem.source
        place = SearchPlace(source.name, source.hash, key, dict(problem.dims), problem.dtype)
        own = [*self._own.values()]  # at once: a search that asks what companions know does so in another thread
        logs = [*itertools.chain.from_iterable(own), *self._known(place)]
        if known_at(place, logs) < least:
            return None
        processors = self._device.properties.sm_count or 1
        return start_from(plan.space, place, logs, Waves(problem.spec, problem.dtype, processors).at) if logs else None

    def _companions(self, outset: Outset) -> Companions | None:
        """Those that may know more while the search goes on; None for a strategy that does not use it."""
        if self._spec.strategy not in STARTING_FROM_OTHERS:
            return None
        return Companions(functools.partial(self._planner.start_again, outset.plan), outset.start)

    def _learn(self, task: _Task) -> None:
        """Let what a task screened be known to those after it."""
        source, dims, dtype = task.problem.source, task.problem.dims, task.problem.dtype
        finished = ((dims, dtype, trial) for trial in task.trials)
        logs = logs_of_trials(source.name, source.hash, self._fingerprint.key, finished)
        self._own[task_key(dims, dtype)] = logs

    def _search(
        self,
        task: _Task,
        outset: Outset,
        seconds: float | None,
        finish: Callable[[Trial, str | None], None],
        clock: StepClock,
    ) -> tuple[list[Trial], Screening, Extended]:
        """The trials of the final, the screening before it, and where else the best is right."""
        spec, plan = self._spec, outset.plan
        with clock.step(BEGIN):
            evaluator = self._evaluator(task.problem, self._device, plan.default, spec.seed)
        try:
            search = SearchRun(
                problem=task.problem,
                evaluator=evaluator,
                gauge=gauge_of(task.problem, self._device.properties),
                finish=finish,
                cancelled=self._cancelled,
                seconds=seconds,
                seed=spec.seed,
                trials=task.trials,
                setup=self._setup,
                clock=clock,
            )
            with clock.step(PROPOSE):
                screening = Screening(
                    search,
                    plan.default,
                    lambda start: make_strategy(
                        spec.strategy, plan.space, spec.seed, None if start is None else start.prior
                    ),
                    max_trials=spec.budget.trials,
                    settle=spec.budget.settle is True,
                    start=outset.start,
                    companions=self._companions(outset),
                )
            found = search_shape(search, screening, lambda: self._before_races(task, evaluator))
            with clock.step(LARGER):
                extended = evaluator.extend(choose(found).stored.config, spec.seed)
            return found, screening, extended
        finally:
            with clock.step(END):
                evaluator.close()

    def _extend(self, task: _Task, plan: SearchPlan, final: list[Trial]) -> Extended:
        """Where else what an earlier run found is right."""
        evaluator = self._evaluator(task.problem, self._device, plan.default, self._spec.seed)
        try:
            return evaluator.extend(choose(final).stored.config, self._spec.seed)
        finally:
            evaluator.close()

    def _before_races(self, task: _Task, evaluator: Evaluator) -> None:
        """Nothing more is screened. Begin with the next problem while the device measures this one; on a CPU that would
        disturb it."""
        self._learn(task)
        following = next((after for before, after in itertools.pairwise(self._tasks) if before is task), None)
        if evaluator.exclusive or following is None or Ledger(following.trials).complete("final"):
            return
        roomy = has_room(following.problem, self._device.properties)

        def prepare(plan: SearchPlan) -> None:
            if roomy:
                evaluator.prepare_next_problem(plan.problem, plan.default)

        self._planner.begin(following.problem, prepare)


def warm_up(device: Device) -> None:
    """Load what the first job on a GPU would wait for, most of a second: the language, the compiler, what proposes."""
    spec = builtin_workload("matmul")
    plan = SearchPlan.of(Problem(spec, spec.shapes[0], spec.dtypes[0]), device)
    make_strategy(JobSpec(spec, spec.shapes[:1], spec.dtypes[:1]).strategy, plan.space, 0)


def doubt_of(problem: Problem, trials: list[Trial]) -> str | None:
    """Why what is stored may be wrong, where it says itself what is expected; None where another one agrees with it."""
    others = Ledger(trials).contradicted() if problem.spec.reference == INTERPRETER else 0
    if not others:
        return None
    return (
        f"the default alone gives what it says itself is right: the result of {counted(others, 'other')} is wrong, "
        "or the default does not cover this shape"
    )


def reach_of(plan: SearchPlan, extended: Extended) -> Reach:
    """What is known of a configuration at other shapes than that of its search."""
    dims = plan.problem.dims
    doubts = (
        extended.doubts if extended.status == "ok" else dict.fromkeys(dims, f"none could be tried: {extended.error}")
    )
    rules = Reach.of(plan.space, dims)
    return replace(rules, sizes=extended.sizes, doubts=doubts, together=extended.together)


def gauge_of(problem: Problem, properties: DeviceProperties) -> Gauge:
    """What variants of a problem are judged by on a device."""
    peaks = Peaks.of(properties, 8 * item_bytes(problem.dtype))
    return Gauge(problem.flops, problem.bytes, peaks, properties.sm_count)


def _profile_name(problem: Problem) -> str:
    """The file of a shape's own profile. File systems end names at 255 bytes; a shape may have many dims."""
    shape = shape_key(problem.dims)
    if len(shape.encode()) > _MOST_NAME_BYTES:
        shape = hashlib.sha256(shape.encode()).hexdigest()
    return f"search-{shape}-{problem.dtype}.hatchet"


def _number(trial: Trial) -> int:
    return trial.number
