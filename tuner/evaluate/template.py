"""The process that children are forked from: what takes them long to load it has loaded already.

It has done nothing else: no device is open, no problem was seen, and no thread runs (those of OpenBLAS end before a
fork, and are started anew where somebody multiplies). A child goes on as :mod:`.worker` does when that is started as a
program, with pipes and a log of its own, and nothing of the template's stays open in it.

Messages are datagrams. A request is any text, with five descriptors: stdin, stdout and stderr of the child, a socket
on which its requester hears of it, and one that is readable when the requester has ended. On the socket come the
child's process id, with a descriptor of the process, and when it has ended its status.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import wait

#: What children load with their first requests; a test says so when they load more.
LOADED = (
    "cuda.bindings.driver",
    "deuteron.compiler.frontend",
    "deuteron.compiler.gpu",
    "deuteron.compiler.source.usage",
    "deuteron.compiler.targets.cpu",
    "deuteron.compiler.targets.nvptx",
    "deuteron.compiler.targets.ptxas",
    "deuteron.compiler.tile.passes",
    "deuteron.tuner.evaluate.worker",
    "llvmlite.binding",
    "numpy.ma",
    "numpy.random",
)
#: Without children for as long it ends; a worker that gets its next job later starts another one.
IDLE_SECONDS = 30.0

_DESCRIPTORS = 5


@dataclass
class _Child:
    pid: int
    requester: socket.socket

    def reap(self) -> None:
        """Tell the requester how it ended, unless that has lost interest."""
        _, status = os.waitpid(self.pid, 0)
        with self.requester:
            _tell(self.requester, os.waitstatus_to_exitcode(status))


def load() -> None:
    """Load what children need, and leave their garbage collections nothing of it to look at."""
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()


def serve(idle_seconds: float = IDLE_SECONDS) -> int:
    """Fork a child for each request that comes on stdin. Returns in the children alone, with the descriptor of the
    process that they must end with; here it exits when there will be no more requests, or were none for a while."""
    if threading.active_count() > 1:  # whatever starts threads in every program of this machine
        sys.exit("a process with threads is no template")
    requests = socket.socket(fileno=os.dup(0))
    children: dict[int, _Child] = {}
    listening = True
    while listening or children:
        ready = wait([*children, *([requests] if listening else [])], None if children else idle_seconds)
        if not ready:
            break
        for process in [process for process in children if process in ready]:
            children.pop(process).reap()
            os.close(process)
        if requests in ready:
            request, received, _, _ = socket.recv_fds(requests, 16, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
            listening = bool(request)
            if len(received) < _DESCRIPTORS:  # no more descriptors: as where there are no more processes
                _close(*received)
                continue
            forked = _fork(received)
            if forked is None:
                _close(*children)  # sockets go with their objects
                return received[-1]
            children.update(forked)
    sys.exit(0)


def _work(parent: int) -> None:
    from .worker import main  # lazy: a template of other children, such as stand-ins, loads nothing of it

    main(parent)


def _fork(received: list[int]) -> dict[int, _Child] | None:
    """The child by the descriptor of its process; None in the child."""
    *standard, told, parent = received
    requester = socket.socket(fileno=told)
    try:
        pid = os.fork()
    except OSError:  # no more processes: the requester sees its socket closed, and tries for itself
        requester.close()
        _close(*standard, parent)
        return {}
    if pid == 0:
        os.setsid()
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
        requester.close()
        _close(*standard)
        return None
    _close(*standard, parent)
    process = os.pidfd_open(pid)
    _tell(requester, pid, process)
    return {process: _Child(pid, requester)}


def _tell(requester: socket.socket, number: int, *descriptors: int) -> None:
    try:
        socket.send_fds(requester, [b"%d" % number], descriptors)
    except OSError:
        return  # gone, and the child with it


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


if __name__ == "__main__":
    load()
    _work(serve())
