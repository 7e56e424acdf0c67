"""Children that are forked from a :mod:`.template`, which takes milliseconds where a start as a program takes most of a
second.

One template serves all jobs of a process, one after the other, as long as a program that is started now would find
what the template found. Whatever goes wrong with it, children are started as programs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO

from deuteron.compiler import knobs

from ..errors import TunerError
from .started import ENVIRONMENT, close_quietly

TEMPLATE = (sys.executable, "-P", "-X", "faulthandler", "-m", "deuteron.tuner.evaluate.template")
#: A template that is not ready by then never will be.
_START_SECONDS = 60.0
#: How long none is started after one that could not begin to serve.
_PAUSE_SECONDS = 60.0
#: A killed process is gone long before.
_REAP_SECONDS = 5.0
#: From closing its end of a socket to the end of a process.
_LAST_STEPS_SECONDS = 1.0
#: Of what the kernel lists of a thread: what processes take over that it starts, beside descriptors.
_INHERITED = (
    *("Uid", "Gid", "Groups", "CapPrm", "NoNewPrivs", "Seccomp"),
    *("Umask", "SigBlk", "SigIgn", "Cpus_allowed", "Mems_allowed"),
)


class TemplateGone(TunerError):
    """The template ended, or does not answer."""


class Forked:
    """A child of the template. It ends with us, not with the template, after whose end its status is unknown."""

    def __init__(self, pid: int, process: int, told: socket.socket, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        # A descriptor of a process never means another one, as its id may when the template has reaped it.
        self._process = os.fdopen(process, "rb", 0)
        self._told = told
        self._ended = False
        self._status: int | None = None

    def running(self) -> bool:
        """Whether it has not ended."""
        self.status(0)
        return not self._ended

    def status(self, seconds: float) -> int | None:
        """Its exit status; None if it does not end in time, or the template ended before it."""
        deadline = time.monotonic() + seconds
        while not self._ended:
            orphaned = self._told.fileno() < 0
            if not wait([(self._process if orphaned else self._told).fileno()], max(deadline - time.monotonic(), 0)):
                break
            self._ended = orphaned or self._hear()
        return self._status

    def _hear(self) -> bool:
        """Whether the template says that it ended; if the template did, the socket is closed."""
        try:
            said = self._told.recv(16)
        except OSError:
            said = b""
        if not said:
            self._told.close()
            return False
        self._status = int(said)
        return True

    def kill(self) -> None:
        """Kill it, without waiting."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process.fileno(), signal.SIGKILL)

    def end(self) -> None:
        """Kill it, wait until it is gone, close what belonged to it."""
        self.kill()
        self.status(_REAP_SECONDS)
        self._told.close()
        close_quietly(self.stdin, self.stdout, self._process)


class _Template:
    """A running template. ``surroundings``: what it was started in."""

    def __init__(self, command: Sequence[str], surroundings: object) -> None:
        self.surroundings, self._proven = surroundings, False
        self._requests, theirs = _datagrams()
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=ENVIRONMENT | knobs.inherited_environment(),
            )
        # It may end while nobody asks for children, and is to leave no zombie.
        self._reaping = threading.Thread(target=self._process.wait, name="template", daemon=True)
        self._reaping.start()

    def fork(self, log: IO[bytes]) -> Forked:
        """A new child, whose stderr is ``log``. Raises :class:`TemplateGone`."""
        told, its_told = _datagrams()
        its_stdin, stdin = _pipe()
        stdout, its_stdout = _pipe()
        with its_told, its_stdin, its_stdout, os.fdopen(os.pidfd_open(os.getpid()), "rb", 0) as us:
            given = [file.fileno() for file in (its_stdin, its_stdout, log, its_told, us)]
            try:
                socket.send_fds(self._requests, [b"fork"], given)
            except OSError:
                raise TemplateGone("the template ended") from None
        if not wait([told], _START_SECONDS):
            raise TemplateGone("the template does not answer")
        try:
            said, received, _, _ = socket.recv_fds(told, 16, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            said, received = b"", []
        if not received:
            raise TemplateGone("the template ended, or could not fork")
        self._proven = True
        return Forked(int(said), received[0], told, stdin, stdout)

    def dismiss(self) -> None:
        """Ask nothing of it any more: it ends when its last child has."""
        self._requests.close()

    def end(self) -> bool:
        """End it at once, its children go on; whether it could not even begin to serve."""
        self.dismiss()
        if self._ended_in_order():
            return False
        self._process.kill()
        return not self._proven

    def _ended_in_order(self) -> bool:
        self._reaping.join(_LAST_STEPS_SECONDS)
        ended: int | None = self._process.returncode
        return ended == 0


class Nursery:
    """Has a template, and starts another one where there is none or what programs would find has changed.

    Threads may share it. ``fork`` gives None where a child has to be started as a program.
    """

    def __init__(self, command: Sequence[str] = TEMPLATE) -> None:
        self._command = list(command)
        self._lock = threading.Lock()
        self._template: _Template | None = None
        self._not_before = 0.0 if _can_fork() else float("inf")

    def begin(self) -> None:
        """Start a template now: children will be asked for."""
        self._current()

    def fork(self, log: IO[bytes]) -> Forked | None:
        """A new child that writes its stderr to ``log``. A template that was killed, or ended because nobody had
        asked for long, is replaced once."""
        for _ in range(2):
            template = self._current()
            if template is None:
                return None
            try:
                return template.fork(log)
            except TemplateGone:
                self._give_up(template)
            except OSError:  # we have no descriptors left
                return None
        return None

    def close(self) -> None:
        """Let the template end; the next child starts another one."""
        with self._lock:
            if self._template is not None:
                self._template.dismiss()
            self._template = None

    def _current(self) -> _Template | None:
        with self._lock:
            if time.monotonic() < self._not_before:
                return None
            found = surroundings()
            if self._template is not None and self._template.surroundings != found:
                self._template.dismiss()
                self._template = None
            if self._template is None:
                try:
                    self._template = _Template(self._command, found)
                except OSError:
                    self._not_before = time.monotonic() + _PAUSE_SECONDS
            return self._template

    def _give_up(self, template: _Template) -> None:
        failed = template.end()
        with self._lock:
            if self._template is template:
                self._template = None
            if failed:
                self._not_before = time.monotonic() + _PAUSE_SECONDS


@cache
def shared_nursery() -> Nursery:
    """The one that all jobs of this process use."""
    return Nursery()


def _can_fork() -> bool:
    """Whether forking is safe here, and Python and the system have what it takes (Linux 5.3)."""
    if sys.platform != "linux" or not (hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
        surroundings()
    except OSError:  # forbidden to containers, or there is no /proc
        return False
    return True


def surroundings() -> object:
    """What a program takes over from who starts it: a template must have been started in the same. Raises
    :class:`OSError` where there is no /proc."""
    try:
        folder = str(Path.cwd())
    except OSError:  # it was removed
        folder = ""
    thread = Path("/proc/thread-self")
    listed = (thread / "status").read_text().splitlines()
    return (
        folder,
        knobs.inherited_environment(),
        os.getpriority(os.PRIO_PROCESS, 0),
        (thread / "limits").read_text(),
        [line for line in listed if line.startswith(_INHERITED)],
    )


def _datagrams() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    readable, writable = os.pipe()
    return os.fdopen(readable, "rb"), os.fdopen(writable, "wb")
