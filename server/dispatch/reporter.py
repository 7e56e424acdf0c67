"""The thread that carries a run's events to the server while the run measures."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType

from deuteron.tuner.http import ServiceError, ServiceUnreachable

from .ingest import Receipt
from .link import Link
from .spool import Spool, is_unwanted

logger = logging.getLogger("deuteron.worker")

_CANCEL_POLL_S = 1.0
_RETRY_S = 0.5
_ACKNOWLEDGE_WAIT_S = 2.0
#: From one delivery to the next as long as nobody waits. Each takes milliseconds of a core here, where proposals are
#: made, and two writes to the server's disk there.
DELIVERY_PAUSE_S = 0.1
#: Events that may be under way to the server: a search has some twenty.
MOST_UNSENT = 32


class Reporter:
    """Owns the spool of a run. ``emit`` returns when the event is on disk, or while the server answers when that has
    it: a worker killed right after ``emit`` has lost nothing. The device does not wait for the server, unless that
    cannot keep up. The server hears of events some at a time (:data:`DELIVERY_PAUSE_S`)."""

    def __init__(self, link: Link, spool: Spool, job_id: str, claim_id: str) -> None:
        self._link = link
        self._spool = spool
        self._job_id = job_id
        self._claim_id = claim_id
        self._changed = threading.Condition()
        self._closing = False
        self._online = True
        self._refused = False
        self._waiting = 0  # threads that want an acknowledgement
        self._stop = threading.Event()
        self._lost = False
        self._given_back = False
        self._thread = threading.Thread(target=self._run, name="deuteron-reporter", daemon=True)

    def __enter__(self) -> Reporter:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._spool.close()

    @property
    def stop_requested(self) -> bool:
        """Whether the job was cancelled, given to another run, or given back."""
        return self._stop.is_set()

    @property
    def lost(self) -> bool:
        """Whether the job is not this run's any more. One that is cancelled still is: it may have come to its end."""
        return self._lost

    @property
    def given_back(self) -> bool:
        """Whether the run ends because its worker was told to stop."""
        return self._given_back

    def give_back(self, patience_s: float) -> None:
        """Let somebody else go on with the job: hand over what is measured, waiting ``patience_s`` for the server, then
        the job, and stop the run. Called from another thread, at any moment."""
        self._given_back = True
        self._lose()
        self.drain(patience_s)
        try:
            self._link.release(self._job_id, self._claim_id)
        except (ServiceUnreachable, ServiceError) as error:
            logger.warning("job %s waits until its lease is over: %s", self._job_id, error)

    def emit(self, event: dict[str, object]) -> None:
        """Record an event."""
        with self._changed:
            allowed = MOST_UNSENT if self._spool.append(event) else 0
            self._changed.notify_all()
            self._wait_for(
                lambda: len(self._spool.unsent(allowed + 1)) <= allowed or not self._online, _ACKNOWLEDGE_WAIT_S
            )

    def drain(self, patience_s: float) -> bool:
        """Wait until the server has everything; False when it stayed away longer than ``patience_s`` or lets this
        worker in no more."""
        with self._changed:
            self._wait_for(lambda: self._refused or not self._spool.unsent(1), patience_s)
            return not self._spool.unsent(1)

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        """With the lock: nothing is held back until the condition holds or the time is over."""
        if condition():
            return
        self._waiting += 1
        self._changed.notify_all()
        try:
            self._changed.wait_for(condition, seconds)
        finally:
            self._waiting -= 1

    def _run(self) -> None:
        last_contact = 0.0
        while True:
            with self._changed:
                pause = _CANCEL_POLL_S if self._online else _RETRY_S
                self._changed.wait_for(lambda: self._closing or (self._online and bool(self._spool.unsent(1))), pause)
                held = last_contact + DELIVERY_PAUSE_S - time.monotonic()
                self._changed.wait_for(lambda: self._closing or self._waiting > 0, max(held, 0.0))
                closing, batch, after = self._closing, self._spool.unsent(), self._spool.acknowledged
            if closing:
                return
            if not batch and time.monotonic() - last_contact < _CANCEL_POLL_S:
                continue
            try:
                if batch:
                    receipt = self._link.deliver(self._job_id, self._claim_id, batch, after=after)
                else:
                    receipt = self._link.heartbeat(self._job_id, self._claim_id)
            except ServiceUnreachable as error:
                self._note_offline(error)
                continue
            except ServiceError as error:
                logger.warning("job %s: %s", self._job_id, error)
                if not is_unwanted(error.status):
                    self._give_up()
                    return
                last_contact = time.monotonic()
                self._note_refusal(len(batch))
                continue
            last_contact = time.monotonic()
            self._note_receipt(receipt, len(batch))

    def _give_up(self) -> None:
        """Stop the run. What was not sent stays in the spool, for whoever is let in again."""
        self._lose()
        with self._changed:
            self._refused, self._online = True, False
            self._changed.notify_all()

    def _lose(self) -> None:
        self._lost = True
        self._stop.set()

    def _note_offline(self, error: ServiceUnreachable) -> None:
        with self._changed:
            if self._online:
                logger.warning("job %s goes on without the server: %s", self._job_id, error)
            self._online = False
            self._changed.notify_all()
        time.sleep(_RETRY_S)

    def _note_receipt(self, receipt: Receipt, sent: int) -> None:
        if not receipt.proceed:
            self._lose()
        elif receipt.cancel:
            self._stop.set()
        with self._changed:
            self._online = True
            if receipt.missing:
                logger.warning("job %s: the server has lost events of this run; all are sent again", self._job_id)
                self._spool.rewind()
            else:
                self._spool.acknowledge(sent)
            self._changed.notify_all()

    def _note_refusal(self, sent: int) -> None:
        """The server will never want all of these events: stop the run, and hand over the others."""
        self._lose()
        with self._changed:
            self._online = True
            self._spool.drop(sent)
            self._changed.notify_all()
