"""What threads do with a grid, as machine code: take pieces of it until none is left, and watch for the next grid.

Between two launches a helper watches for a while before it sleeps. So launches that follow each other neither wait for
the system to wake it, which takes as long as a small grid, nor for Python's interpreter lock; and a system that likes
to put a thread that wakes beside the one that woke it finds the helper at work on a core of its own.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from functools import cache

from ...llvm import driver
from .debug import STATUS_BYTES

#: How long a helper watches for the next grid, and a launching thread for the end of one, before it sleeps.
WATCHED_NS = 200_000

#: States of a seat; any other is the address of the :class:`SharedGrid` that waits for its helper.
IDLE, ASLEEP, BUSY = range(3)

#: Of a seat whose helper has seen no program fail.
NONE_FAILED = (1 << 63) - 1


#: What a kernel reports through (:mod:`.debug`): code of what failed, program, the address that it prints by.
Status = ctypes.c_int64 * (STATUS_BYTES // 8)


class SharedGrid(ctypes.Structure):
    """Programs ``next`` to ``last`` - 1 of one launch, which ``entry`` runs, in pieces. Where programs may wait for
    each other, ``together`` is 1: one that fails stops no other."""

    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("next", ctypes.c_int64),
        ("last", ctypes.c_int64),
        ("piece", ctypes.c_int64),
        ("stopped", ctypes.c_int64),
        ("together", ctypes.c_int64),
    )


class Seat(ctypes.Structure):
    """One thread's place: the grid posted to it, its scratch area, what kernels report through, and the first
    program that failed. Two of them share no cache line."""

    _fields_ = (
        ("state", ctypes.c_int64),
        ("scratch", ctypes.c_void_p),
        ("status", Status),
        ("failed_program", ctypes.c_int64),
        ("failed_code", ctypes.c_int64),
        ("_padding", ctypes.c_char * 128),
    )


@dataclass(frozen=True)
class WorkerCode:
    """The functions. ``work`` and ``serve`` run programs, so that Python's other threads go on meanwhile."""

    #: (grid, seat): run pieces of the grid until there are none.
    work: ctypes._FuncPointer
    #: (seat, patience): run what is posted to the seat until nothing was for that many looks; it is ASLEEP then.
    serve: ctypes._FuncPointer
    #: (seat, grid): post it; what the state was: the helper of one that was ASLEEP has to be woken.
    post: ctypes._FuncPointer
    #: (seat, grid, patience): take the grid back if nobody has begun it; 1 when nobody is at it, 0 if somebody still is
    #: after that many looks.
    finish: ctypes._FuncPointer
    #: Looks in :data:`WATCHED_NS`.
    patience: int


@cache
def workers() -> WorkerCode:
    """Compiled once for a process, and kept to its very end: helpers watch while Python goes down."""
    loaded = driver.LoadedObject(driver.compile_text(_text(), driver.host_machine(), "object"))
    loaded.keep()
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    work = ctypes.CFUNCTYPE(None, pointer, pointer)(loaded.address("work"))
    serve = ctypes.CFUNCTYPE(None, pointer, number)(loaded.address("serve"))
    post = ctypes.PYFUNCTYPE(number, pointer, pointer)(loaded.address("post"))
    finish = ctypes.CFUNCTYPE(number, pointer, pointer, number)(loaded.address("finish"))
    return WorkerCode(work, serve, post, finish, _looks(finish))


