"""Trains predictors while this server leads: after jobs of a kernel ended, one kernel at a time."""

from __future__ import annotations

import logging
import threading
import time

from sqlalchemy.exc import SQLAlchemyError

from deuteron.compiler.errors import MissingExtra
from deuteron.compiler.extras import require_extras

from ..metrics import Metrics
from ..predictors import FILE_NAME
from ..settings import Settings
from ..store import ServiceStore
from .memory import TrainingMemory
from .messages import Learnt, Train, Trained
from .process import Stopped, TrainingFailed, TrainKernel, train_in_child
from .reading import has_enough_shapes
from .turns import Turns

logger = logging.getLogger("deuteron.learning")

# After a database that did not answer, or a disk that took nothing.
_AGAIN_S = 30.0
_STOP_S = 10.0


class Trainer:
    """A thread of the server that dispatches, between :meth:`start` and :meth:`stop`. It sleeps until a job ends."""

    def __init__(self, settings: Settings, store: ServiceStore, metrics: Metrics) -> None:
        self._settings = settings
        self._store = store
        self._metrics = metrics
        self._train: TrainKernel = train_in_child
        self._clock = time.monotonic
        self._turns = Turns()
        self._memory: TrainingMemory | None = None
        self._unavailable = settings.learn_seconds <= 0
        self._leads = False
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        #: When predictors were trained last, in seconds since 1970.
        self.trained_at: float | None = None

    def start(self) -> None:
        """This server leads: train what has trials that it was not trained from, then what gets some. Returns at
        once."""
        if self.begin():
            arguments = (self._stopping,)
            self._thread = threading.Thread(target=self._run, args=arguments, name="deuteron-learn", daemon=True)
            self._thread.start()

    def begin(self) -> bool:
        """Be ready for :meth:`step`, which knows nothing of what was before; False where nothing can be trained."""
        if self._is_available():
            self._stopping = threading.Event()
            self._turns, self._memory = Turns(), None
            self._leads = True
        return self._leads

    def stop(self) -> None:
        """This server leads no more, or ends; so does a training that is under way, within a second."""
        self._leads = False
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=_STOP_S)
            self._thread = None

    def note(self, kernel_hash: str) -> None:
        """A job of the kernel ended. Takes microseconds; of no effect where another server leads."""
        if self._leads:
            self._turns.note(kernel_hash, self._clock())
            self._wake.set()

    def step(self) -> float | None:
        """Train the kernel whose turn it is, if there is one; in how many seconds the next one's is, None where none
        waits."""
        kernel_hash = None
        try:
            if self._memory is None:
                self._look_at_all()
            kernel_hash = self._turns.take(self._clock())
            if kernel_hash is not None:
                self._train_kernel(kernel_hash)
        except (OSError, SQLAlchemyError) as error:
            logger.warning("predictors are trained later: %s", error)
            if kernel_hash is not None:
                self._turns.note(kernel_hash, self._clock())
            return _AGAIN_S
        return self._turns.seconds_left(self._clock())

    def _is_available(self) -> bool:
        if not self._unavailable:
            try:
                require_extras("learn", by="training predictors")
            except MissingExtra as error:
                self._give_up(f"{error.message} ({error.hint})")
        return not self._unavailable

    def _give_up(self, reason: str) -> None:
        self._unavailable, self._leads = True, False
        logger.info("this service does not train predictors by itself: %s", reason)

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set() and not self._unavailable:
            self._wake.clear()
            try:
                wait = self.step()
            except Exception:  # whatever it is, the next kernel may be trained
                logger.exception("training predictors failed")
                wait = _AGAIN_S
            if not stopping.is_set():
                self._wake.wait(wait)

    def _look_at_all(self) -> None:
        """What ended while nobody led."""
        memory = TrainingMemory(self._settings.home)
        with self._store.read() as tx:
            screened = tx.jobs.screened()
        now = self._clock()
        for kernel_hash, trials in screened.items():
            if memory.is_new(kernel_hash, trials):
                self._turns.note(kernel_hash, now)
        self._memory = memory

    def _train_kernel(self, kernel_hash: str) -> None:
        memory = self._memory
        with self._store.read() as tx:
            trials = tx.jobs.screened_of(kernel_hash)
            if memory is None or not memory.is_new(kernel_hash, trials) or not has_enough_shapes(tx, kernel_hash):
                return
        begun = self._clock()
        try:
            answer = self._train(self._request(kernel_hash), self._stopping)
        except Stopped:
            return
        except TrainingFailed as error:
            answer = Trained(error=f"{error.message} ({error.hint})" if error.hint else error.message)
        took = self._clock() - begun
        self._turns.rest(kernel_hash, self._clock(), took)
        if answer.unavailable is not None:
            self._give_up(answer.unavailable)
            return
        self._tell(kernel_hash, answer, took)
        memory.note(kernel_hash, trials, len(answer.learnt))

    def _request(self, kernel_hash: str) -> Train:
        settings = self._settings
        bundle = str(settings.home / FILE_NAME)
        return Train(settings.database_url, kernel_hash, bundle, settings.learn_seconds)

    def _tell(self, kernel_hash: str, answer: Trained, took: float) -> None:
        kernel = f"{answer.kernel_name or 'kernel'} {kernel_hash[:12]}"
        result = "failed" if answer.error is not None else "learnt" if answer.learnt else "nothing"
        self._metrics.count("trainings", result=result)
        self._metrics.count("training_seconds", took)
        if answer.error is not None:
            logger.warning("%s: its predictors were not trained in %.1f s: %s", kernel, took, answer.error)
            return
        if answer.learnt:
            self.trained_at = time.time()
        for learnt in answer.learnt:
            logger.info("%s: trained for %s (all in %.1f s)", kernel, _words(learnt), took)
        for reason in answer.left_out:
            logger.info("%s: nothing is learnt of %s", kernel, reason)


def _words(learnt: Learnt) -> str:
    worth = "" if learnt.pays else ", no better than the nearest shape or the default: lookups do not use it"
    return (
        f"{learnt.dtype} on {learnt.device} from {learnt.trials} trials of {learnt.shapes} shapes: "
        f"{learnt.expected_loss:.1%} slower than the best measured at shapes that were left out, "
        f"the nearest shape {learnt.nearest_loss:.1%}{worth}"
    )
