"""The two callbacks through which CUPTI asks for buffers and hands them back, as native code.

CUPTI calls them on its own threads and inside launches. A Python callback there would have to wait for the
interpreter lock while CUPTI holds its own locks: slow, and a deadlock when the thread that has the lock is itself
waiting for CUPTI. So a few instructions are compiled with llvmlite: a buffer comes from malloc, and a full one is
pushed on a lock-free list that Python takes as a whole when it has time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HEADER = 64  # before the bytes that CUPTI sees: address of the next buffer, number of valid bytes

_TEXT = """
@full = internal global i64 0

declare ptr @malloc(i64)

define void @deuteron_requested(ptr %buffer, ptr %size, ptr %limit) {{
  %raw = call ptr @malloc(i64 {total})
  %none = icmp eq ptr %raw, null
  %room = select i1 %none, i64 0, i64 {size}
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

define i64 @deuteron_take() {{
  %head = atomicrmw xchg ptr @full, i64 0 acq_rel
  ret i64 %head
}}

define void @deuteron_ignore(ptr %user, i32 %domain, i32 %id, ptr %data) {{
  ret void
}}
"""


class NativeBuffers:
    """Addresses of the compiled callbacks, and the list of full buffers."""

    def __init__(
        self, size: int, engine: Any
    ) -> None:  # an llvmlite ExecutionEngine; llvmlite has no types
        self.size = size
        self._engine = engine  # owns the machine code
        self.requested: int = engine.get_function_address("deuteron_requested")
        self.completed: int = engine.get_function_address("deuteron_completed")
        self.ignore: int = engine.get_function_address("deuteron_ignore")
        self._take = ctypes.CFUNCTYPE(ctypes.c_int64)(engine.get_function_address("deuteron_take"))
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = [ctypes.c_void_p]
        self._free.restype = None

    @contextmanager
    def take(self) -> Iterator[list[NDArray[np.uint8]]]:
        """The valid bytes of all full buffers, oldest first; their memory is freed on leaving the block."""
        import numpy as np

        addresses: list[int] = []
        views: list[NDArray[np.uint8]] = []
        node = int(self._take())
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


@lru_cache(maxsize=1)
def native_buffers(size: int) -> NativeBuffers:
    """Compile the callbacks for buffers of ``size`` bytes (once in a process: CUPTI keeps their addresses)."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(_TEXT.format(size=size, total=size + _HEADER, header=_HEADER))
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return NativeBuffers(size, engine)
