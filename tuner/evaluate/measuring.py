"""The process that checks and times the configurations of one problem on inputs of one seed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ..codec import JsonObject
from .child import ChildCrashed, ChildProcess, ChildTimeout, physical_memory_bytes
from .messages import Limit, Prepare

logger = logging.getLogger(__name__)

#: What preparing may take: making inputs, compiling the default configuration and running it. Never less than slow
#: compilers on busy machines need, and with a budget no more than it.
PREPARE_SECONDS, LEAST_PREPARE_SECONDS = 300.0, 60.0
# Preparing usually takes a second; whoever waits for longer is told for what.
_SAY_AFTER_SECONDS = 10.0
# The interpreter and the process itself; what a kernel's tensors need comes on top and is bounded by the rest.
MEMORY_SHARE = 0.8


def patience_for(budget_seconds: float | None) -> float:
    """How long a job of this budget waits until a process is prepared."""
    if budget_seconds is None:
        return PREPARE_SECONDS
    return min(PREPARE_SECONDS, max(LEAST_PREPARE_SECONDS, budget_seconds))


class MeasuringProcess:
    """Prepares with the first request, or before it, and again after a crash or a hang, which are statuses. Where
    preparing fails it is not tried again: why is the answer to all requests.

    ``limited``: its memory is, as that of what runs on the host must be; CUDA reserves address space of many times the
    memory of the machine. ``child``: one that runs may have had another problem before.
    """

    def __init__(self, prepare: Prepare, child: ChildProcess, *, limited: bool) -> None:
        self._prepare, self.child, self._limited = prepare, child, limited
        self._preparing: int | None = None  # the number of the request
        self._prepared = False
        self._unpreparable: JsonObject | None = None

    def begin_preparing(self) -> None:
        """Prepare while the caller does something else, unless that has been begun, or has failed. Not after a crash
        while whoever asked is still to hear of it."""
        if not self.has_begun and self._unpreparable is None and not self.child.owes:
            with suppress(ChildCrashed):  # whoever measures starts another one, and says so if it crashes again
                self._begin()

    def request(
        self,
        operation: str,
        request: JsonObject,
        timeout: float,
        meanwhile: Callable[[], None] | None = None,
        *,
        patience: float = PREPARE_SECONDS,
    ) -> JsonObject:
        """The answer; a status where the process ends or takes longer than ``timeout`` seconds, preparing aside, for
        which it has ``patience``. ``meanwhile`` is called once the process is at work on it."""
        began = time.monotonic()
        try:
            if not self._ready and self._unpreparable is None:
                self._unpreparable = self._wait_until_prepared(patience)
            if self._unpreparable is not None:
                return self._unpreparable
            number, deadline = self.child.send(operation, request), time.monotonic() + timeout
            if meanwhile is not None:
                meanwhile()
            return self.child.receive(number, deadline)
        except ChildTimeout:
            spent = time.monotonic() - began
            return {"status": "timeout", "error": f"no result after {spent:.0f} s"}
        except ChildCrashed as error:
            return {"status": "crashed", "error": str(error)}

    def owes_nothing(self) -> bool:
        """Whether it runs and owes no answer, that to its preparation aside if it has arrived; never waits."""
        if self._preparing is not None and self.child.arrived:
            with suppress(ChildCrashed):
                self._unpreparable = self._hear(self._preparing, PREPARE_SECONDS)
        return self._ready and not self.child.owes

    def end(self) -> None:
        """Kill the process and wait until it is gone."""
        self.child.end()

    @property
    def has_begun(self) -> bool:
        """Whether it has begun to prepare."""
        return self._preparing is not None or self._ready

    @property
    def _ready(self) -> bool:
        return self._prepared and self.child.running

    def _begin(self) -> int:
        self._preparing, self._prepared = None, False
        memory = physical_memory_bytes()
        if self._limited and memory is not None and not self.child.running:
            self.child.request("limit", Limit(int(memory * MEMORY_SHARE)).to_json(), PREPARE_SECONDS)
        self._preparing = self.child.send("prepare", self._prepare.to_json())
        return self._preparing

    def _wait_until_prepared(self, patience: float) -> JsonObject | None:
        """None, or the answer if that fails: it has nothing to do with the configuration at hand, so it would fail for
        every other one, too."""
        number = self._preparing
        if number is None or not self.child.running:
            number = self._begin()
        return self._hear(number, patience)

    def _hear(self, number: int, patience: float) -> JsonObject | None:
        """What became of the preparation of this number, likewise."""
        self._preparing = None
        told = threading.Timer(_SAY_AFTER_SECONDS, self._say_what_is_waited_for, (patience,))
        told.daemon = True
        told.start()
        try:
            answer = self.child.receive(number, time.monotonic() + patience)
        except ChildTimeout:  # such as a default configuration that deadlocks; once is enough to find out
            error = f"not prepared after {patience:.0f} s: does the default configuration end?"
            return {"status": "timeout", "error": error}
        finally:
            told.cancel()
        if answer.get("status") != "ok":
            self.child.end()
            return answer
        self._prepared = True
        return None

    def _say_what_is_waited_for(self, patience: float) -> None:
        dims = ",".join(f"{name}={size}" for name, size in self._prepare.dims.items())
        logger.warning(
            "waiting for the inputs and the expected result of %s at %s %s, for %.0f s at most",
            self._prepare.workload.kernel.name,
            dims,
            self._prepare.dtype,
            patience,
        )
