"""One run of one job on a worker: claim, replay, measure, report."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import msgspec

from deuteron.compiler.errors import DeuteronError
from deuteron.tuner import ConfigRecord, JobSpec, Trial, shape_key
from deuteron.tuner.codec import Document
from deuteron.tuner.events import (
    JobCancelled,
    JobFailed,
    JobFinished,
    TuneEvent,
)
from deuteron.tuner.experience import SearchLog, SearchPlace
from deuteron.tuner.http import ServiceError, ServiceUnreachable

from ..files import is_full, is_older
from .exclusive import exclusive
from .handover import Handover
from .link import Assignment, Link
from .reporter import Reporter
from .spool import KEPT_S, Spool, is_unwanted, leftovers, set_aside

logger = logging.getLogger("deuteron.worker")

_CLAIM_PATIENCE_S = 60.0
# Answers to a token that has expired, was revoked or lacks the scope. The worker is free for the next job, which is
# refused as well: without a pause dozens a second come and go.
_NOT_LET_IN, _NOT_LET_IN_S = (401, 403), 15.0
_DRAIN_PATIENCE_S = 600.0
_UPLOAD_PAUSE_S = 1.0
_ASK_AGAIN_S = 60.0
# Between the folder of a run and its spool pass milliseconds.
_BEGINNING_S = 3600.0
_courier = threading.Lock()


class JobRunner(Protocol):
    """The signature of :func:`deuteron.tuner.run_job`."""

    def __call__(
        self,
        spec: JobSpec,
        *,
        emit: Callable[[TuneEvent], None],
        finished: Iterable[tuple[Mapping[str, int], str, Trial]],
        cancelled: Callable[[], bool],
        workdir: Path,
        known: Callable[[SearchPlace], Iterable[SearchLog]],
    ) -> list[ConfigRecord]: ...


@dataclass(frozen=True, slots=True)
class Bench:
    """What a worker process measures with: its device, and how it reaches the server. ``locks`` is the folder of the
    locks that keep devices exclusive."""

    server_url: str
    token: str
    device: str
    home: Path
    runner: str
    locks: Path

    @property
    def spool(self) -> Path:
        """The folder of this machine's spools."""
        return self.home / "spool"

    @property
    def runs(self) -> Path:
        """The folder in which each run has one of its own."""
        return self.home / "runs"

    @property
    def worker_name(self) -> str:
        """``device@host/pid``: unique among the workers of a fleet."""
        return f"{self.device}@{socket.gethostname()}/{os.getpid()}"


