"""The callbacks that CUPTI calls, as native code: buffers of records, and the place each launch came from.

CUPTI calls them on its own threads and inside launches. A Python callback there would have to wait for the
interpreter lock while CUPTI holds its own locks: slow, and a deadlock when the thread that has the lock is itself
waiting for CUPTI. So a few instructions are compiled with llvmlite:

- A buffer for records comes from malloc; a full one is pushed on a lock-free list.
- On entry to a launch, its correlation id and the launching thread's number (in a cell that a thread-specific
  pointer leads to, and that Python sets when the thread's place in the profile changes) are appended to a log. CUPTI
  could join the two by itself (external correlation ids), but on CUDA 13.0 it does so only with records of every driver
  call, which made launching 1.3 times slower on an H200.
- While a trace is recorded, the call's thread, beginning and end are appended to a second log when it returns. CUPTI
  keeps the beginning between the two callbacks. Times are those of CLOCK_MONOTONIC, as ``time.perf_counter_ns`` has
  them.

Python takes buffers and logs as a whole when it has time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HEADER = 64  # before the bytes that CUPTI sees: address of the next buffer, number of valid bytes
_CHUNK_ENTRIES = 1 << 16
_CHUNK_HEADER = 16  # address of the chunk before, number of entries used
_LAUNCH_BYTES = 8
# Linux's number of the system call gettid: by machine, and for all that share one table (aarch64 does).
_GETTID = {"x86_64": 186, "ppc64le": 207}
_GETTID_GENERIC = 178
_CLOCK_MONOTONIC = 1

# (name, format, offset in bytes) of an entry in the log of calls: correlation id, number of the place, the thread as
# the system numbers it, which driver call, and when it began and ended in nanoseconds of CLOCK_MONOTONIC.
CALL_FIELDS = (
    ("id", "<u4", 0),
    ("number", "<u4", 4),
    ("thread", "<u4", 8),
    ("call", "<u4", 12),
    ("begin", "<u8", 16),
    ("end", "<u8", 24),
)
_CALL_BYTES = 32

# Offsets in CUpti_CallbackData (cupti_callbacks.h), the same in CUDA 12 and 13.
CALLBACK_SITE_OFFSET = 0
CORRELATION_DATA_OFFSET = 56
CORRELATION_ID_OFFSET = 64
API_ENTER = 0

_TEXT = """
@full = internal global i64 0
@mutex = internal global [64 x i8] zeroinitializer, align 16
@launches = internal global ptr null
@calls = internal global ptr null
@tracing = internal global i32 0

declare ptr @malloc(i64)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)

define void @deuteron_requested(ptr %buffer, ptr %size, ptr %limit) {{
  %raw = call ptr @malloc(i64 {buffer_total})
  %none = icmp eq ptr %raw, null
  %room = select i1 %none, i64 0, i64 {buffer_bytes}
  %data = getelementptr i8, ptr %raw, i64 {header}
  %given = select i1 %none, ptr null, ptr %data
  store ptr %given, ptr %buffer
  store i64 %room, ptr %size
  store i64 0, ptr %limit
  ret void
}}

define void @deuteron_completed(ptr %context, i32 %stream, ptr %buffer, i64 %size, i64 %valid) {{
entry:
  %node = getelementptr i8, ptr %buffer, i64 -{header}
  %length = getelementptr i8, ptr %node, i64 8
  %address = ptrtoint ptr %node to i64
  store i64 %valid, ptr %length
  br label %push
push:
  %head = load atomic i64, ptr @full acquire, align 8
  store i64 %head, ptr %node
  %swap = cmpxchg ptr @full, i64 %head, i64 %address acq_rel monotonic
  %done = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %done, label %exit, label %push
exit:
  ret void
}}

define i64 @deuteron_take_buffers() {{
  %head = atomicrmw xchg ptr @full, i64 0 acq_rel
  ret i64 %head
}}

define internal i64 @now() {{
  %time = alloca {{ i64, i64 }}
  call i32 @clock_gettime(i32 {monotonic}, ptr %time)
  %nanoseconds_at = getelementptr i8, ptr %time, i64 8
  %seconds = load i64, ptr %time
  %nanoseconds = load i64, ptr %nanoseconds_at
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %nanoseconds
  ret i64 %sum
}}

