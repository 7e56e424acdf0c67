"""A gate in a stream: what is enqueued while it is closed begins only once it is open.

Kernels are timed by events around them. The device passes the first event as soon as it is enqueued, and if the host is
late with the launch then, as beside processes that compile, the wait counts as the kernel's. Behind a gate it does not:
the device is at the gate until event, launch and event are all in its queue. It can also be made to rest there.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from . import driver as cuda

# CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP: the device reads it where it is, at the same address.
_PORTABLE_MAPPED = 1 | 2
#: A gate opens by itself after that: what is enqueued may wait for the device, which must not be for ever. Threads of
#: Python that compute take turns of 5 ms.
MOST_NS = 20_000_000
# One thread looks at the host's word until it is its ticket or a later one and its rest is over, or time is up. Between
# looks, which cost a trip over the bus, it sleeps (PTX ISA, "Miscellaneous Instructions"); %globaltimer counts
# nanoseconds.
_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry deuteron_gate(.param .u64 word, .param .u64 ticket, .param .u64 least, .param .u64 most)
{
    .reg .pred %late, %resting, %closed;
    .reg .b64 %ticket, %found, %word, %least, %most, %began, %now, %spent;
    ld.param.u64 %word, [word];
    ld.param.u64 %ticket, [ticket];
    ld.param.u64 %least, [least];
    ld.param.u64 %most, [most];
    cvta.to.global.u64 %word, %word;
    mov.u64 %began, %globaltimer;
LOOK:
    mov.u64 %now, %globaltimer;
    sub.u64 %spent, %now, %began;
    setp.ge.u64 %late, %spent, %most;
    @%late bra OPEN;
    setp.lt.u64 %resting, %spent, %least;
    @%resting bra WAIT;
    ld.relaxed.sys.global.u64 %found, [%word];
    setp.lt.u64 %closed, %found, %ticket;
    @!%closed bra OPEN;
WAIT:
    nanosleep.u32 500;
    bra.uni LOOK;
OPEN:
    ret;
}
\0"""
_TYPES = (ctypes.c_uint64,) * 4


class Gate:
    """The gate of one device, for the life of the process. Each time that it is closed has a ticket of its own, so that
    streams may hold many."""

    def __init__(self, index: int) -> None:
        cuda.make_current(index)
        self._index, self._tickets, self._lock = index, 0, threading.Lock()
        self._address = cuda.integer("cuMemHostAlloc", ctypes.sizeof(ctypes.c_uint64), _PORTABLE_MAPPED)
        self._opened = ctypes.c_uint64.from_address(self._address)
        self._opened.value = 0
        module = cuda.call("cuModuleLoadData", _PTX)
        self._kernel = cuda.call("cuModuleGetFunction", module, b"deuteron_gate")

    @contextmanager
    def closed(self, rest_ns: float = 0.0) -> Iterator[None]:
        """What is enqueued on the current stream meanwhile waits until the end of this, for ``rest_ns`` at least, and
        for :data:`MOST_NS` longer than that at most. Of two threads that do so at once, the one whose gate was closed
        first may find it opened by the other."""
        cuda.make_current(self._index)
        with self._lock:
            self._tickets += 1
            ticket = self._tickets
        values = (self._address, ticket, int(rest_ns), int(rest_ns) + MOST_NS)
        stream = cuda.streams.current(self._index)
        cuda.call("cuLaunchKernel", self._kernel, 1, 1, 1, 1, 1, 1, 0, stream, (values, _TYPES), 0)
        try:
            yield
        finally:
            with self._lock:  # a word that went back would close gates of other threads again
                self._opened.value = max(self._opened.value, ticket)
