"""One training in a child process, which can be stopped, and which is killed when its time is over."""

from __future__ import annotations

import sys
import threading
import time
from multiprocessing.connection import wait
from typing import Protocol

from deuteron.tuner.errors import TunerError
from deuteron.tuner.evaluate.child import ChildProcess, ChildTimeout

from .messages import Train, Trained

COMMAND = (sys.executable, "-P", "-m", "deuteron.server.learning.child")
# How soon a stop is heard of.
_LOOK_S = 0.25


class TrainingFailed(TunerError):
    """The child crashed, or was not done in time."""


class Stopped(TunerError):
    """The server ends or dispatches no more: nothing is known of what was to be trained."""


class TrainKernel(Protocol):
    """Trains one kernel, as :func:`train_in_child` does."""

    def __call__(self, request: Train, stopping: threading.Event) -> Trained:
        """Raises TrainingFailed or Stopped."""


def train_in_child(request: Train, stopping: threading.Event) -> Trained:
    """Run a child process for one request; it is gone when this returns.

    Raises:
        TrainingFailed: it crashed, answered nonsense, or took longer than the request says.
        Stopped: ``stopping`` was set meanwhile.
    """
    deadline = time.monotonic() + request.seconds
    with ChildProcess(COMMAND) as child:
        try:
            number = child.send("train", request.to_json())
            while not wait([child.fileno()], _LOOK_S):
                if stopping.is_set():
                    raise Stopped("stopped")
                if time.monotonic() >= deadline:
                    raise ChildTimeout("no answer in time")
            return Trained.from_json(child.receive(number, deadline))
        except ChildTimeout:
            raise TrainingFailed(
                f"it took more than {request.seconds:g} s", hint="DEUTERON_LEARN_SECONDS gives more"
            ) from None
        except Stopped:
            raise
        except TunerError as error:
            raise TrainingFailed(error.message) from None