def load_runner(name: str) -> JobRunner:
    """The function that ``module:function`` names.

    Raises:
        DeuteronError: there is no such module or function.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
        return cast(JobRunner, getattr(module, function_name))
    except (ImportError, AttributeError) as error:
        raise DeuteronError(
            f"DEUTERON_RUNNER: {name!r} cannot be loaded: {error}", hint="deuteron.tuner:run_job"
        ) from None


def deliver_leftovers(bench: Bench, link: Link) -> int:
    """Send what dead runs of this machine left in the spool; how many files the server took.

    Raises:
        ServiceUnreachable: the server does not answer; the files stay.
        ServiceError: the server does not accept this worker; the files stay.
    """
    delivered = 0
    with _courier:
        for leftover in leftovers(bench.spool):
            try:
                leftover.deliver(link.deliver)
            except ServiceError as error:
                if not is_unwanted(error.status):
                    raise
                logger.warning("%s is kept for %d days: %s", leftover.path, KEPT_S / 86400, error)
                set_aside(leftover)
                continue
            leftover.path.unlink(missing_ok=True)
            delivered += 1
    return delivered


def forget_dead_runs(bench: Bench) -> None:
    """Remove the folders of runs that were killed. One that is alive, or has something to deliver, has a spool."""
    kept = {path.name.removesuffix(".jsonl").partition(".")[2] for path in bench.spool.glob("*.jsonl")}
    for folder in bench.runs.glob("*"):
        if folder.name not in kept and is_older(folder, _BEGINNING_S):
            shutil.rmtree(folder, ignore_errors=True)


def measure(bench: Bench, job_id: str, ticket: str, handover: Handover) -> str:
    """Run a job to its end and return how the run ended, for the log. ``handover`` gives it back before.

    ``ticket`` names the dispatch: when the engine starts this function again because the worker died, the
    ticket is the same, and the new run takes the job over at once instead of waiting for the lease.
    """
    link = Link(bench.server_url, bench.token)
    claim_id = f"{ticket}.{uuid.uuid4().hex[:12]}"
    try:
        try:
            deliver_leftovers(bench, link)
        except (ServiceUnreachable, ServiceError) as error:
            logger.warning("leftover events stay in the spool: %s", error)
        # Before the claim: a job that waits for the device is queued, and its lease and budget have not begun.
        with exclusive(bench.device, bench.locks):
            try:
                assignment = link.claim(job_id, claim_id, bench.worker_name, patience_s=_CLAIM_PATIENCE_S)
            except ServiceError as error:
                refusal = error
            else:
                return _run_claimed(bench, link, job_id, claim_id, assignment, handover)
        if refusal.status in _NOT_LET_IN:
            logger.error("this worker measures nothing until its token is let in: %s", refusal.message)
            handover.wait(_NOT_LET_IN_S)
        return f"refused: {refusal.message}"
    finally:
        link.close()


def _run_claimed(
    bench: Bench, link: Link, job_id: str, claim_id: str, assignment: Assignment, handover: Handover
) -> str:
    workdir = bench.runs / claim_id
    workdir.mkdir(parents=True, exist_ok=True)
    spool = Spool(bench.spool, job_id, claim_id)
    try:
        with Reporter(link, spool, job_id, claim_id) as reporter, handover.of(reporter):

            def emit(event: TuneEvent) -> None:
                if isinstance(event, JobCancelled | JobFailed) and reporter.given_back:
                    return  # the run ends, not the job, for whatever a process that stops lacks
                if isinstance(event, JobFinished) and event.profile is not None:
                    _upload_profile(link, job_id, claim_id, workdir / event.profile, reporter)
                reporter.emit(event.to_json())

            neighbours = Neighbours(link, job_id)
            _call_runner(bench, assignment, emit, lambda: reporter.stop_requested, workdir, neighbours)
            complete = reporter.drain(_DRAIN_PATIENCE_S)
    finally:
        shutil.rmtree(workdir, ignore_errors=True)
    return "delivered" if complete else "left in the spool"


def _call_runner(
    bench: Bench,
    assignment: Assignment,
    emit: Callable[[TuneEvent], None],
    cancelled: Callable[[], bool],
    workdir: Path,
    known: Callable[[SearchPlace], Iterable[SearchLog]],
) -> None:
    ended = False

    def emit_once(event: TuneEvent) -> None:
        nonlocal ended
        ended = ended or isinstance(event, JobFinished | JobFailed | JobCancelled)
        emit(event)

    try:
        spec = JobSpec.from_json(assignment.spec)
        if spec.device == "cuda":
            spec = msgspec.structs.replace(spec, device=bench.device)
        run = load_runner(bench.runner)
        earlier = [EarlierTrial.from_json(item, "finished trial") for item in assignment.finished]
        finished = [(item.shape, item.dtype, item.trial) for item in earlier]
        run(spec, emit=emit_once, finished=finished, cancelled=cancelled, workdir=workdir, known=known)
    except DeuteronError as error:
        logger.warning("the job failed: %s", error)
        if not ended:
            emit(JobFailed(error.message, error.hint))
    except OSError as error:
        logger.exception("the runner broke")
        if not ended:
            emit(JobFailed(f"this worker's machine: {error}", "is there room on its disk?" if is_full(error) else None))
    except Exception as error:
        # A defect of the runner must end the job with a reason, not as a lost worker.
        logger.exception("the runner broke")
        if not ended:
            emit(JobFailed(f"internal error: {type(error).__name__}: {error}"))


class Neighbours:
    """Asks the server what other jobs know of a search. Without an answer it says what it was told before, or nothing.
    A server that is away is not asked again for a while: each time may take seconds."""

    def __init__(self, link: Link, job_id: str) -> None:
        self._link, self._job_id = link, job_id
        self._told: tuple[SearchLog, ...] = ()
        self._not_before = 0.0

    def __call__(self, place: SearchPlace) -> Iterable[SearchLog]:
        if time.monotonic() < self._not_before:
            return self._told
        try:
            self._told = self._link.searches(self._job_id, place)
        except (ServiceUnreachable, ServiceError) as error:
            self._not_before = time.monotonic() + _ASK_AGAIN_S
            logger.warning("%s %s starts from what this run knows: %s", shape_key(place.shape), place.dtype, error)
        return self._told


class EarlierTrial(Document, frozen=True):
    """A trial that an earlier run of the job finished."""

    shape: Mapping[str, int]
    dtype: str
    trial: Trial


def _upload_profile(link: Link, job_id: str, claim_id: str, path: Path, reporter: Reporter) -> None:
    """Before the job is reported finished, because then the profile is expected to be there. A server that
    is away is waited for, as for the events. A job that was cancelled too late has its profile, too."""
    deadline = time.monotonic() + _DRAIN_PATIENCE_S
    while path.is_file() and not reporter.lost:
        try:
            link.upload_profile(job_id, claim_id, path)
            return
        except ServiceError as error:
            logger.warning("the profile of job %s is not wanted: %s", job_id, error)
            return
        except ServiceUnreachable as error:
            if time.monotonic() > deadline:
                logger.warning("the profile of job %s was not stored: %s", job_id, error)
                return
            time.sleep(_UPLOAD_PAUSE_S)
