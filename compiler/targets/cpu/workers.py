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

#: Microseconds between two looks at a helper that takes longer than it is watched.
LOOK_AGAIN_US = 200

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
    """One thread's place: the grid posted to it, for how many looks its helper watches for the next one, its scratch
    area, what kernels report through, and the first program that failed. Two of them share no cache line."""

    _fields_ = (
        ("state", ctypes.c_int64),
        ("patience", ctypes.c_int64),
        ("scratch", ctypes.c_void_p),
        ("status", Status),
        ("failed_program", ctypes.c_int64),
        ("failed_code", ctypes.c_int64),
        ("_padding", ctypes.c_char * 128),
    )


@dataclass(frozen=True)
class WorkerCode:
    """The functions. While they run, Python's other threads go on."""

    #: (seat): run what is posted to the seat until nothing was for as many looks as its patience; it is ASLEEP then.
    serve: ctypes._FuncPointer
    #: (grid, own seat, addresses of the helpers' seats, room for their states, how many have the grid already, how many
    #: there are, looks, whether to look for signals): post the grid, run pieces of it, and wait for the helpers that
    #: have begun; those that have not are as before. One call, so that nothing that Python does in between, such as
    #: raising KeyboardInterrupt, leaves helpers with a grid that is gone. What a signal's handler raises stops the grid
    #: and is raised at the end.
    lead: ctypes._FuncPointer
    #: Looks in :data:`WATCHED_NS`.
    patience: int


@cache
def workers() -> WorkerCode:
    """Compiled once for a process, and kept to its very end: helpers watch while Python goes down."""
    loaded = driver.LoadedObject(driver.compile_text(_text(), driver.host_machine(), "object"))
    loaded.keep()
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    serve = ctypes.CFUNCTYPE(None, pointer)(loaded.address("serve"))
    # It lets go of the interpreter by itself, and what it leaves as raised is raised.
    lead = ctypes.PYFUNCTYPE(None, *[pointer] * 4, *[number] * 4)(loaded.address("lead"))
    return WorkerCode(serve, lead, _looks(serve))


