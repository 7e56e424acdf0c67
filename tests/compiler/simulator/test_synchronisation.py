"""Barriers of threads, mbarriers and clusters: what they order, who waits for whom, and their misuse."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import SimulationError, shuffled, simulate

ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [$0];"
REMOTE = (
    "{ .reg .b32 ra; mapa.shared::cluster.u32 ra, $0, $1; mbarrier.arrive.shared::cluster.b64 _, [ra]; }"
)  # fmt: skip


def _zeros(count: int) -> np.ndarray:
    return np.zeros(count, np.int32)


def _place(k, thread: str, bytes: int = 4) -> str:
    """The address of a thread's own bytes of shared memory, beyond the barriers."""
    return k.op(f"inttoptr i32 {k.i32('add', k.i32('mul', thread, bytes), 256)} to ptr addrspace(3)")


def _exchange(text, order_them, warps: int = 2) -> str:
    """Each thread writes its number and reads that of the same lane of the other warp; between, ``order_them``."""
    k = text("ptr addrspace(1) %out")
    thread = k.thread()
    k.mbarriers(thread, (0, 32 * warps), (8, 1))
    k.do(f"store i32 {thread}, ptr addrspace(3) {_place(k, thread)}, align 4")
    order_them(k, thread)
    other = k.i32("xor", thread, 32)
    read = k.op(f"load i32, ptr addrspace(3) {_place(k, other)}, align 4")
    place = k.at("%out", thread)
    k.do(f"store i32 {read}, {place}, align 4")
    return str(k)


def _by_barrier(k, thread: str) -> None:
    k.asm("bar.sync 3, 64;")


def _by_intrinsic(k, thread: str) -> None:
    k.do("call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 3, i32 64)")


def _by_mbarrier(k, thread: str) -> None:
    k.asm(ARRIVE, "i32 0")
    k.wait("0", "0")


def _by_cluster(k, thread: str) -> None:
    k.asm("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")


def _by_nothing(k, thread: str) -> None:
    k.asm("griddepcontrol.wait;")


def _by_one_thread(k, thread: str) -> None:
    """Lane 0 of each warp meets the other's, for 32 threads that have not met."""
    k.only(k.op(f"icmp eq i32 {k.i32('and', thread, 31)}, 0"), "arrives", lambda: k.asm(ARRIVE, "i32 0"))
    k.wait("0", "0")


@pytest.mark.parametrize("ordered", [_by_barrier, _by_intrinsic, _by_mbarrier, _by_cluster])
@pytest.mark.parametrize("seed", range(3))
def test_what_orders(text, ordered, seed) -> None:
    out = np.zeros(64, np.int32)
    simulate(_exchange(text, ordered), (1,), [out], 2, 1024, shuffled(seed))
    np.testing.assert_array_equal(out, np.arange(64) ^ 32)


@pytest.mark.parametrize("order", [range, shuffled(1)])
def test_what_does_not_order(text, order) -> None:
    with pytest.raises(SimulationError, match="race in shared memory|read before it was written"):
        simulate(_exchange(text, _by_nothing), (1,), [np.zeros(64, np.int32)], 2, 1024, order)
    # 64 arrivals are wanted; with two of them nobody goes on.
    with pytest.raises(SimulationError, match="phase 0 lacks 62 arrivals"):
        simulate(_exchange(text, _by_one_thread), (1,), [np.zeros(64, np.int32)], 2, 1024, order)
    llvm = _exchange(text, _by_one_thread).replace("[$0], 64;", "[$0], 2;")
    with pytest.raises(SimulationError, match="thread 1 reads byte 0x184, which thread 33 wrote"):
        simulate(llvm, (1,), [np.zeros(64, np.int32)], 2, 1024, range)


def test_the_threads_of_a_warp_meet(text) -> None:
    """One arrival speaks for a warp that has met at bar.warp.sync."""

    def ordered(k, thread: str) -> None:
        k.asm("bar.warp.sync -1;")
        _by_one_thread(k, thread)

    out = np.zeros(64, np.int32)
    simulate(_exchange(text, ordered).replace("[$0], 64;", "[$0], 2;"), (1,), [out], 2, 1024)
    np.testing.assert_array_equal(out, np.arange(64) ^ 32)