; Where the next entry of a log goes, null without memory. The caller holds the mutex.
define internal ptr @appended(ptr %log, i64 %bytes) {{
entry:
  %last = load ptr, ptr %log
  %absent = icmp eq ptr %last, null
  br i1 %absent, label %fresh, label %check
check:
  %count_at = getelementptr i8, ptr %last, i64 8
  %count = load i64, ptr %count_at
  %spent = icmp uge i64 %count, {entries}
  br i1 %spent, label %fresh, label %found
fresh:
  %room = mul i64 %bytes, {entries}
  %total = add i64 %room, {chunk_header}
  %new = call ptr @malloc(i64 %total)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %full, label %link
full:
  ret ptr null
link:
  store ptr %last, ptr %new
  store ptr %new, ptr %log
  br label %found
found:
  %to = phi ptr [ %last, %check ], [ %new, %link ]
  %at = phi i64 [ %count, %check ], [ 0, %link ]
  %used = add i64 %at, 1
  %used_to = getelementptr i8, ptr %to, i64 8
  store i64 %used, ptr %used_to
  %offset = mul i64 %at, %bytes
  %start = add i64 %offset, {chunk_header}
  %slot = getelementptr i8, ptr %to, i64 %start
  ret ptr %slot
}}

define internal void @log_launch(i32 %id, i32 %number) {{
entry:
  call i32 @pthread_mutex_lock(ptr @mutex)
  %slot = call ptr @appended(ptr @launches, i64 {launch_bytes})
  %none = icmp eq ptr %slot, null
  br i1 %none, label %unlock, label %write
write:
  store i32 %id, ptr %slot
  %number_to = getelementptr i8, ptr %slot, i64 4
  store i32 %number, ptr %number_to
  br label %unlock
unlock:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}}

define internal void @log_call(i32 %id, i32 %number, i32 %call, i64 %begin) {{
entry:
  %end = call i64 @now()
  %thread = call i64 (i64, ...) @syscall(i64 {gettid})
  %short = trunc i64 %thread to i32
  call i32 @pthread_mutex_lock(ptr @mutex)
  %slot = call ptr @appended(ptr @calls, i64 {call_bytes})
  %none = icmp eq ptr %slot, null
  br i1 %none, label %unlock, label %write
write:
  %number_to = getelementptr i8, ptr %slot, i64 4
  %thread_to = getelementptr i8, ptr %slot, i64 8
  %call_to = getelementptr i8, ptr %slot, i64 12
  %begin_to = getelementptr i8, ptr %slot, i64 16
  %end_to = getelementptr i8, ptr %slot, i64 24
  store i32 %id, ptr %slot
  store i32 %number, ptr %number_to
  store i32 %short, ptr %thread_to
  store i32 %call, ptr %call_to
  store i64 %begin, ptr %begin_to
  store i64 %end, ptr %end_to
  br label %unlock
unlock:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}}

define void @deuteron_launch(ptr %user, i32 %domain, i32 %call, ptr %data) {{
entry:
  %site_at = getelementptr i8, ptr %data, i64 {site}
  %site = load i32, ptr %site_at
  %id_at = getelementptr i8, ptr %data, i64 {correlation}
  %id = load i32, ptr %id_at
  %kept_at = getelementptr i8, ptr %data, i64 {kept}
  %traced = load atomic i32, ptr @tracing monotonic, align 4
  %tracing = icmp ne i32 %traced, 0
  %entering = icmp eq i32 %site, {enter}
  %wanted = or i1 %entering, %tracing
  br i1 %wanted, label %whose, label %exit
whose:
  %cell = call ptr @pthread_getspecific(i32 {key})
  %told = icmp ne ptr %cell, null
  br i1 %told, label %numbered, label %known
numbered:
  %held = load i32, ptr %cell
  br label %known
known:
  %number = phi i32 [ 0, %whose ], [ %held, %numbered ]
  br i1 %entering, label %enter, label %leave
enter:
  %placed = icmp ne i32 %number, 0
  br i1 %placed, label %log, label %stamp
log:
  call void @log_launch(i32 %id, i32 %number)
  br label %stamp
stamp:
  br i1 %tracing, label %keep, label %exit
keep:
  %kept_in = load ptr, ptr %kept_at
  %begin = call i64 @now()
  store i64 %begin, ptr %kept_in
  br label %exit
leave:
  %kept_from = load ptr, ptr %kept_at
  %began = load i64, ptr %kept_from
  %never = icmp eq i64 %began, 0
  br i1 %never, label %exit, label %append
append:
  call void @log_call(i32 %id, i32 %number, i32 %call, i64 %began)
  br label %exit
exit:
  ret void
}}

define void @deuteron_trace(i32 %wanted) {{
  store atomic i32 %wanted, ptr @tracing monotonic, align 4
  ret void
}}

