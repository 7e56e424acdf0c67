"""Launches in machine code: functions of Python whose few instructions call the driver, as its built-in functions are.

Through ctypes a call of the driver takes half a microsecond more than the driver. And once a kernel, its arguments and
its stream are settled, the launch can be a CUDA graph of one kernel: cuGraphLaunch takes the host half of what
cuLaunchKernelEx does, and the device 0.1 us more (benchmarks/results/2026-11-29-h200-rests/graphs.txt).

A graph may not be started where the kernel may be launched: on a stream that is being captured, and by two threads at
the same time. There the kernel is launched.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import overload

from ...llvm import driver as llvm
from . import driver as cuda
from .graph import destroy
from .packing import RECORD, ArgumentPack

#: Graphs that may be alive in a process, each of which takes 115 KB of a GPU's memory.
MOST_GRAPHS = 256
_alive: set[int] = set()
#: Threads that compiled at the same time would each have functions, of which one's definitions would be gone.
_lock = threading.Lock()


@overload
def launch_function() -> Callable[[ArgumentPack], int]: ...
@overload
def launch_function(pack: ArgumentPack) -> Callable[[], int]: ...
def launch_function(pack: ArgumentPack | None = None) -> Callable[..., int]:
    """A function that launches a pack, or starts its graph if it has one, and returns the driver's code: the pack that
    it is called with or, called with nothing, this one."""
    called = ("cuGraphLaunch", "cuLaunchKernelEx", "cuStreamIsCapturing", "cuCtxSetCurrent")
    with _lock:
        of_argument, of_itself = _compiled(*map(driver_function, called))
    if pack is None:
        return _python_function(of_argument, None)
    return _python_function(of_itself, pack)


def may_start_graphs() -> bool:
    """Whether there is room for one more graph."""
    return len(_alive) < MOST_GRAPHS


def start_graph(pack: ArgumentPack, graph: int, stream: int) -> None:
    """Let launches of a pack on its ``stream`` be starts of ``graph``, an executable CUDA graph of that launch, which
    is destroyed with the pack."""
    _alive.add(graph)
    weakref.finalize(pack, _destroy, graph).atexit = False
    pack.start_graph(graph, stream)


def _destroy(graph: int) -> None:
    _alive.discard(graph)
    destroy(graph)


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_NO_ARGUMENTS, _ONE_ARGUMENT = 4, 8  # METH_NOARGS, METH_O


def _python_function(definition: _MethodDefinition, own: object) -> Callable[..., int]:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    made: Callable[..., int] = make(ctypes.byref(definition), own, None)
    return made


def driver_function(name: str) -> int:
    """Where a function of the driver is."""
    return ctypes.cast(getattr(cuda.library(), name), ctypes.c_void_p).value or 0


@cache
def _compiled(start: int, launch: int, captures: int, enter: int) -> tuple[_MethodDefinition, _MethodDefinition]:
    """The functions of an argument and of what they are bound to, for these of the driver; kept to the end of the
    process."""
    python = {
        name: ctypes.cast(getattr(ctypes.pythonapi, called), ctypes.c_void_p).value
        for name, called in (
            ("BYTES", "PyByteArray_AsString"),
            ("LET_GO", "PyEval_SaveThread"),
            ("TAKE", "PyEval_RestoreThread"),
            ("NUMBER", "PyLong_FromLongLong"),
        )
    }
    called = {**python, "START": start, "LAUNCH": launch, "CAPTURES": captures, "ENTER": enter}
    text = _MODULE.format(
        **{name: f"inttoptr (i64 {address} to ptr)" for name, address in called.items()},
        **{f"{name}_AT": 8 * place for place, name in enumerate(RECORD)},
    )
    loaded = llvm.LoadedObject(llvm.compile_text(text, llvm.host_machine(), "object"))
    loaded.keep()
    of_argument = _MethodDefinition(b"launch", loaded.address("launch_argument"), _ONE_ARGUMENT, None)
    of_itself = _MethodDefinition(b"launch", loaded.address("launch"), _NO_ARGUMENTS, None)
    for definition in (of_argument, of_itself):  # functions made of them know where they are, and hold nothing
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(definition))
    return of_argument, of_itself


#: Python's other threads go on while the driver is at work, which may wait for room in the device's queue.
_MODULE = """
define ptr @launch_argument(ptr %none, ptr %record) {{
  %code = tail call ptr @launch(ptr %record, ptr null)
  ret ptr %code
}}

define ptr @launch(ptr %record, ptr %none) {{
start:
  %status = alloca i32
  %at = call ptr {BYTES}(ptr %record)
  %graph.at = getelementptr i8, ptr %at, i64 {GRAPH_AT}
  %graph = load ptr, ptr %graph.at
  %stream.at = getelementptr i8, ptr %at, i64 {STREAM_AT}
  %stream = load ptr, ptr %stream.at
  %config.at = getelementptr i8, ptr %at, i64 {CONFIG_AT}
  %config = load ptr, ptr %config.at
  %function.at = getelementptr i8, ptr %at, i64 {FUNCTION_AT}
  %function = load ptr, ptr %function.at
  %parameters.at = getelementptr i8, ptr %at, i64 {PARAMETERS_AT}
  %parameters = load ptr, ptr %parameters.at
  %context.at = getelementptr i8, ptr %at, i64 {CONTEXT_AT}
  %context = load ptr, ptr %context.at
  %busy = getelementptr i8, ptr %at, i64 {BUSY_AT}
  %thread = call ptr {LET_GO}()
  %is.alone = icmp eq ptr %context, null
  br i1 %is.alone, label %claim, label %enter
enter:
  %entered = call i32 {ENTER}(ptr %context)
  %is.in = icmp eq i32 %entered, 0
  br i1 %is.in, label %claim, label %done
claim:
  %has.graph = icmp ne ptr %graph, null
  br i1 %has.graph, label %take, label %plain
take:
  %before = atomicrmw xchg ptr %busy, i64 1 acquire
  %is.mine = icmp eq i64 %before, 0
  br i1 %is.mine, label %ask, label %plain
ask:
  store i32 0, ptr %status
  %asked = call i32 {CAPTURES}(ptr %stream, ptr %status)
  %said = load i32, ptr %status
  %either = or i32 %asked, %said
  %may.start = icmp eq i32 %either, 0
  br i1 %may.start, label %begin, label %leave
begin:
  %started = call i32 {START}(ptr %graph, ptr %stream)
  store atomic i64 0, ptr %busy release, align 8
  br label %done
leave:
  store atomic i64 0, ptr %busy release, align 8
  br label %plain
plain:
  %launched = call i32 {LAUNCH}(ptr %config, ptr %function, ptr %parameters, ptr null)
  br label %done
done:
  %code = phi i32 [%entered, %enter], [%started, %begin], [%launched, %plain]
  call void {TAKE}(ptr %thread)
  %wide = sext i32 %code to i64
  %number = call ptr {NUMBER}(i64 %wide)
  ret ptr %number
}}
"""