def test_arriving_without_waiting(text) -> None:
    """Warp 0 writes and goes on; warp 1 waits for it and reads, but the reverse is a race."""
    k = text("ptr addrspace(1) %out")
    thread = k.thread()
    first = k.op(f"icmp slt i32 {thread}, 32")
    k.do(f"br i1 {first}, label %write, label %read")
    k.label("write")
    k.do(f"store i32 {thread}, ptr addrspace(3) {_place(k, thread)}, align 4")
    k.asm("bar.arrive 1, 64;")
    k.do("br label %end")
    k.label("read")
    k.asm("bar.sync 1, 64;")
    lane = k.i32("and", thread, 31)
    read = k.op(f"load i32, ptr addrspace(3) {_place(k, lane)}, align 4")
    k.do(f"store i32 {read}, {k.at('%out', lane)}, align 4")
    k.do("br label %end")
    k.label("end")
    out = np.zeros(32, np.int32)
    simulate(str(k), (1,), [out], 2, 1024)
    np.testing.assert_array_equal(out, np.arange(32))
    late = str(k).replace("bar.arrive 1, 64;", "griddepcontrol.wait;").replace("bar.sync 1, 64;", "bar.sync 1, 32;")
    with pytest.raises(SimulationError, match="race in shared memory"):
        simulate(late, (1,), [out], 2, 1024)


def test_warps_that_have_ended_are_not_waited_for(text) -> None:
    k = text()
    thread = k.thread()
    k.do(f"br i1 {k.op(f'icmp slt i32 {thread}, 32')}, label %end, label %meet")
    k.label("meet")
    k.barrier()
    k.do("br label %end")
    k.label("end")
    simulate(str(k), (1,), [], 3)
    named = str(k).replace("sync.aligned.all(i32 0)", "sync.aligned.count(i32 0, i32 96)")
    with pytest.raises(
        SimulationError, match="warp 1 waits at barrier 0, where 64 of 96 threads are\n.*\nwarp 0 ended"
    ):
        simulate(named, (1,), [], 3)


@pytest.mark.parametrize(
    "statement, message",
    [
        ("bar.sync 16, 64;", "there is no barrier 16"),
        ("bar.sync 1, 33;", "barrier 1 is told of 33 threads"),
        ("bar.arrive 1, 96;", "arrives twice at barrier 1"),
        ("mbarrier.init.shared::cta.b64 [32], 0;", "cannot be made for 0 arrivals"),
        ("mbarrier.init.shared::cta.b64 [36], 1;", "not aligned"),
        ("mbarrier.init.shared::cta.b64 [0], 1;", "made twice"),
        ("mbarrier.arrive.shared::cta.b64 _, [8];", "mbarrier 0x8 gets 32 arrivals in a phase that lacks 1"),
        ("mbarrier.arrive.shared::cta.b64 _, [16];", "at 0x10, where none was made"),
        ("mbarrier.expect_tx.shared::cta.b64 [0], 100000;", "counts 1100000 bytes, more than it can"),
        ("mbarrier.try_wait.parity.shared::cta.b64 P1, [0], 2; @P1 bra X;", "waits for parity 2"),
        ("setmaxnreg.inc.sync.aligned.u32 100;", "takes a multiple of 8"),
        ("mbarrier.test_wait.parity.shared::cta.b64 P1, [0], 0;", "knows the loop that waits"),
    ],
)
def test_misuse(text, statement, message) -> None:
    k = text()
    thread = k.thread()
    k.mbarriers(thread, (0, 64), (8, 1))
    with pytest.raises(SimulationError, match=message):
        k.asm(statement)
        k.asm(statement)
        simulate(str(k), (1,), [], 4, 1024)


