"""Rings, pipes and roles: mbarriers, cursors, warp groups that do different things.

Cursors (the slot, and the parity of the phase that it is in) are variables in memory that LLVM turns into registers, so
they follow any control flow. A phase of a "full" barrier ends when the bytes that were expected have arrived, one of an
"empty" barrier when all readers have (PTX ISA, "Phase of the mbarrier object").
"""

from __future__ import annotations

from ...errors import UnsupportedOp
from ...gpu.asynchronous import (
    Acquire,
    Advance,
    Commit,
    Deposit,
    PassTurn,
    Pipe,
    Receive,
    Release,
    RingBuffer,
    Roles,
    Slot,
    TakeTurn,
    Vacate,
)
from ...gpu.memory.scratch import BARRIER_BYTES, plan_deposit
from ...hardware import WARPS_PER_GROUP, threads_of
from ...ir.core import Value
from ..simt.convert import store_tile
from ..simt.lowering import Lowering, rule
from .machine import GROUP_BARRIER, RULES, TURN_BARRIER, in_first_thread
from .uniform import lane_number, warp_number

#: mbarrier.try_wait may give up before the phase has ended, so it is tried again.
_WAIT = (
    "{\n.reg .pred P1;\nLAB_WAIT_${:uid}:\n"
    "mbarrier.try_wait.parity.shared::cta.b64 P1, [$0], $1;\n"
    "@P1 bra DONE_${:uid};\nbra LAB_WAIT_${:uid};\nDONE_${:uid}:\n}"
)


@rule(RingBuffer, RULES)
def _ring(state: Lowering, op: RingBuffer) -> None:
    state.places[op.result] = str(state.scratch(op))


@rule(Pipe, RULES)
def _pipe(state: Lowering, op: Pipe) -> None:
    state.define(op.result, [str(state.scratch(op))])
    if op.engine != "tma":
        return
    arrivals = [1] * op.slots + [op.readers] * (op.slots if op.readers else 0)
    made = [f"mbarrier.init.shared::cta.b64 [$0+{BARRIER_BYTES * i}], {count};" for i, count in enumerate(arrivals)]
    in_first_thread(state, made, [("i32", barrier_address(state, state.scratch(op)))], "r")
    state.text.asm([], "fence.mbarrier_init.release.cluster;", "~{memory}", [])


def barrier_address(state: Lowering, place: int | str) -> str:
    """The address in shared memory (i32) of byte ``place``."""
    return state.text.op(f"ptrtoint ptr addrspace(3) {state.shared(place)} to i32")


def pipe_of(value: Value) -> Pipe:
    """The operation that made a pipe."""
    if not isinstance(value.op, Pipe):
        raise UnsupportedOp("a pipe must be known where it is used")
    return value.op


class Cursor:
    """Which slot one side of a pipe is at, and the parity of its phase."""

    def __init__(self, state: Lowering, pipe: Pipe, side: str) -> None:
        self.state = state
        self.pipe = pipe
        self._slot = state.once((pipe, side, "slot"), _variable)
        self._phase = state.once((pipe, side, "phase"), _variable)

    @property
    def slot(self) -> str:
        """The slot (i32)."""
        return self.state.text.op(f"load i32, ptr {self._slot}")

    @property
    def phase(self) -> str:
        """0 in the slot's first, third... phase, 1 in the others (i32)."""
        return self.state.text.op(f"load i32, ptr {self._phase}")

    def advance(self) -> None:
        """Go to the next slot; after the last one the first comes again, in its next phase."""
        text = self.state.text
        following = text.op(f"add nuw nsw i32 {self.slot}, 1")
        wraps = text.op(f"icmp eq i32 {following}, {self.pipe.slots}")
        old = self.phase
        text.do(f"store i32 {text.op(f'select i1 {wraps}, i32 0, i32 {following}')}, ptr {self._slot}")
        flipped = text.op(f"xor i32 {old}, 1")
        text.do(f"store i32 {text.op(f'select i1 {wraps}, i32 {flipped}, i32 {old}')}, ptr {self._phase}")

    def place(self, ring: Value) -> str:
        """Where the slot of ``ring`` begins (i32)."""
        size = ring.type.size * ring.type.elem.bytes
        offset = self.state.text.op(f"mul nuw nsw i32 {self.slot}, {size}")
        return self.state.plus(offset, self.state.places[ring])

    def full(self) -> str:
        """The address of the slot's full barrier."""
        return self._barrier(0)

    def empty(self) -> str:
        """The address of the slot's empty barrier."""
        return self._barrier(self.pipe.slots)

    def _barrier(self, first: int) -> str:
        text = self.state.text
        offset = text.op(f"shl i32 {self.slot}, {BARRIER_BYTES.bit_length() - 1}")
        return barrier_address(
            self.state, self.state.plus(offset, self.state.scratch(self.pipe) + BARRIER_BYTES * first)
        )