def _looks(serve: ctypes._FuncPointer, tried: int = 1000) -> int:
    """How many looks at a seat take :data:`WATCHED_NS`, as far as that can be told where cores are busy."""
    seat, spent = Seat(IDLE, tried), []
    for _ in range(3):
        seat.state, begin = IDLE, time.perf_counter_ns()
        serve(ctypes.addressof(seat))
        spent.append(time.perf_counter_ns() - begin)
    return max(tried, WATCHED_NS * tried // min(spent))


def _text() -> str:
    triple = driver.host_machine().triple
    rest = {"x86_64": "x86.sse2.pause()", "aarch64": "aarch64.hint(i32 1)", "arm64": "aarch64.hint(i32 1)"}
    asked, has_posix = rest.get(triple.split("-")[0]), "windows" not in triple
    interpreter = {
        name: f"inttoptr (i64 {ctypes.cast(getattr(ctypes.pythonapi, called), ctypes.c_void_p).value} to ptr)"
        for name, called in (("LET_GO", "PyEval_SaveThread"), ("TAKE", "PyEval_RestoreThread"))
    }
    signals = ctypes.cast(ctypes.pythonapi.PyErr_CheckSignals, ctypes.c_void_p).value
    return _MODULE.format(
        rest_declared=f"declare void @llvm.{asked.replace('i32 1', 'i32')}" if asked else "",
        rest=f"call void @llvm.{asked}" if asked else "",
        posix_declared="declare i32 @sched_yield()\ndeclare i32 @usleep(i32)" if has_posix else "",
        yielded="call i32 @sched_yield()" if has_posix else "",
        slept=f"call i32 @usleep(i32 {LOOK_AGAIN_US})" if has_posix else "",
        IDLE=IDLE,
        ASLEEP=ASLEEP,
        BUSY=BUSY,
        **interpreter,
        SIGNALS=f"inttoptr (i64 {signals} to ptr)",
        **{f.upper(): getattr(SharedGrid, f).offset for f, _ in SharedGrid._fields_},
        PATIENCE=Seat.patience.offset,
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
{posix_declared}

; Run a piece of the grid; whether there may be another one.
define i1 @piece(ptr %grid, ptr %seat) {{
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
  br i1 %fails, label %failed, label %more
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
  br i1 %stops.none, label %more, label %halt
halt:
  store atomic i64 1, ptr %stopped.at monotonic, align 8
  br label %done
more:
  ret i1 true
done:
  ret i1 false
}}

; A look: a pause, and now and then the core for who waits for it; how many are left.
define i64 @rest(i64 %left) {{
  {rest}
  %less = sub i64 %left, 1
  %part = and i64 %less, 15
  %yields = icmp eq i64 %part, 0
  br i1 %yields, label %yield, label %done
yield:
  {yielded}
  br label %done
done:
  ret i64 %less
}}

define void @serve(ptr %seat) {{
start:
  %patience.at = getelementptr i8, ptr %seat, i64 {PATIENCE}
  %given = load i64, ptr %patience.at
  br label %look
look:
  %left = phi i64 [%given, %start], [%left, %take], [%again, %worked], [%less, %wait], [%left, %awake], [0, %sleep]
  %state = load atomic i64, ptr %seat acquire, align 8
  %is.posted = icmp ugt i64 %state, {BUSY}
  br i1 %is.posted, label %take, label %none
take:
  %taken = cmpxchg ptr %seat, i64 %state, i64 {BUSY} acquire monotonic
  %is.taken = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %is.taken, label %work, label %look
work:
  %grid = inttoptr i64 %state to ptr
  %goes.on = call i1 @piece(ptr %grid, ptr %seat)
  br i1 %goes.on, label %work, label %worked
worked:
  %again = load i64, ptr %patience.at
  store atomic i64 {IDLE}, ptr %seat release, align 8
  br label %look
none:
  %was.asleep = icmp eq i64 %state, {ASLEEP}
  br i1 %was.asleep, label %awake, label %idle
awake:
  %woken = cmpxchg ptr %seat, i64 {ASLEEP}, i64 {IDLE} monotonic monotonic
  br label %look
idle:
  %is.over = icmp sle i64 %left, 0
  br i1 %is.over, label %sleep, label %wait
wait:
  %less = call i64 @rest(i64 %left)
  br label %look
sleep:
  %slept = cmpxchg ptr %seat, i64 {IDLE}, i64 {ASLEEP} release monotonic
  %sleeps = extractvalue {{ i64, i1 }} %slept, 1
  br i1 %sleeps, label %done, label %look
done:
  ret void
}}

; Let handlers of signals run, unless one has raised something: whether one has. Others have the interpreter meanwhile.
define i1 @watch(ptr %grid, ptr %thread, i1 %raised, i64 %watches) {{
  %wanted = icmp ne i64 %watches, 0
  %unraised = xor i1 %raised, true
  %looks = and i1 %wanted, %unraised
  br i1 %looks, label %look, label %not
look:
  %held = load ptr, ptr %thread
  call void {TAKE}(ptr %held)
  %found = call i32 {SIGNALS}()
  %released = call ptr {LET_GO}()
  store ptr %released, ptr %thread
  %raises = icmp slt i32 %found, 0
  br i1 %raises, label %stop, label %not
stop:
  %stopped.at = getelementptr i8, ptr %grid, i64 {STOPPED}
  %together.at = getelementptr i8, ptr %grid, i64 {TOGETHER}
  %together = load i64, ptr %together.at
  %may.stop = icmp eq i64 %together, 0
  br i1 %may.stop, label %halt, label %yes
halt:
  store atomic i64 1, ptr %stopped.at monotonic, align 8
  br label %yes
yes:
  ret i1 true
not:
  ret i1 %raised
}}

define void @lead(ptr %grid, ptr %own, ptr %seats, ptr %states, i64 %posted, i64 %count, i64 %patience, i64 %watches) {{
start:
  %thread = alloca ptr
  %let.go = call ptr {LET_GO}()
  store ptr %let.go, ptr %thread
  %address = ptrtoint ptr %grid to i64
  br label %posting
posting:
  %i = phi i64 [%posted, %start], [%i.next, %post]
  %posts = icmp slt i64 %i, %count
  br i1 %posts, label %post, label %working
post:
  %i.at = getelementptr i64, ptr %seats, i64 %i
  %i.seat = load ptr, ptr %i.at
  %i.before = atomicrmw xchg ptr %i.seat, i64 %address acq_rel
  %i.state = getelementptr i64, ptr %states, i64 %i
  store i64 %i.before, ptr %i.state
  %i.next = add i64 %i, 1
  br label %posting
working:
  %raised = phi i1 [false, %posting], [%now, %working]
  %goes.on = call i1 @piece(ptr %grid, ptr %own)
  %now = call i1 @watch(ptr %grid, ptr %thread, i1 %raised, i64 %watches)
  br i1 %goes.on, label %working, label %finishing
finishing:
  %j = phi i64 [0, %working], [%j.next, %finished]
  %so.far = phi i1 [%now, %working], [%found, %finished]
  %left = icmp slt i64 %j, %count
  br i1 %left, label %withdraw, label %done
withdraw:
  %j.at = getelementptr i64, ptr %seats, i64 %j
  %j.seat = load ptr, ptr %j.at
  %j.state = getelementptr i64, ptr %states, i64 %j
  %j.before = load i64, ptr %j.state
  %withdrawn = cmpxchg ptr %j.seat, i64 %address, i64 %j.before acq_rel acquire
  br label %look
look:
  %looks = phi i64 [%patience, %withdraw], [%less, %wait], [0, %nap]
  %found = phi i1 [%so.far, %withdraw], [%found, %wait], [%seen, %nap]
  %state = load atomic i64, ptr %j.seat acquire, align 8
  %is.busy = icmp eq i64 %state, {BUSY}
  br i1 %is.busy, label %busy, label %finished
busy:
  %is.over = icmp sle i64 %looks, 0
  br i1 %is.over, label %nap, label %wait
wait:
  %less = call i64 @rest(i64 %looks)
  br label %look
nap:
  {slept}
  %seen = call i1 @watch(ptr %grid, ptr %thread, i1 %found, i64 %watches)
  br label %look
finished:
  %j.next = add i64 %j, 1
  br label %finishing
done:
  %held = load ptr, ptr %thread
  call void {TAKE}(ptr %held)
  ret void
}}
"""
