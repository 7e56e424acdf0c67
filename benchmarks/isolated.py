"""Work on a GPU in a child process with a time limit: a kernel that hangs costs its child, not the benchmark."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

#: Seconds that a child may take to start, import its libraries and build its service.
START_SECONDS = 120.0


class WorkFailed(Exception):
    """What the child was asked for did not work; ``lost`` says that the child is gone and with it what it held."""

    def __init__(self, message: str, *, lost: bool, last: str = "") -> None:
        super().__init__(message)
        self.lost = lost
        #: What the child announced last: the candidate that was running.
        self.last = last


class FatalInChild(Exception):
    """Raised by a service when its process can do no more, as after an illegal address on a GPU."""


def raise_if_lost(problem: Exception) -> None:
    """After an illegal access a CUDA context takes no more work: say so, and another process begins anew.

    Raises:
        FatalInChild: ``problem`` cost this process its device.
    """
    import torch  # lazy: services on the CPU need no torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        raise FatalInChild(f"{type(problem).__name__}: {problem}") from problem


@dataclass
class Isolated:
    """A service in a process of its own. ``make(announce)`` builds it there; :meth:`ask` calls its methods.

    A child that is silent for longer than the patience of a request is killed; the next request starts another.
    """

    make: Callable[[Callable[[str], None]], object]

    def __post_init__(self) -> None:
        self._process: Any = None
        self._pipe: Connection | None = None

    @property
    def alive(self) -> bool:
        """Whether the child holds what earlier requests left in it."""
        return self._process is not None

    def ask(self, method: str, *args: object, patience: float) -> Any:
        """Call a method of the service; ``patience``: seconds of silence, ended by each announcement.

        Raises:
            WorkFailed: it raised, hung, or its process died.
        """
        pipe = self._pipe or self._start()
        pipe.send((method, args))
        return self._answer(pipe, patience)

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self.make, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._answer(self._pipe, START_SECONDS)
        return self._pipe

    def _answer(self, pipe: Connection, patience: float) -> Any:
        last = ""
        while True:
            if not pipe.poll(patience):
                self.close()
                raise WorkFailed(f"no answer for {patience:.0f} s: deadlock", lost=True, last=last)
            try:
                kind, value = pipe.recv()
            except (EOFError, ConnectionResetError):
                process = self._process
                process.join(10)
                code = process.exitcode
                self.close()
                raise WorkFailed(f"its process died (exit code {code})", lost=True, last=last) from None
            if kind == "at":
                last = value
            elif kind == "done":
                return value
            else:
                if kind == "fatal":
                    self.close()
                raise WorkFailed(value, lost=kind == "fatal", last=last)

    def close(self) -> None:
        """End the child, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.join(60)
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


def _serve(make: Callable[[Callable[[str], None]], object], pipe: Connection) -> None:
    """The child: build the service, then answer one request after the other."""
    try:
        service = make(lambda name: pipe.send(("at", name)))
    except Exception:
        pipe.send(("fatal", traceback.format_exc()))
        return
    pipe.send(("done", None))
    while True:
        try:
            method, args = pipe.recv()
        except EOFError:
            return
        try:
            reply = ("done", getattr(service, method)(*args))
        except FatalInChild as error:
            reply = ("fatal", str(error))
        except Exception as error:
            reply = ("failed", f"{type(error).__name__}: {error}")
        pipe.send(reply)