def _variable(state: Lowering) -> str:
    name = state.text.op("alloca i32")
    state.text.do(f"store i32 0, ptr {name}")
    return name


def filling(state: Lowering, pipe: Value) -> Cursor:
    """The cursor of whoever copies."""
    return Cursor(state, pipe_of(pipe), "fill")


def reading(state: Lowering, pipe: Value) -> Cursor:
    """The cursor of whoever computes."""
    return Cursor(state, pipe_of(pipe), "read")


def leader(state: Lowering) -> str:
    """True in the one thread that speaks for the group of threads that run this code (i1)."""
    if state.in_producer:
        return state.once("elected", _elected)
    return state.text.op(f"icmp eq i32 {state.thread}, 0")


def _elected(state: Lowering) -> str:
    """True in one thread of each warp, which the assembler knows to be one: what a thread by its number copies is
    prepared in loops over all lanes, a twelfth of the code of a product. PTX ISA, elect.sync: from sm_90 on, as are
    producers."""
    chosen = state.text.call("{i32, i1}", "llvm.nvvm.elect.sync", [("i32", "-1")])
    return state.text.op(f"extractvalue {{i32, i1}} {chosen}, 1")


def group_leader(state: Lowering) -> str:
    """True in the first thread of each group of four warps (i1)."""
    own = state.text.op(f"and i32 {state.thread}, {threads_of(WARPS_PER_GROUP) - 1}")
    return state.text.op(f"icmp eq i32 {own}, 0")


def group_number(state: Lowering) -> str:
    """Which group of four warps of its role a thread is in (i32)."""
    return state.text.op(f"lshr i32 {warp_number(state)}, {WARPS_PER_GROUP.bit_length() - 1}")


def meet(state: Lowering, alone: bool) -> None:
    """A barrier of all threads that share the work or, if ``alone``, of each group of four warps by itself."""
    if not alone:
        state.barrier()
        return
    group = group_number(state)
    number = state.text.op(f"add i32 {group}, {GROUP_BARRIER + 1}")
    text = f"bar.sync $0, {threads_of(WARPS_PER_GROUP)};"
    state.text.asm([], text, "r,~{memory}", [("i32", number)], convergent=True)


def _wait(state: Lowering, address: str, parity: str) -> None:
    state.text.asm([], _WAIT, "r,r,~{memory}", [("i32", address), ("i32", parity)])


@rule(Acquire, RULES)
def _acquire(state: Lowering, op: Acquire) -> None:
    cursor = filling(state, op.pipe)
    if cursor.pipe.readers:
        # A slot that was never read is empty: the phase before the first one counts as ended.
        _wait(state, cursor.empty(), state.text.op(f"xor i32 {cursor.phase}, 1"))
    state.text.asm(
        [],
        f"@$1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {op.bytes};",
        "r,b,~{memory}",
        [("i32", cursor.full()), ("i1", leader(state))],
    )


@rule(Advance, RULES)
def _advance(state: Lowering, op: Advance) -> None:
    filling(state, op.pipe).advance()


@rule(Commit, RULES)
def _commit(state: Lowering, op: Commit) -> None:
    state.text.asm([], "cp.async.commit_group;", "~{memory}", [])


