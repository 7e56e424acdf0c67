"""The child process of :class:`~.child.ChildProcess`: reads a request a line, answers a line."""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from deuteron.compiler.errors import (
    CompilationError,
    DeuteronError,
    DeviceError,
    OutOfResources,
)

from ..json_fields import JsonObject, expect_integer, expect_object
from .session import Session


def status_of(error: BaseException) -> str:
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


def main() -> None:
    """Serve until stdin closes. Whatever kernels print goes to stderr: stdout belongs to the protocol."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _end_with_parent()
    session = Session()
    for line in sys.stdin.buffer:
        request = expect_object(json.loads(line), "request")
        fatal = _answer(session, request, answers)
        if fatal:
            sys.exit(3)


def _answer(session: Session, request: JsonObject, answers: BinaryIO) -> bool:
    operations: dict[str, Callable[[JsonObject], JsonObject]] = {
        "limit": _limit_memory,
        "prepare": session.prepare,
        "compile": session.compile,
        "screen": session.screen,
        "race": session.race,
    }
    fatal = False
    try:
        answer = operations[str(request.get("operation"))](request)
    except MemoryError:
        answer = {"status": "failed", "error": "needs more memory than the measurement may use"}
    except Exception as error:
        fatal = isinstance(error, DeviceError)
        text = str(error) if isinstance(error, DeuteronError) else f"{type(error).__name__}: {error}"
        # A failed GPU context fails every later call: the parent must not send this process another one.
        answer = {"status": status_of(error), "error": text, "last": fatal}
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()
    return fatal


def _limit_memory(request: JsonObject) -> JsonObject:
    """Cap the address space at what is in use now plus ``bytes``. Not for GPU work: CUDA reserves address space of
    many times the memory of the machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + expect_integer(request.get("bytes"), "bytes")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    return {"status": "ok"}


def _end_with_parent() -> None:
    """End soon after the parent died, also while a kernel hangs: then nobody is left who could kill us."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(4)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
