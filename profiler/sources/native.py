"""The callbacks that CUPTI calls, as native code: buffers of records, and the place each launch came from.

CUPTI calls them on its own threads and inside launches. A Python callback there would have to wait for the
interpreter lock while CUPTI holds its own locks: slow, and a deadlock when the thread that has the lock is itself
waiting for CUPTI. So a few instructions are compiled with llvmlite:

- A buffer for records comes from malloc; a full one is pushed on a lock-free list.
- On entry to a launch, its correlation id and the launching thread's number (in a cell that a thread-specific
  pointer leads to, and that Python sets when the thread's place in the profile changes) are appended to a log. A thread
  without a cell, such as autograd's, or with 0 in it, is where the main thread is. CUPTI
  could join the two by itself (external correlation ids), but on CUDA 13.0 it does so only with records of every driver
  call, which made launching 1.3 times slower on an H200.
- When a node of a graph is made, its id and the number of the thread that captures it are appended to a log, and when
  it is copied, which happens when the graph is made executable, both ids: kernels of a graph name their node.
- A call of NVTX is handed to Python, which takes its lock: programs call it between launches, and few times.
- While a trace is recorded, the call's thread, beginning and end are appended to a second log when it returns. CUPTI
  keeps the beginning between the two callbacks. Times are those of CLOCK_MONOTONIC, as ``time.perf_counter_ns`` has
  them.

Python takes buffers and logs as a whole when it has time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from .callbacks import (
    CALL_BYTES,
    CHUNK_HEADER,
    HEADER,
    LAUNCH_BYTES,
    NODE_BYTES,
    call_dtype,
    callbacks_text,
    node_dtype,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@cache
def _thread_key() -> int:
    """The key of the thread-specific pointer, one for the process."""
    key = ctypes.c_uint32()
    ctypes.CDLL(None).pthread_key_create(ctypes.byref(key), None)
    return key.value


# Kept for good: a thread may launch as long as it lives.
_cells: list[ctypes.c_uint32] = []


def thread_cell() -> ctypes.c_uint32:
    """A new cell for the number that launches of the calling thread carry (0: that of the main thread)."""
    cell = ctypes.c_uint32()
    _cells.append(cell)
    ctypes.CDLL(None).pthread_setspecific(ctypes.c_uint32(_thread_key()), ctypes.c_void_p(ctypes.addressof(cell)))
    return cell


class NativeCallbacks:
    """Addresses of the compiled callbacks, and what they have collected."""

    def __init__(self, engine: Any) -> None:  # llvmlite has no types
        self._engine = engine  # owns the machine code
        self.requested: int = engine.get_function_address("deuteron_requested")
        self.completed: int = engine.get_function_address("deuteron_completed")
        self.called: int = engine.get_function_address("deuteron_called")
        #: The number of threads without a cell.
        self.main = ctypes.c_uint32.from_address(engine.get_global_value_address("deuteron_main"))
        taker = ctypes.CFUNCTYPE(ctypes.c_int64)
        self._take_buffers = taker(engine.get_function_address("deuteron_take_buffers"))
        self._take_launches = taker(engine.get_function_address("deuteron_take_launches"))
        self._take_calls = taker(engine.get_function_address("deuteron_take_calls"))
        self._take_nodes = taker(engine.get_function_address("deuteron_take_nodes"))
        taking_address = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self._name_nodes = taking_address(engine.get_function_address("deuteron_name_nodes"))
        self._follow_ranges = taking_address(engine.get_function_address("deuteron_follow_ranges"))
        self._trace = ctypes.CFUNCTYPE(None, ctypes.c_uint32)(engine.get_function_address("deuteron_trace"))
        process = ctypes.CDLL(None)
        self._free = process.free
        self._free.argtypes = [ctypes.c_void_p]
        self._free.restype = None

    @contextmanager
    def take_buffers(self) -> Iterator[list[NDArray[np.uint8]]]:
        """The valid bytes of all full buffers, oldest first; their memory is freed on leaving the block."""
        import numpy as np

        addresses: list[int] = []
        views: list[NDArray[np.uint8]] = []
        node = int(self._take_buffers())
        while node:
            addresses.append(node)
            following, valid = (ctypes.c_int64 * 2).from_address(node)
            if valid:
                data = (ctypes.c_uint8 * valid).from_address(node + HEADER)
                views.append(np.frombuffer(memoryview(data), np.uint8))
            node = following
        try:
            yield views[::-1]
        finally:
            views.clear()
            for address in addresses:
                self._free(address)

    def trace(self, wanted: bool) -> None:
        """Whether calls are logged with thread and times, from the next call on."""
        self._trace(int(wanted))

    def name_nodes(self, id_of: int) -> None:
        """The address of cuptiGetGraphNodeId; needed before a callback comes for a node."""
        self._name_nodes(id_of)

    def follow_ranges(self, follower: Any) -> None:
        """What is called with the number and the data of calls of NVTX (:func:`.nvtx.follower`); None: nothing."""
        self._follower = follower  # kept alive
        self._follow_ranges(None if follower is None else ctypes.cast(follower, ctypes.c_void_p))

    def take_launches(self) -> NDArray[np.uint32]:
        """The log so far: an array (launches, 2) of correlation ids and numbers, in the order of launching."""
        import numpy as np

        return self._taken(self._take_launches, LAUNCH_BYTES).view(np.uint32).reshape(-1, 2)

    def take_calls(self) -> NDArray[np.void]:
        """The calls that have returned since the last time, as a structured array of CALL_FIELDS."""
        return self._taken(self._take_calls, CALL_BYTES).view(call_dtype())

    def take_nodes(self) -> NDArray[np.void]:
        """The nodes of graphs made since the last time, as a structured array of NODE_FIELDS."""
        return self._taken(self._take_nodes, NODE_BYTES).view(node_dtype())

    def _taken(self, take: Callable[[], int], entry_bytes: int) -> NDArray[np.uint8]:
        """The entries of a log as bytes, oldest first; the log is empty then."""
        import numpy as np

        chunks: list[NDArray[np.uint8]] = []
        node = int(take())
        while node:
            before, used = (ctypes.c_int64 * 2).from_address(node)
            data = (ctypes.c_uint8 * (entry_bytes * used)).from_address(node + CHUNK_HEADER)
            chunks.append(np.frombuffer(memoryview(data), np.uint8).copy())
            self._free(node)
            node = before
        return np.concatenate(chunks[::-1]) if chunks else np.empty(0, np.uint8)


@cache
def native_callbacks(buffer_bytes: int) -> NativeCallbacks:
    """Compile the callbacks for buffers of this size. They stay for the life of the process: CUPTI has their
    addresses."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(callbacks_text(buffer_bytes, _thread_key()))
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return NativeCallbacks(engine)