define i64 @deuteron_take_launches() {{
  %address = call i64 @taken(ptr @launches)
  ret i64 %address
}}

define i64 @deuteron_take_calls() {{
  %address = call i64 @taken(ptr @calls)
  ret i64 %address
}}

define internal i64 @taken(ptr %log) {{
  call i32 @pthread_mutex_lock(ptr @mutex)
  %head = load ptr, ptr %log
  store ptr null, ptr %log
  call i32 @pthread_mutex_unlock(ptr @mutex)
  %address = ptrtoint ptr %head to i64
  ret i64 %address
}}
"""


@cache
def _thread_key() -> int:
    """The key of the thread-specific pointer, one for the process."""
    key = ctypes.c_uint32()
    ctypes.CDLL(None).pthread_key_create(ctypes.byref(key), None)
    return key.value


# Kept for good: a thread may launch as long as it lives.
_cells: list[ctypes.c_uint32] = []


def thread_cell() -> ctypes.c_uint32:
    """A new cell for the number that launches of the calling thread carry (0: they are not logged)."""
    cell = ctypes.c_uint32()
    _cells.append(cell)
    ctypes.CDLL(None).pthread_setspecific(ctypes.c_uint32(_thread_key()), ctypes.c_void_p(ctypes.addressof(cell)))
    return cell


class NativeCallbacks:
    """Addresses of the compiled callbacks, and what they have collected."""

    def __init__(self, buffer_bytes: int, engine: Any) -> None:  # llvmlite has no types
        self.buffer_bytes = buffer_bytes
        self._engine = engine  # owns the machine code
        self.requested: int = engine.get_function_address("deuteron_requested")
        self.completed: int = engine.get_function_address("deuteron_completed")
        self.launch: int = engine.get_function_address("deuteron_launch")
        taker = ctypes.CFUNCTYPE(ctypes.c_int64)
        self._take_buffers = taker(engine.get_function_address("deuteron_take_buffers"))
        self._take_launches = taker(engine.get_function_address("deuteron_take_launches"))
        self._take_calls = taker(engine.get_function_address("deuteron_take_calls"))
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
                data = (ctypes.c_uint8 * valid).from_address(node + _HEADER)
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

    def take_launches(self) -> NDArray[np.uint32]:
        """The log so far: an array (launches, 2) of correlation ids and numbers, in the order of launching."""
        import numpy as np

        return self._taken(self._take_launches, _LAUNCH_BYTES).view(np.uint32).reshape(-1, 2)

    def take_calls(self) -> NDArray[np.void]:
        """The calls that have returned since the last time, as a structured array of CALL_FIELDS."""
        return self._taken(self._take_calls, _CALL_BYTES).view(call_dtype())

    def _taken(self, take: Callable[[], int], entry_bytes: int) -> NDArray[np.uint8]:
        """The entries of a log as bytes, oldest first; the log is empty then."""
        import numpy as np

        chunks: list[NDArray[np.uint8]] = []
        node = int(take())
        while node:
            before, used = (ctypes.c_int64 * 2).from_address(node)
            data = (ctypes.c_uint8 * (entry_bytes * used)).from_address(node + _CHUNK_HEADER)
            chunks.append(np.frombuffer(memoryview(data), np.uint8).copy())
            self._free(node)
            node = before
        return np.concatenate(chunks[::-1]) if chunks else np.empty(0, np.uint8)


def call_dtype() -> np.dtype[np.void]:
    """The layout of an entry in the log of calls, CALL_FIELDS."""
    import numpy as np

    names, formats, offsets = zip(*CALL_FIELDS, strict=True)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": _CALL_BYTES})


@cache
def native_callbacks(buffer_bytes: int) -> NativeCallbacks:
    """Compile the callbacks for buffers of this size. They stay for the life of the process: CUPTI has their
    addresses."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(
        _TEXT.format(
            buffer_bytes=buffer_bytes,
            buffer_total=buffer_bytes + _HEADER,
            header=_HEADER,
            site=CALLBACK_SITE_OFFSET,
            enter=API_ENTER,
            correlation=CORRELATION_ID_OFFSET,
            kept=CORRELATION_DATA_OFFSET,
            key=_thread_key(),
            entries=_CHUNK_ENTRIES,
            chunk_header=_CHUNK_HEADER,
            launch_bytes=_LAUNCH_BYTES,
            call_bytes=_CALL_BYTES,
            monotonic=_CLOCK_MONOTONIC,
            gettid=_GETTID.get(os.uname().machine, _GETTID_GENERIC),
        )
    )
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return NativeCallbacks(buffer_bytes, engine)