def test_an_mbarrier_is_no_memory(text) -> None:
    k = text()
    k.mbarriers(k.thread(), (0, 1))
    k.op("load i32, ptr addrspace(3) null, align 4")
    with pytest.raises(SimulationError, match="shared memory access outside every array"):
        simulate(str(k), (1,), [], 1, 64)


def test_a_group_of_warps_sets_one_register_budget(text) -> None:
    k = text()
    k.only(
        k.op(f"icmp slt i32 {k.thread()}, 96"), "less", lambda: k.asm("setmaxnreg.dec.sync.aligned.u32 40;")
    )  # fmt: skip
    simulate(str(k), (1,), [], 3)
    with pytest.raises(SimulationError, match="the warps 0 to 3 disagree on setmaxnreg"):
        simulate(str(k), (1,), [], 4)


# Lanes that part ---------------------------------------------------------------------------------------------


def _loop(text) -> str:
    """Each thread adds up the numbers below its lane; lanes leave the loop one after the other."""
    k = text("ptr addrspace(1) %out")
    thread = k.thread()
    lane = k.i32("and", thread, 31)
    odd = k.op(f"icmp eq i32 {k.i32('and', thread, 1)}, 1")
    k.do("br label %head")
    k.label("head")
    k.do("%i = phi i32 [0, %entry], [%next, %joined]")
    k.do("%sum = phi i32 [0, %entry], [%more, %joined]")
    k.do(f"br i1 {k.op(f'icmp slt i32 %i, {lane}')}, label %body, label %out_of_loop")
    k.label("body")
    k.do(f"br i1 {odd}, label %odds, label %joined")
    k.label("odds")
    twice = k.i32("mul", "%i", 2)
    k.do("br label %joined")
    k.label("joined")
    k.do(f"%term = phi i32 [%i, %body], [{twice}, %odds]")
    k.do("%more = add i32 %sum, %term")
    k.do("%next = add i32 %i, 1")
    k.do("br label %head")
    k.label("out_of_loop")
    k.do(f"store i32 %sum, {k.at('%out', thread)}, align 4")
    return str(k)


