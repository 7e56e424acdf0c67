"""A process that was started for :class:`~.child.ChildProcess`: as a program here, forked in :mod:`.nursery`."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from typing import IO, Protocol

from deuteron.compiler import knobs

#: For CUDA, unless it is set: the default of eight queues makes a context twice as slow to open (118 against 53 ms on
#: an H100, 395 against 138 ms where four processes of a host open theirs), and measuring needs one.
ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
#: A killed process is gone long before.
_REAP_SECONDS = 5


class Started(Protocol):
    """A process with pipes for its stdin and stdout; its stderr is a file of ours."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    @property
    def stdin(self) -> IO[bytes]:
        """What it reads."""
        ...

    @property
    def stdout(self) -> IO[bytes]:
        """What it writes."""
        ...

    def running(self) -> bool:
        """Whether it has not ended."""
        ...

    def status(self, seconds: float) -> int | None:
        """Its exit status, that of a signal below zero; None if it does not end in time, or nobody knows."""
        ...

    def kill(self) -> None:
        """Kill it, without waiting until it is gone."""
        ...

    def end(self) -> None:
        """Kill it, wait until it is gone, and close what belonged to it."""
        ...


class StartedProgram:
    """A command, in a session of its own: an interrupt at the terminal reaches us, and we end the process in order."""

    def __init__(self, command: Sequence[str], log: IO[bytes]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env=ENVIRONMENT | knobs.inherited_environment(),
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def stdin(self) -> IO[bytes]:
        """What it reads."""
        return _piped(self.process.stdin)

    @property
    def stdout(self) -> IO[bytes]:
        """What it writes."""
        return _piped(self.process.stdout)

    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def status(self, seconds: float) -> int | None:
        """Its exit status, None if it does not end in time."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kill it, without waiting."""
        self.process.kill()

    def end(self) -> None:
        """Kill, reap, close."""
        self.kill()
        try:
            self.process.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            # An interrupt inside Popen may have left the lock around its waiting taken.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.process.pid, 0)
        close_quietly(self.stdin, self.stdout)


def _piped(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise TypeError("the process has no such pipe")
    return stream


def close_quietly(*streams: IO[bytes]) -> None:
    """Close pipes of a process that is gone; what it never read is lost, and there is nobody left to tell."""
    for stream in streams:
        with contextlib.suppress(OSError):
            stream.close()
