"""The child process of :class:`~.child.ChildProcess`: reads a request a line, answers a line."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import BinaryIO

from deuteron.compiler.errors import (
    CompilationError,
    DeuteronError,
    DeviceError,
    OutOfResources,
)

from ..codec import Document, JsonObject, expect_object
from ..errors import SchemaError
from ..trial import Status
from .child import end_with_parent
from .cores import give_way
from .messages import Compile, Done, Extend, Failed, Limit, Open, Prepare, Race, Screen, Show
from .session import ChildSession


def status_of(error: BaseException) -> Status:
    """The trial status that an exception means."""
    match error:
        case OutOfResources():
            return "invalid"
        case CompilationError():
            return "compile_error"
        case DeviceError():
            return "crashed"
        case _:
            return "failed"


def main(parent: int | None = None) -> None:
    """Serve until stdin closes. Whatever kernels print goes to stderr: stdout belongs to the protocol. ``parent``: as
    for :func:`~.child.end_with_parent`."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    end_with_parent(parent)
    session = ChildSession()
    for line in sys.stdin.buffer:
        request = expect_object(json.loads(line), "request")
        if request.get("operation") == "open":
            session.open(Open.from_json(request))
            continue
        fatal = _answer(session, request, answers)
        if fatal:
            sys.exit(3)


def _answer(session: ChildSession, request: JsonObject, answers: BinaryIO) -> bool:
    fatal = False
    try:
        answer = _perform(session, request)
    except MemoryError:
        answer = Failed("failed", "needs more memory than the measurement may use")
    except Exception as error:
        fatal = isinstance(error, DeviceError)
        text = str(error) if isinstance(error, DeuteronError) else f"{type(error).__name__}: {error}"
        # A failed GPU context fails every later call: the parent must not send this process another one.
        answer = Failed(status_of(error), text, fatal)
    answers.write(json.dumps({**answer.to_json(), "request": request.get("request")}).encode() + b"\n")
    answers.flush()
    return fatal


def _perform(session: ChildSession, request: JsonObject) -> Document:
    match request.get("operation"):
        case "limit":
            return _limit_memory(Limit.from_json(request))
        case "prepare":
            wanted = Prepare.from_json(request)
            if wanted.device is None and wanted.target.startswith("cuda"):
                give_way()
            return session.prepare(wanted)
        case "compile":
            return session.compile(Compile.from_json(request))
        case "show":
            return session.show(Show.from_json(request))
        case "screen":
            return session.screen(Screen.from_json(request))
        case "race":
            return session.race(Race.from_json(request))
        case "extend":
            return session.extend(Extend.from_json(request))
        case other:
            raise SchemaError(f"request: the operation {other!r} is not known")


def _limit_memory(request: Limit) -> Done:
    """Cap the address space at what is in use now plus ``bytes``. Not for GPU work: CUDA reserves address space of
    many times the memory of the machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + request.bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    return Done()


if __name__ == "__main__":
    main()