def test_lanes_leave_a_loop_one_by_one(text) -> None:
    out = np.zeros(64, np.int32)
    simulate(_loop(text), (1,), [out], 2)
    lanes = np.arange(64) % 32
    np.testing.assert_array_equal(out, lanes * (lanes - 1) // 2 * np.where(lanes % 2, 2, 1))


@pytest.mark.parametrize(
    "line",
    [
        "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
        '  call void asm sideeffect "bar.sync 1, 64;", "~{memory}"() convergent',
        "  %s = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %i, i32 1, i32 31)",
        '  call void asm sideeffect "wgmma.fence.sync.aligned;", "~{memory}"() convergent',
    ],
)
def test_instructions_that_need_the_whole_warp(text, line) -> None:
    broken = _loop(text).replace("odds:", f"odds:\n{line}")
    with pytest.raises(SimulationError, match="needs all threads of warp 0; a branch left lanes 1, 3, 5, .* alone"):
        simulate(broken, (1,), [_zeros(64)], 2)


def test_one_thread_is_elected(text) -> None:
    k = text("ptr addrspace(1) %out")
    thread = k.thread()
    (one,) = k.asm("{ .reg .pred P; elect.sync _|P, -1; selp.b32 $0, 1, 0, P; }", results=["i32"])
    two = k.op("call { i32, i1 } @llvm.nvvm.elect.sync(i32 -1)")
    both = k.i32("add", one, k.op(f"zext i1 {k.op(f'extractvalue {{ i32, i1 }} {two}, 1')} to i32"))
    k.do(f"store i32 {both}, {k.at('%out', thread)}, align 4")
    out = _zeros(64)
    simulate(str(k), (1,), [out], 2)
    np.testing.assert_array_equal(out, np.where(np.arange(64) % 32 == 0, 2, 0))


# Clusters ----------------------------------------------------------------------------------------------------


def _signal(text) -> str:
    """Program 1 of a cluster writes global memory and arrives at program 0's mbarrier; program 0 reads."""
    k = text("ptr addrspace(1) %out")
    thread = k.thread()
    rank = k.op("call i32 @llvm.nvvm.read.ptx.sreg.cluster.ctarank()")
    k.mbarriers(thread, (0, 32))
    k.asm("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    k.do(f"br i1 {k.op(f'icmp eq i32 {rank}, 1')}, label %write, label %read")
    k.label("write")
    k.do(f"store i32 {thread}, {k.at('%out', thread)}, align 4")
    k.asm(REMOTE, "i32 0", "i32 0")
    k.do("br label %end")
    k.label("read")
    k.wait("0", "0")
    other = k.i32("xor", thread, 1)
    value = k.op(f"load i32, {k.at('%out', other)}, align 4")
    more = k.i32("add", thread, 32)
    k.do(f"store i32 {value}, {k.at('%out', more)}, align 4")
    k.do("br label %end")
    k.label("end")
    return str(k)


@pytest.mark.parametrize("order", [range, shuffled(0), shuffled(1)])
def test_programs_of_a_cluster_signal_each_other(text, order) -> None:
    out = _zeros(64)
    simulate(_signal(text), (2,), [out], 1, 64, order, cluster=2)
    np.testing.assert_array_equal(out, np.concatenate([np.arange(32), np.arange(32) ^ 1]))
    with pytest.raises(SimulationError, match="phase 0 lacks 1 arrivals"):
        simulate(_signal(text).replace("[$0], 32;", "[$0], 33;"), (2,), [out], 1, 64, order, cluster=2)
    end = ") convergent\n  br label %end"
    with pytest.raises(SimulationError, match="asks for program 2 of its cluster"):
        simulate(_signal(text).replace(f"i32 0{end}", f"i32 2{end}"), (2,), [out], 1, 64, order, cluster=2)


def _neighbours(text) -> str:
    """Each program writes its rank to the other's shared memory and reads what it got."""
    k = text("ptr addrspace(1) %out")
    thread = k.thread()
    rank = k.op("call i32 @llvm.nvvm.read.ptx.sreg.cluster.ctarank()")
    mine = k.i32("mul", thread, 4)
    other = k.i32("xor", rank, 1)
    (remote,) = k.asm("mapa.shared::cluster.u32 $0, $1, $2;", f"i32 {mine}", f"i32 {other}", results=["i32"])
    k.asm("st.shared::cluster.b32 [$0], $1;", f"i32 {remote}", f"i32 {rank}")
    k.asm("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    (back,) = k.asm("ld.shared::cluster.b32 $0, [$1];", f"i32 {remote}", results=["i32"])
    (got,) = k.asm("ld.shared::cta.b32 $0, [$1];", f"i32 {mine}", results=["i32"])
    k.asm("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    both = k.i32("add", k.i32("mul", back, 10), got)
    index = k.i32("add", k.i32("mul", rank, 32), thread)
    k.do(f"store i32 {both}, {k.at('%out', index)}, align 4")
    return str(k)


@pytest.mark.parametrize("order", [range, shuffled(0)])
def test_shared_memory_of_a_cluster(text, order) -> None:
    out = _zeros(64)
    llvm = _neighbours(text)
    simulate(llvm, (2,), [out], 1, 128, order, cluster=2)
    np.testing.assert_array_equal(out, [1] * 32 + [10] * 32)
    meet = next(line for line in llvm.splitlines() if "barrier.cluster" in line)
    with pytest.raises(SimulationError, match="shared memory of program . of its cluster, which may have ended"):
        simulate(
            llvm[::-1].replace(meet[::-1], "", 1)[::-1].replace("\n\n", "\n"), (2,), [out], 1, 128, order, cluster=2
        )
    with pytest.raises(SimulationError, match="race in shared memory|read before it was written"):
        simulate(llvm.replace(meet + "\n", "", 1), (2,), [out], 1, 128, order, cluster=2)


def test_clusters_divide_the_grid(text) -> None:
    with pytest.raises(SimulationError, match="3 programs cannot be split into clusters of 2"):
        simulate(_signal(text), (3,), [_zeros(64)], 1, 64, cluster=2)
