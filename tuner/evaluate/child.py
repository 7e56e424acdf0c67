"""A child process that answers requests, and may crash or hang without taking us along.

Requests and answers are JSON, one line each, on the child's stdin and stdout: nothing is unpickled, and a child that a
kernel has corrupted cannot do worse than send nonsense. Plain ``subprocess``, because worker processes of a cluster
are daemons, which ``multiprocessing`` does not allow to have children.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO

from ..codec import JsonObject
from ..errors import TunerError
from .nursery import Nursery
from .started import Started, StartedProgram

WORKER = (sys.executable, "-P", "-X", "faulthandler", "-m", "deuteron.tuner.evaluate.worker")
MAX_ANSWER = 64 << 20
# Of a log, what is looked at: behind a fatal error come the stacks of all threads and the names of all extensions.
_LOG_BYTES = 1 << 16
#: From closing its stdout to the end of a process.
_LAST_STEPS_SECONDS = 5.0


class ChildCrashed(TunerError):
    """The child ended in the middle of a request, or answered nonsense."""


class ChildTimeout(TunerError):
    """The child did not answer in time and was killed."""


class ChildProcess:
    """Starts its process with the first request and again after a crash. Not thread-safe.

    The process is ``command``, or forked from ``nursery`` where that has one: then it is as :data:`WORKER`.

    ``send`` and ``receive`` are separate so that a pool can wait for many children; ``request`` is both. Requests are
    numbered, and an answer repeats the number of its request: one that was left unread is never taken for that of a
    later request. An answer with a true field ``last`` is the process's last one.
    """

    def __init__(self, command: Sequence[str] = WORKER, nursery: Nursery | None = None) -> None:
        self._command, self._nursery = list(command), nursery
        self._process: Started | None = None
        self._log: IO[bytes] | None = None
        self._buffer = b""
        self._sent, self._unread = 0, 0

    @property
    def running(self) -> bool:
        """Whether there is a process and it has not ended."""
        return self._process is not None and self._process.running()

    @property
    def pid(self) -> int | None:
        """The process id, None before the first request and after :meth:`end`."""
        return None if self._process is None else self._process.pid

    @property
    def owes(self) -> bool:
        """Whether there are requests whose answers were not received: the process may still be at work on them."""
        return self._unread > 0

    @property
    def answered(self) -> bool:
        """Whether a whole answer was read already, along with an earlier one."""
        return b"\n" in self._buffer

    @property
    def arrived(self) -> bool:
        """Whether there is something to read of an answer, or the end of the process; never waits."""
        return self.answered or (self._process is not None and bool(wait([self.fileno()], 0)))

    def fileno(self) -> int:
        """The descriptor that becomes readable when an answer arrives."""
        if self._process is None:
            raise ChildCrashed("the child process is not running")
        return self._process.stdout.fileno()

    def request(self, operation: str, payload: JsonObject, timeout: float) -> JsonObject:
        """Send a request and wait for its answer. Raises :class:`ChildCrashed`, :class:`ChildTimeout`; the process is
        gone then, and the next request starts a new one."""
        number = self.send(operation, payload)
        return self.receive(number, time.monotonic() + timeout)

    def send(self, operation: str, payload: JsonObject) -> int:
        """Write a request, starting the process if there is none; its number. Raises :class:`ChildCrashed` if it ends
        meanwhile."""
        self._sent += 1
        self._write({"operation": operation, "request": self._sent, **payload})
        self._unread += 1
        return self._sent

    def tell(self, operation: str, payload: JsonObject) -> None:
        """Write what is not answered, starting the process if there is none. Raises :class:`ChildCrashed`."""
        self._write({"operation": operation, **payload})

    def receive(self, number: int, deadline: float) -> JsonObject:
        """The next answer, which must be that to the request ``number``; ``deadline`` on the monotonic clock."""
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                return self._decode(line, number)
            # By poll: select takes no descriptor above 1023, and servers have many.
            if not wait([self.fileno()], max(deadline - time.monotonic(), 0)):
                self.end()
                raise ChildTimeout("no answer in time; the process was killed")
            chunk = os.read(self.fileno(), 1 << 16)
            if not chunk or len(self._buffer) > MAX_ANSWER:
                raise self._crashed()
            self._buffer += chunk

    def kill(self) -> None:
        """Kill the process without waiting until it is gone: :meth:`end` does. Its answers are not to be read any
        more."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """Kill the process and wait until it is gone; the next request starts another one."""
        if self._process is not None:
            self._process.end()
        self._process, self._buffer, self._unread = None, b"", 0
        if self._log is not None:
            self._log.close()
            self._log = None

    def _write(self, message: JsonObject) -> None:
        if not self.running:
            self._start()
        process = self._process
        if process is None:
            raise ChildCrashed("the child process could not be started")
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            raise self._crashed() from None

    def _start(self) -> None:
        self.end()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the process
        forked = None if self._nursery is None else self._nursery.fork(self._log)
        self._process = forked or StartedProgram(self._command, self._log)

    def _decode(self, line: bytes, number: int) -> JsonObject:
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.end()
            raise ChildCrashed(f"the child process answered nonsense: {line[:80]!r}")
        if answer.pop("request", None) != number:
            self.end()
            raise ChildCrashed("the child process answered another request")
        self._unread -= 1
        if answer.get("last"):
            self.end()  # it is ending; a request sent now would be lost and blamed on another configuration
        return answer

    def _crashed(self) -> ChildCrashed:
        reason, log = "ended", ""
        if self._process is not None:
            code = self._process.status(_LAST_STEPS_SECONDS)
            if code is not None:
                reason = f"ended with status {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        if self._log is not None:
            log = _tail(self._log)
        self.end()
        return ChildCrashed(f"the child process {reason}" + (f": {log}" if log else ""))

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()


def _tail(log: IO[bytes]) -> str:
    """The first line of a fatal error if there is one in the last part of a log, else its last line."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _LOG_BYTES))
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
    lines = [line for line in lines if line]
    fatal = [line for line in lines if line.startswith(("Fatal Python error", "LLVM ERROR"))]
    return (fatal or lines[-1:] or [""])[0]


def end_with_parent(parent: int | None = None) -> None:
    """For a child: end soon after the parent died, also while it hangs: then nobody is left who could kill it.

    ``parent``: a descriptor of the process to end with, where that is not the one that this one was forked from.
    """
    forked_from = os.getppid()

    def watch() -> None:
        if parent is None:
            while os.getppid() == forked_from:
                time.sleep(0.5)
        else:
            wait([parent])
        os._exit(4)

    threading.Thread(target=watch, daemon=True).start()


def physical_memory_bytes() -> int | None:
    """Memory of this machine, or of its control group where that is smaller; None where unknown."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = Path("/sys/fs/cgroup/memory.max")
        text = limit.read_text().strip() if limit.exists() else "max"
        return total if text == "max" else min(total, int(text))
    except (OSError, ValueError):
        return None
