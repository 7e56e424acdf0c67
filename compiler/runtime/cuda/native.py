"""Launches in machine code: functions of Python whose few instructions call the driver, as its built-in functions are.

Through ctypes a call of the driver takes half a microsecond more than the driver. And once a kernel, its arguments and
its stream are settled, the launch can be a CUDA graph of one kernel: cuGraphLaunch takes the host half of what
cuLaunchKernelEx does, and the device 0.1 us more (benchmarks/results/2026-11-29-h200-rests/graphs.txt).

A graph may not be started where the kernel may be launched: on a stream that is being captured, and by two threads at
the same time. There the kernel is launched.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from .builtin import NOTHING, VALUES, builtin_function
from .graph import destroy
from .packing import PASSED, PLAN, PLANNED, RECORD, SIZES, ArgumentPack, PackingPlan

#: What a launch of values returns instead of the driver's code where one of them does not fit as it is.
MISFIT = -1
#: Graphs that may be alive in a process, each of which takes 115 KB of a GPU's memory.
MOST_GRAPHS = 256
_alive: set[int] = set()


def launch_of(pack: ArgumentPack) -> Callable[[], int]:
    """A function that launches a pack, or starts its graph if it has one, and returns the driver's code."""
    called = {"START": "cuGraphLaunch", "CAPTURES": "cuStreamIsCapturing"} | _LAUNCH
    return builtin_function(_OF_PACK, NOTHING, pack, called, _at(RECORD))


def launch_of_values(plan: PackingPlan) -> Callable[..., int]:
    """A function of three grid sizes, the stream and the kernel's parameters that launches them and returns the
    driver's code, or :data:`MISFIT` where one of them cannot be passed as it is; then nothing is launched."""
    return builtin_function(_OF_VALUES, VALUES, plan, _LAUNCH, _at(PLAN) | _at(PLANNED) | SIZES | PASSED)


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


_LAUNCH = {"LAUNCH": "cuLaunchKernelEx", "ENTER": "cuCtxSetCurrent"}


def _at(fields: Sequence[str]) -> dict[str, int]:
    """Where each of the fields of eight bytes is."""
    return {f"{name}_AT": 8 * place for place, name in enumerate(fields)}


def _read(record: str, kind: str, *fields: str) -> str:
    """Lines that read fields of a record, each under its name."""
    return "".join(
        f"  %{name}.at = getelementptr i8, ptr %{record}, i64 {{{name.upper()}_AT}}\n"
        f"  %{name} = load {kind}, ptr %{name}.at\n"
        for name in map(str.lower, fields)
    )