@rule(Receive, RULES)
def _receive(state: Lowering, op: Receive) -> None:
    cursor = reading(state, op.pipe)
    if cursor.pipe.engine == "threads":
        state.barrier()
        return
    if cursor.pipe.engine == "cp.async":
        state.text.asm([], f"cp.async.wait_group {op.pending};", "~{memory}", [])
        if op.fenced:
            state.machine.publish_shared(state)
        return
    _wait(state, cursor.full(), cursor.phase)


@rule(Vacate, RULES)
def _vacate(state: Lowering, op: Vacate) -> None:
    state.barrier()


@rule(Slot, RULES)
def _slot(state: Lowering, op: Slot) -> None:
    state.places[op.result] = reading(state, op.pipe).place(op.ring)


@rule(Deposit, RULES)
def _deposit(state: Lowering, op: Deposit) -> None:
    store_tile(state, plan_deposit(op), op.value, filling(state, op.pipe).place(op.ring))
    state.machine.publish_shared(state)


@rule(Release, RULES)
def _release(state: Lowering, op: Release) -> None:
    cursor = reading(state, op.pipe)
    if op.fenced:
        state.machine.publish_shared(state)
    if cursor.pipe.readers:
        # One lane arrives for the warp, after all of its lanes have read.
        state.machine.warp_barrier(state)
        first = state.text.op(f"icmp eq i32 {lane_number(state)}, 0")
        operands = [("i32", cursor.empty()), ("i1", first)]
        state.text.asm([], "@$1 mbarrier.arrive.shared::cta.b64 _, [$0];", "r,b,~{memory}", operands)
    cursor.advance()


@rule(TakeTurn, RULES)
def _take_turn(state: Lowering, op: TakeTurn) -> None:
    _turn(state, "sync", op.group, group_number(state))


@rule(PassTurn, RULES)
def _pass_turn(state: Lowering, op: PassTurn) -> None:
    _turn(state, "arrive", op.group, state.text.op(f"xor i32 {group_number(state)}, 1"))


def _turn(state: Lowering, way: str, alone: int, whose: str) -> None:
    """Wait or arrive at the barrier where group ``whose`` waits for its turn; both groups, or one ``alone``."""
    number = state.text.op(f"add i32 {whose}, {TURN_BARRIER}")
    text, operands = f"bar.{way} $0, {threads_of(state.warps)};", [("i32", number)]
    if alone < 0:
        state.text.asm([], text, "r,~{memory}", operands, convergent=True)
        return
    mine = state.text.op(f"icmp eq i32 {group_number(state)}, {alone}")
    state.text.asm([], f"@$1 {text}", "r,b,~{memory}", [*operands, ("i1", mine)], convergent=True)


@rule(Roles, RULES)
def _roles(state: Lowering, op: Roles) -> None:
    """Consumers have the lower thread numbers, so that tiles are laid out as if they were alone."""
    text = state.text
    produce, work, consume, end = (text.fresh(n) for n in ("produce", "work", "consume", "end"))
    warp = warp_number(state)
    helps = text.op(f"icmp uge i32 {warp}, {state.warps}")
    text.do(f"br i1 {helps}, label %{produce}, label %{consume}")

    state.begin(produce)
    _share_registers(state, "dec", op.producer_registers)
    works = text.op(f"icmp eq i32 {warp}, {state.warps}")
    text.do(f"br i1 {works}, label %{work}, label %{end}")
    state.begin(work)
    state.in_producer = True
    state.lower_block(op.producer)
    state.in_producer = False
    text.do(f"br label %{end}")

    state.begin(consume)
    _share_registers(state, "inc", op.consumer_registers)
    state.group_threads = threads_of(state.warps)
    state.lower_block(op.consumer)
    state.group_threads = None
    text.do(f"br label %{end}")
    state.begin(end)


def _share_registers(state: Lowering, way: str, count: int) -> None:
    if count:
        state.text.asm([], f"setmaxnreg.{way}.sync.aligned.u32 {count};", "", [], convergent=True)