def _looks(finish: ctypes._FuncPointer, tried: int = 1000) -> int:
    """How many looks at a seat whose helper stays busy take :data:`WATCHED_NS`."""
    seat, spent = Seat(state=BUSY), []
    for _ in range(3):
        begin = time.perf_counter_ns()
        finish(ctypes.addressof(seat), None, tried)
        spent.append(time.perf_counter_ns() - begin)
    return max(1, WATCHED_NS * tried // min(spent))


def _text() -> str:
    triple = driver.host_machine().triple
    is_arm = triple.startswith(("aarch64", "arm64"))
    has_yield = "windows" not in triple
    return _MODULE.format(
        rest_declared="declare void @llvm.aarch64.hint(i32)" if is_arm else "declare void @llvm.x86.sse2.pause()",
        rest="call void @llvm.aarch64.hint(i32 1)" if is_arm else "call void @llvm.x86.sse2.pause()",
        yield_declared="declare i32 @sched_yield()" if has_yield else "",
        yielded="call i32 @sched_yield()" if has_yield else "",
        IDLE=IDLE,
        ASLEEP=ASLEEP,
        BUSY=BUSY,
        **{f.upper(): getattr(SharedGrid, f).offset for f, _ in SharedGrid._fields_},
        SCRATCH=Seat.scratch.offset,
        STATUS=Seat.status.offset,
        PROGRAM=Seat.status.offset + 8,
        FAILED_PROGRAM=Seat.failed_program.offset,
        FAILED_CODE=Seat.failed_code.offset,
    )


#: Ordering: a grid and what belongs to it are written before it is posted (release) and read after it is taken
#: (acquire); results are written before the seat is left (release) and read after that is seen (acquire). The counter
#: of pieces orders nothing.
_MODULE = """
declare i64 @llvm.smin.i64(i64, i64)
{rest_declared}
{yield_declared}

define void @work(ptr %grid, ptr %seat) {{
start:
  %entry = load ptr, ptr %grid
  %arguments.at = getelementptr i8, ptr %grid, i64 {ARGUMENTS}
  %arguments = load ptr, ptr %arguments.at
  %sizes.at = getelementptr i8, ptr %grid, i64 {SIZES}
  %sizes = load ptr, ptr %sizes.at
  %next.at = getelementptr i8, ptr %grid, i64 {NEXT}
  %last.at = getelementptr i8, ptr %grid, i64 {LAST}
  %last = load i64, ptr %last.at
  %piece.at = getelementptr i8, ptr %grid, i64 {PIECE}
  %piece = load i64, ptr %piece.at
  %stopped.at = getelementptr i8, ptr %grid, i64 {STOPPED}
  %together.at = getelementptr i8, ptr %grid, i64 {TOGETHER}
  %together = load i64, ptr %together.at
  %scratch.at = getelementptr i8, ptr %seat, i64 {SCRATCH}
  %scratch = load ptr, ptr %scratch.at
  %status = getelementptr i8, ptr %seat, i64 {STATUS}
  %program.at = getelementptr i8, ptr %seat, i64 {PROGRAM}
  %failed_program.at = getelementptr i8, ptr %seat, i64 {FAILED_PROGRAM}
  %failed_code.at = getelementptr i8, ptr %seat, i64 {FAILED_CODE}
  br label %look
look:
  %stopped = load atomic i64, ptr %stopped.at monotonic, align 8
  %goes.on = icmp eq i64 %stopped, 0
  br i1 %goes.on, label %take, label %done
take:
  %first = atomicrmw add ptr %next.at, i64 %piece monotonic
  %is.there = icmp slt i64 %first, %last
  br i1 %is.there, label %run, label %done
run:
  %past = add i64 %first, %piece
  %end = call i64 @llvm.smin.i64(i64 %past, i64 %last)
  call void %entry(ptr %arguments, i64 %first, i64 %end, ptr %sizes, ptr %scratch, ptr %status)
  %code = load i64, ptr %status
  %fails = icmp ne i64 %code, 0
  br i1 %fails, label %failed, label %look
failed:
  store i64 0, ptr %status
  %program = load i64, ptr %program.at
  %before = load i64, ptr %failed_program.at
  %is.first = icmp slt i64 %program, %before
  br i1 %is.first, label %keep, label %stop
keep:
  store i64 %program, ptr %failed_program.at
  store i64 %code, ptr %failed_code.at
  br label %stop
stop:
  %stops.none = icmp ne i64 %together, 0
  br i1 %stops.none, label %look, label %halt
halt:
  store atomic i64 1, ptr %stopped.at monotonic, align 8
  br label %done
done:
  ret void
}}

define void @serve(ptr %seat, i64 %all) {{
start:
  br label %look
look:
  %left = phi i64 [%all, %start], [%left, %take], [%all, %work], [%less, %rest], [%less, %yield], [0, %sleep]
  %state = load atomic i64, ptr %seat acquire, align 8
  %is.posted = icmp ugt i64 %state, {BUSY}
  br i1 %is.posted, label %take, label %none
take:
  %taken = cmpxchg ptr %seat, i64 %state, i64 {BUSY} acquire monotonic
  %is.taken = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %is.taken, label %work, label %look
work:
  %grid = inttoptr i64 %state to ptr
  call void @work(ptr %grid, ptr %seat)
  store atomic i64 {IDLE}, ptr %seat release, align 8
  br label %look
none:
  %is.over = icmp eq i64 %left, 0
  br i1 %is.over, label %sleep, label %rest
rest:
  {rest}
  %less = sub i64 %left, 1
  %part = and i64 %less, 15
  %yields = icmp eq i64 %part, 0
  br i1 %yields, label %yield, label %look
yield:
  {yielded}
  br label %look
sleep:
  %slept = cmpxchg ptr %seat, i64 {IDLE}, i64 {ASLEEP} release monotonic
  %sleeps = extractvalue {{ i64, i1 }} %slept, 1
  br i1 %sleeps, label %done, label %look
done:
  ret void
}}

define i64 @post(ptr %seat, ptr %grid) {{
  %address = ptrtoint ptr %grid to i64
  %before = atomicrmw xchg ptr %seat, i64 %address acq_rel
  ret i64 %before
}}

define i64 @finish(ptr %seat, ptr %grid, i64 %all) {{
start:
  %address = ptrtoint ptr %grid to i64
  %withdrawn = cmpxchg ptr %seat, i64 %address, i64 {IDLE} acquire monotonic
  br label %look
look:
  %left = phi i64 [%all, %start], [%less, %rest], [%less, %yield]
  %state = load atomic i64, ptr %seat acquire, align 8
  %is.free = icmp ne i64 %state, {BUSY}
  %is.over = icmp eq i64 %left, 0
  %ends = or i1 %is.free, %is.over
  br i1 %ends, label %done, label %rest
rest:
  {rest}
  %less = sub i64 %left, 1
  %part = and i64 %less, 15
  %yields = icmp eq i64 %part, 0
  br i1 %yields, label %yield, label %look
yield:
  {yielded}
  br label %look
done:
  %answer = zext i1 %is.free to i64
  ret i64 %answer
}}
"""