#: Python's other threads go on while the driver is at work, which may wait for room in the device's queue.
_OF_PACK = (
    """
define ptr @launch(ptr %record, ptr %none) {{
start:
  %status = alloca i32
  %at = call ptr {BYTEARRAY}(ptr %record)
"""
    + _read("at", "ptr", "GRAPH", "STREAM", "CONFIG", "FUNCTION", "PARAMETERS", "CONTEXT")
    + """  %busy = getelementptr i8, ptr %at, i64 {BUSY_AT}
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
)

#: Each value is written where the plan says, as it says. What Python raises of one is dropped: who hears of the misfit
#: passes it again in Python, which says what is wrong with it.
_OF_VALUES = (
    """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @launch(ptr %plan, ptr %values, i64 %given) {{
start:
  %at = call ptr {BYTEARRAY}(ptr %plan)
"""
    + _read("at", "ptr", "CONTEXT", "FUNCTION", "CONFIG")
    + _read("at", "i64", "SIZE", "COUNT")
    + """  %entries = getelementptr i8, ptr %at, i64 {VALUES_AT}
  %memory = alloca i8, i64 %size, align 64
  %pointers = alloca ptr, i64 %count
  call void @llvm.memcpy.p0.p0.i64(ptr %memory, ptr %config, i64 {CONFIG_BYTES}, i1 false)
  %all.given = icmp eq i64 %given, %count
  br i1 %all.given, label %each, label %misfit
each:
  %i = phi i64 [0, %start], [%next, %written]
  %before = mul i64 %i, {VALUE_BYTES}
  %entry = getelementptr i8, ptr %entries, i64 %before
"""
    + _read("entry", "i64", "OFFSET", "HOW", "WIDTH", "LOW", "HIGH")
    + """  %to = getelementptr i8, ptr %memory, i64 %offset
  %pointer = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %to, ptr %pointer
  %value.at = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %value.at
  switch i64 %how, label %misfit [
    i64 {AS_ADDRESS}, label %as.address
    i64 {AS_INTEGER}, label %as.integer
    i64 {AS_FLOAT}, label %as.float
    i64 {AS_TRUTH}, label %as.truth
    i64 {AS_BYTES}, label %as.bytes
  ]
as.address:
  %natural = call i64 {UNSIGNED}(ptr %value)
  store i64 %natural, ptr %to
  %natural.odd = icmp eq i64 %natural, -1
  br i1 %natural.odd, label %suspect, label %written
as.integer:
  %whole = call i64 {SIGNED}(ptr %value)
  %too.low = icmp slt i64 %whole, %low
  %too.high = icmp sgt i64 %whole, %high
  %outside = or i1 %too.low, %too.high
  br i1 %outside, label %clear, label %fit
fit:
  switch i64 %width, label %misfit [i64 1, label %one i64 2, label %two i64 4, label %four i64 8, label %eight]
one:
  %byte = trunc i64 %whole to i8
  store i8 %byte, ptr %to
  br label %looked
two:
  %short = trunc i64 %whole to i16
  store i16 %short, ptr %to
  br label %looked
four:
  %word = trunc i64 %whole to i32
  store i32 %word, ptr %to
  br label %looked
eight:
  store i64 %whole, ptr %to
  br label %looked
looked:
  %whole.odd = icmp eq i64 %whole, -1
  br i1 %whole.odd, label %suspect, label %written
as.float:
  %double = call double {FLOAT}(ptr %value)
  %is.wide = icmp eq i64 %width, 8
  br i1 %is.wide, label %wide.float, label %narrow.float
wide.float:
  store double %double, ptr %to
  br label %measured
narrow.float:
  %single = fptrunc double %double to float
  store float %single, ptr %to
  br label %measured
measured:
  %double.odd = fcmp oeq double %double, -1.0
  br i1 %double.odd, label %suspect, label %written
as.truth:
  %answer = call i32 {TRUTH}(ptr %value)
  %is.answer = icmp sge i32 %answer, 0
  %bit = trunc i32 %answer to i8
  store i8 %bit, ptr %to
  br i1 %is.answer, label %written, label %clear
as.bytes:
  %held = call ptr {HELD}(ptr %value)
  %is.held = icmp ne ptr %held, null
  br i1 %is.held, label %copy, label %clear
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %held, i64 %width, i1 false)
  br label %written
suspect:
  %raised = call ptr {RAISED}()
  %is.raised = icmp ne ptr %raised, null
  br i1 %is.raised, label %clear, label %written
clear:
  call void {CLEAR}()
  br label %misfit
written:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %each, label %enough
enough:
  %parameters = getelementptr ptr, ptr %pointers, i64 4
  %thread = call ptr {LET_GO}()
  %is.alone = icmp eq ptr %context, null
  br i1 %is.alone, label %begin, label %enter
enter:
  %entered = call i32 {ENTER}(ptr %context)
  %is.in = icmp eq i32 %entered, 0
  br i1 %is.in, label %begin, label %done
begin:
  %launched = call i32 {LAUNCH}(ptr %memory, ptr %function, ptr %parameters, ptr null)
  br label %done
done:
  %code = phi i32 [%entered, %enter], [%launched, %begin]
  call void {TAKE}(ptr %thread)
  br label %said
misfit:
  br label %said
said:
  %what = phi i32 [%code, %done], [-1, %misfit]
  %wide = sext i32 %what to i64
  %number = call ptr {NUMBER}(i64 %wide)
  ret ptr %number
}}
"""
)
