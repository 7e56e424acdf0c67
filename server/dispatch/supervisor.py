"""The loop that keeps the engine busy with what the database says is to be done."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from deuteron.compiler.errors import DeuteronError

from ..database import DatabaseLost
from ..files import remove_parts
from ..interrupts import interrupts_blocked
from ..learning.trainer import Trainer
from ..settings import EMBEDDED, Settings
from ..store import Job, JobState, NotFound, ServiceStore
from .ingest import Ingest
from .leadership import dispatch_lock
from .leases import LeaseClock
from .openings import Openings
from .resources import detected_devices
from .roster import Roster
from .run import Bench
from .spool import KEPT_S, leftovers, set_aside

if TYPE_CHECKING:
    from .engine import Dispatched, Engine

logger = logging.getLogger("deuteron.dispatch")

_ROUND_S = 0.5
_RECONNECT_S = 2.0
_SPOOL_WAIT_S = 2.0
_STANDBY_S = 1.0
# Waiting jobs for one device that a round looks at: thousands would only make it longer.
_AHEAD = 64


class DaskDispatcher:
    """Runs in a thread of the server process. See :class:`deuteron.server.dispatch.Dispatcher`."""

    def __init__(
        self, settings: Settings, store: ServiceStore, ingest: Ingest, token: str, trainer: Trainer | None = None
    ) -> None:
        self._settings = settings
        self._store = store
        self._ingest = ingest
        self._token = token
        self._trainer = trainer
        self._embedded = settings.scheduler == EMBEDDED
        self._devices = detected_devices() if self._embedded else None
        self._lock = dispatch_lock(store.database.engine)
        self._leads = False
        self._waits = False  # for the server that leads, as the log says
        self._roster = Roster(store)
        self._patience = LeaseClock(settings.lease_seconds)
        self._engine: Engine | None = None
        self._dispatched: dict[str, Dispatched] = {}
        # Runs that a lost scheduler took with it: the jobs are not to blame.
        self._excused: set[str] = set()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, server_url: str) -> None:
        """Start the thread; workers come up in the background."""
        self._thread = threading.Thread(
            target=self._thread_main, args=(server_url,), name="deuteron-dispatch", daemon=True
        )
        self._thread.start()

    def wake(self) -> None:
        """Look at the queue now."""
        self._wake.set()

    @property
    def leads(self) -> bool:
        """Whether this process has the database's lock and dispatches."""
        return self._leads

    def devices(self) -> list[str] | None:
        """This machine's devices with an embedded cluster, None with a scheduler elsewhere."""
        return self._devices

    def close(self) -> None:
        """Stop the thread within 20 s; embedded workers end with it."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=20)

    def _thread_main(self, server_url: str) -> None:
        with interrupts_blocked():
            self._run(server_url)

    def _run(self, server_url: str) -> None:
        while not self._closing.is_set():
            self._leads = self._takes_lock()
            if self._leads:
                # This thread has to outlive whatever the database does: nobody would dispatch after it.
                self._guarded(lambda: self._lead(server_url))
                if self._trainer is not None:
                    self._trainer.stop()
                self._leads = False
                self._lock.release()
            self._closing.wait(_STANDBY_S)

    def _takes_lock(self) -> bool:
        if self._store.database.is_lost():
            return False
        try:
            taken = self._lock.acquire()
        except (OSError, SQLAlchemyError) as error:
            logger.warning("the lock of the database cannot be asked for: %s", error)
            return False
        if not taken and not self._waits:
            logger.info("another server dispatches the jobs of this database; this one takes over when it ends")
        self._waits = not taken
        return taken

    def _may_lead(self) -> bool:
        """Until this dispatcher is closed, or the lock or the database is lost."""
        return not self._closing.is_set() and self._lock.held() and not self._store.database.is_lost()

    def _lead(self, server_url: str) -> None:
        """Dispatch while it may."""
        self._patience.begin()
        self._guarded(self._recover)
        for name in ("bundles", "profiles"):
            remove_parts(self._settings.directory(name))
        if self._trainer is not None:
            self._trainer.start()
        while self._may_lead():
            try:
                self._engine = self._open(server_url)
            except (OSError, RuntimeError) as error:
                failure = (
                    "the workers do not start" if self._embedded else f"{self._settings.scheduler} does not answer"
                )
                logger.warning("%s: %s", failure, error)
                self._closing.wait(_RECONNECT_S)
                continue
            self._serve(self._engine)
            self._forget_engine(self._engine)
        if self._embedded and self._closing.is_set():
            self._ingest.release_running("the server was stopped")

    def _forget_engine(self, engine: Engine) -> None:
        if not self._closing.is_set():
            self._guarded(self._excuse_running)
        self._dispatched.clear()
        if self._lock.held() and (self._embedded or not engine.connected):
            self._guarded(self._roster.note_nobody)
        self._roster.clear()
        self._engine = None
        engine.close()

    def _excuse_running(self) -> None:
        with self._store.read() as tx:
            running = tx.jobs.in_state(JobState.RUNNING)
        self._excused = {job.claim_id for job in running if job.claim_id is not None}

    def _open(self, server_url: str) -> Engine:
        from .engine import Engine  # lazy: dask takes half a second

        if not self._embedded:
            return Engine.connect(self._settings.scheduler)
        home = self._settings.home
        benches = [
            Bench(server_url, self._token, device, home, self._settings.runner, self._settings.lock_folder)
            for device in self._devices or ()
        ]
        return Engine.embedded(
            benches,
            self._settings.directory("workers"),
            allowed_failures=self._settings.max_attempts,
        )

    def _serve(self, engine: Engine) -> None:
        """While it may lead and the scheduler is there."""
        while self._may_lead():
            if not engine.connected:
                logger.warning("the connection to the scheduler is lost")
                return
            self._guarded(lambda: self._look_at_workers(engine))
            self._guarded(self._reap)
            self._guarded(self._expire_leases)
            self._guarded(lambda: self._submit_queued(engine))
            self._wake.wait(_ROUND_S)
            self._wake.clear()

    def _look_at_workers(self, engine: Engine) -> None:
        try:
            asked = self._roster.look(engine)
        except SQLAlchemyError as error:
            logger.warning("who is there was not noted: %s", error)
            asked = True
        if asked:
            engine.heal()

    def _guarded(self, step: Callable[[], None]) -> None:
        """One round may fail (a busy database, a scheduler that restarts); the next one tries again."""
        try:
            step()
        except DatabaseLost:
            pass  # which the log has
        except Exception:
            logger.exception("a round of the dispatcher failed")

    def _recover(self) -> None:
        """After a restart: store what dead workers left behind, and queue their jobs again.

        Embedded workers die with their server. Workers elsewhere do not: their jobs get a full lease in
        which to report, and are queued again only when they stay silent.
        """
        if not self._embedded:
            return
        spool = self._settings.directory("spool")
        deadline = time.monotonic() + _SPOOL_WAIT_S
        unwanted = self._store_leftovers(spool)
        while len(list(spool.iterdir())) > unwanted and time.monotonic() < deadline:
            time.sleep(0.1)  # a worker of the old server is still on its way out
            unwanted = self._store_leftovers(spool)
        self._ingest.release_running("the server was restarted")

    def _store_leftovers(self, spool: Path) -> int:
        """How many files stay that nobody holds: they are of no job of this database."""
        unwanted = 0
        for leftover in leftovers(spool):
            try:
                leftover.deliver(self._ingest.deliver)
            except (NotFound, DeuteronError) as error:
                logger.warning("%s is kept for %d days: %s", leftover.path, KEPT_S / 86400, error)
                set_aside(leftover)
                unwanted += 1
                continue
            leftover.path.unlink(missing_ok=True)
        return unwanted

    def _submit_queued(self, engine: Engine) -> None:
        """Give the engine as many of the jobs that wait as there are workers free for them; where no worker is known,
        one for each device, which who joins finds there."""
        # A job has ended in the database a moment before its run ends. The engine, which counts runs, would think all
        # workers equally busy in that moment and could queue the next job behind another one's.
        unfinished = [job_id for job_id, dispatched in self._dispatched.items() if not dispatched.done]
        with self._store.read() as tx:
            waiting = tx.jobs.waiting(limit=_AHEAD)
            busy = tx.jobs.at_workers(unfinished)
            last_runs = {job_id: tx.events.last_run(job_id) for _, job_id, _ in waiting if job_id in self._dispatched}
        among = self._roster.admitted()
        openings = Openings(self._roster.workers, busy)
        given: set[str] = set()
        for _, job_id, device in waiting:
            dispatched = self._dispatched.get(job_id)
            if dispatched is not None and (dispatched.among != among or dispatched.has(last_runs[job_id])):
                # It waits at a worker that is drained by now, or could go to one that is not any more; or its worker
                # gave it back, which Dask may not know and takes for a death. If it begins in this very moment, the run
                # that is given it now finds it taken.
                self._dispatched.pop(job_id).cancel()
            elif dispatched is not None:
                given.add(device)
                openings.take(device)  # which it has not begun with yet
        for number, job_id, device in waiting:
            if job_id in self._dispatched or among == frozenset():
                continue
            try:
                fits = openings.take(device) or (device not in given and not openings.has_any(device))
            except DeuteronError as error:
                self._ingest.fail(job_id, str(error))
                continue
            if fits:
                given.add(device)
                self._submit(engine, job_id, device, among, number)

    def _submit(self, engine: Engine, job_id: str, device: str, among: frozenset[str] | None, number: int) -> None:
        dispatched = self._dispatched[job_id] = engine.submit(job_id, uuid.uuid4().hex, device, among, place=number)
        dispatched.when_done(self._wake.set)
        logger.info("job %s waits for a worker with %s", job_id, device)

    def _reap(self) -> None:
        """Look at what the engine was given: runs that ended, and jobs that were cancelled in its queue."""
        ended = [job_id for job_id, dispatched in self._dispatched.items() if dispatched.done]
        with self._store.read() as tx:
            jobs = [tx.jobs.get(job_id) for job_id in ended]
            runs = {job.id: job.claim_id or tx.events.last_run(job.id) for job in jobs}
            cancelled = tx.jobs.never_started(self._dispatched.keys(), JobState.CANCELLED)
        for job in jobs:
            dispatched = self._dispatched.pop(job.id)
            if self._trainer is not None and job.state.is_final:
                self._trainer.note(job.kernel_hash)  # its worker may have told another server
            if dispatched.forgotten:
                # A queued job is handed over again, a running one has its lease in which to report.
                logger.warning("job %s: the scheduler that had it is gone", job.id)
            else:
                self._end(job, dispatched, runs[job.id])
        for job_id in cancelled - set(ended):
            self._dispatched.pop(job_id).cancel()

    def _end(self, job: Job, dispatched: Dispatched, last_run: str | None) -> None:
        failure = dispatched.failure
        if failure is None:
            logger.info("job %s: run ended: %s", job.id, dispatched.result())
        else:
            logger.warning("job %s: the engine gave up: %s", job.id, failure)
        if dispatched.has(last_run):
            self._release_run(job, "the worker was lost")  # unless that gave it back
        elif job.state is JobState.QUEUED and failure is not None:
            # Its workers died before they could claim it; they would be started again for ever.
            self._ingest.fail(job.id, f"the workers for this job died before they could start it: {failure}")

    def _expire_leases(self) -> None:
        if not self._patience.judges():
            return
        with self._store.read() as tx:
            overdue = tx.jobs.overdue(datetime.now(UTC))
        for job in overdue:
            logger.warning("job %s: worker %s is silent", job.id, job.worker)
            # Its task may never return; without this the job could not be dispatched again.
            silent = self._dispatched.pop(job.id, None)
            if silent is not None:
                silent.cancel()
            self._release_run(job, f"worker {job.worker} was silent")

    def _release_run(self, job: Job, reason: str) -> None:
        """The run of a job is gone. It counts as an attempt unless its scheduler went first."""
        self._ingest.release(job.id, reason=reason, claim_id=job.claim_id, refund=job.claim_id in self._excused)
        self._excused.discard(job.claim_id or "")
