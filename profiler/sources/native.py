"""The callbacks that CUPTI calls, as native code: buffers of records, and the place each launch came from.

CUPTI calls them on its own threads and inside launches. A Python callback there would have to wait for the
interpreter lock while CUPTI holds its own locks: slow, and a deadlock when the thread that has the lock is itself
waiting for CUPTI. So a few instructions are compiled with llvmlite:

- A buffer for records comes from malloc; a full one is pushed on a lock-free list.
- On entry to a launch, its correlation id and the launching thread's number (in a cell that a thread-specific
  pointer leads to, and that Python sets when the thread's place in the profile changes) are appended to a log. CUPTI
  could join the two by itself (external correlation ids), but on CUDA 13.0 it does so only with records of every driver
  call, which made launching 1.3 times slower on an H200.

Python takes buffers and log as a whole when it has time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HEADER = 64  # before the bytes that CUPTI sees: address of the next buffer, number of valid bytes
_CHUNK_ENTRIES = 1 << 16
_CHUNK_HEADER = 16  # address of the chunk before, number of entries used

# Offsets in CUpti_CallbackData (cupti_callbacks.h), the same in CUDA 12 and 13.
CALLBACK_SITE_OFFSET = 0
CORRELATION_ID_OFFSET = 64
API_ENTER = 0

_TEXT = """
@full = internal global i64 0
@mutex = internal global [64 x i8] zeroinitializer, align 16
@chunk = internal global ptr null

declare ptr @malloc(i64)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)

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

define void @deuteron_launch(ptr %user, i32 %domain, i32 %call, ptr %data) {{
entry:
  %site_at = getelementptr i8, ptr %data, i64 {site}
  %site = load i32, ptr %site_at
  %entering = icmp eq i32 %site, {enter}
  br i1 %entering, label %mine, label %exit
mine:
  %value = call ptr @pthread_getspecific(i32 {key})
  %told = icmp ne ptr %value, null
  br i1 %told, label %numbered, label %exit
numbered:
  %number = load i32, ptr %value
  %known = icmp ne i32 %number, 0
  br i1 %known, label %append, label %exit
append:
  %id_at = getelementptr i8, ptr %data, i64 {correlation}
  %id = load i32, ptr %id_at
  call i32 @pthread_mutex_lock(ptr @mutex)
  %last = load ptr, ptr @chunk
  %absent = icmp eq ptr %last, null
  br i1 %absent, label %fresh, label %check
check:
  %count_at = getelementptr i8, ptr %last, i64 8
  %count = load i64, ptr %count_at
  %spent = icmp uge i64 %count, {entries}
  br i1 %spent, label %fresh, label %write
fresh:
  %new = call ptr @malloc(i64 {chunk_total})
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %unlock, label %link
link:
  store ptr %last, ptr %new
  store ptr %new, ptr @chunk
  br label %write
write:
  %to = phi ptr [ %last, %check ], [ %new, %link ]
  %at = phi i64 [ %count, %check ], [ 0, %link ]
  %offset = shl i64 %at, 3
  %start = add i64 %offset, {chunk_header}
  %id_to = getelementptr i8, ptr %to, i64 %start
  store i32 %id, ptr %id_to
  %number_to = getelementptr i8, ptr %id_to, i64 4
  store i32 %number, ptr %number_to
  %used = add i64 %at, 1
  %used_to = getelementptr i8, ptr %to, i64 8
  store i64 %used, ptr %used_to
  br label %unlock
unlock:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %exit
exit:
  ret void
}}

define i64 @deuteron_take_launches() {{
  call i32 @pthread_mutex_lock(ptr @mutex)
  %head = load ptr, ptr @chunk
  store ptr null, ptr @chunk
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

    def take_launches(self) -> NDArray[np.uint32]:
        """The log so far: an array (launches, 2) of correlation ids and numbers, in the order of launching."""
        import numpy as np

        chunks: list[NDArray[np.uint32]] = []
        node = int(self._take_launches())
        while node:
            before, used = (ctypes.c_int64 * 2).from_address(node)
            data = (ctypes.c_uint32 * (2 * used)).from_address(node + _CHUNK_HEADER)
            chunks.append(np.frombuffer(memoryview(data), np.uint32).reshape(used, 2).copy())
            self._free(node)
            node = before
        return np.concatenate(chunks[::-1]) if chunks else np.empty((0, 2), np.uint32)


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
            key=_thread_key(),
            entries=_CHUNK_ENTRIES,
            chunk_header=_CHUNK_HEADER,
            chunk_total=_CHUNK_HEADER + 8 * _CHUNK_ENTRIES,
        )
    )
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return NativeCallbacks(buffer_bytes, engine)
