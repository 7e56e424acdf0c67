"""A product with a producer and two consumers around a ring of slots: right as it is, and caught in each mistake."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from simulator import SimulatedTensorMap, SimulationError, shuffled, simulate

BM, BN, BK = 128, 64, 64
A_BYTES, B_BYTES = BM * BK * 2, BN * BK * 2
REGISTERS = BN // 2


@dataclass(frozen=True)
class Ring:
    """Where a kernel has its slots and barriers. ``kept``: groups of products that a consumer leaves in flight."""

    stages: int
    kept: int = 0

    @property
    def barriers(self) -> int:
        """The full ones, then the empty ones."""
        return self.stages * (A_BYTES + B_BYTES)

    @property
    def staging(self) -> int:
        return -(-(self.barriers + 16 * self.stages) // 1024) * 1024

    @property
    def shared_bytes(self) -> int:
        return self.staging + BM * BN * 2


def _next_slot(k, ring: Ring, slot: str, phase: str, names: tuple[str, str]) -> None:
    following = k.i32("add", slot, 1)
    wraps = k.op(f"icmp eq i32 {following}, {ring.stages}")
    k.do(f"{names[0]} = select i1 {wraps}, i32 0, i32 {following}")
    other = k.i32("xor", phase, 1)
    k.do(f"{names[1]} = select i1 {wraps}, i32 {other}, i32 {phase}")


def _barrier(k, ring: Ring, slot: str, *, full: bool) -> str:
    return k.i32("add", k.i32("shl", slot, 3), ring.barriers + (0 if full else 8 * ring.stages))


def _produce(k, ring: Ring, thread: str) -> None:
    k.label("produce")
    k.asm("setmaxnreg.dec.sync.aligned.u32 24;")
    k.do(f"br i1 {k.op(f'icmp eq i32 {thread}, 0')}, label %p, label %end")
    k.label("p")
    k.do("%pi = phi i32 [0, %produce], [%pin, %p]")
    k.do("%ps = phi i32 [0, %produce], [%psn, %p]")
    k.do("%pp = phi i32 [1, %produce], [%ppn, %p]")
    full = _barrier(k, ring, "%ps", full=True)
    k.wait(_barrier(k, ring, "%ps", full=False), "%pp")
    k.expect(full, A_BYTES + B_BYTES)
    depth = k.i32("mul", "%pi", BK)
    k.load_box(k.i32("mul", "%ps", A_BYTES), "%a", [depth, "0"], full)
    k.load_box(k.i32("add", k.i32("mul", "%ps", B_BYTES), ring.stages * A_BYTES), "%b", [depth, "0"], full)
    _next_slot(k, ring, "%ps", "%pp", ("%psn", "%ppn"))
    k.do("%pin = add i32 %pi, 1")
    k.do(f"br i1 {k.op('icmp slt i32 %pin, %tiles')}, label %p, label %end")


def _descriptor(k, place: str) -> str:
    field = k.op(f"zext i32 {k.i32('lshr', place, 4)} to i64")
    return k.op(f"or i64 {field}, {1 << 62 | 64 << 32 | 1 << 16}")


def _products(k, ring: Ring, group: str, acc: list[str]) -> list[str]:
    first = k.i32("add", k.i32("mul", "%cs", A_BYTES), k.i32("mul", group, 64 * BK * 2))
    a = _descriptor(k, first)
    b = _descriptor(k, k.i32("add", k.i32("mul", "%cs", B_BYTES), ring.stages * A_BYTES))
    k.asm("wgmma.fence.sync.aligned;")
    results = ", ".join(f"${i}" for i in range(REGISTERS))
    for step in range(BK // 16):
        acc = k.asm(
            f"wgmma.mma_async.sync.aligned.m64n{BN}k16.f32.bf16.bf16 {{{results}}}, ${REGISTERS}, ${REGISTERS + 1}, "
            "1, 1, 1, 0, 0;",
            f"i64 {k.op(f'add i64 {a}, {2 * step}')}",
            f"i64 {k.op(f'add i64 {b}, {2 * step}')}",
            results=["float"] * REGISTERS,
            tied=[f"float {x}" for x in acc],
        )
    k.asm("wgmma.commit_group.sync.aligned;")
    return _wait_group(k, ring.kept, acc)


def _wait_group(k, kept: int, acc: list[str]) -> list[str]:
    tied = [f"float {x}" for x in acc]
    return k.asm(f"wgmma.wait_group.sync.aligned {kept};", results=["float"] * REGISTERS, tied=tied)


def _consume(k, ring: Ring, thread: str, group: str) -> list[str]:
    """The names of the accumulators that go around the loop."""
    k.label("consume")
    k.asm("setmaxnreg.inc.sync.aligned.u32 232;")
    mine = k.i32("and", thread, 127)
    leads = k.op(f"icmp eq i32 {mine}, 0")
    k.do("br label %c")
    k.label("c")
    for name, start, after in (("ci", 0, "cin"), ("cs", 0, "csn"), ("cp", 0, "cpn"), ("last", 0, "cs")):
        k.do(f"%{name} = phi i32 [{start}, %consume], [%{after}, %c_next]")
    for i in range(REGISTERS):
        k.do(f"%acc{i} = phi float [0.0, %consume], [%kept{i}, %c_next]")
    k.wait(_barrier(k, ring, "%cs", full=True), "%cp")
    made = _products(k, ring, group, [f"%acc{i}" for i in range(REGISTERS)])
    releases = leads
    if ring.kept:
        releases = k.op(f"and i1 {leads}, {k.op('icmp sgt i32 %ci, 0')}")

    def release() -> None:
        slot = _barrier(k, ring, "%last" if ring.kept else "%cs", full=False)
        k.asm("mbarrier.arrive.shared::cta.b64 _, [$0];", f"i32 {slot}")

    k.only(releases, "release", release)
    k.do("br label %c_next")
    k.label("c_next")
    _next_slot(k, ring, "%cs", "%cp", ("%csn", "%cpn"))
    k.do("%cin = add i32 %ci, 1")
    k.do(f"br i1 {k.op('icmp slt i32 %cin, %tiles')}, label %c, label %store")
    k.label("store")
    _store(k, ring, mine, group, _wait_group(k, 0, made))
    return made


def _store(k, ring: Ring, mine: str, group: str, acc: list[str]) -> None:
    """The accumulators through shared memory: rows of 128 bytes, swizzled as TMA has them."""
    lane, warp = k.i32("and", mine, 31), k.i32("lshr", mine, 5)
    row = k.i32("add", k.i32("mul", warp, 16), k.i32("and", lane, 15))
    staging = k.i32("add", k.i32("mul", group, 64 * BN * 2), ring.staging)
    rows = k.i32("add", staging, k.i32("mul", row, BN * 2))
    for column in range(0, BN, 16):
        words = []
        for i in range(column // 2, column // 2 + 8, 2):
            pair = k.op(f"insertelement <2 x float> undef, float {acc[i]}, i32 0")
            pair = k.op(f"insertelement <2 x float> {pair}, float {acc[i + 1]}, i32 1")
            short = k.op(f"fptrunc <2 x float> {pair} to <2 x bfloat>")
            words.append(k.op(f"bitcast <2 x bfloat> {short} to i32"))
        chunk = k.i32("xor", k.i32("add", k.i32("lshr", lane, 4), column // 8), k.i32("and", row, 7))
        place = k.i32("add", rows, k.i32("shl", chunk, 4))
        text = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};"
        k.asm(text, f"i32 {place}", *(f"i32 {w}" for w in words))
    k.asm("fence.proxy.async.shared::cta;")
    k.asm("bar.sync $0, 128;", f"i32 {k.i32('add', group, 1)}")

    def store() -> None:
        k.asm(
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [$0, {$1, $2}], [$3];",
            "ptr %c",
            "i32 0",
            f"i32 {k.i32('mul', group, 64)}",
            f"i32 {staging}",
        )
        k.asm("cp.async.bulk.commit_group;")
        k.asm("cp.async.bulk.wait_group 0;")

    k.only(k.op(f"icmp eq i32 {mine}, 0"), "stores", store)
    k.do("br label %end")


def _kernel(text, descriptor, ring: Ring) -> str:
    k = text(descriptor("%a"), descriptor("%b"), descriptor("%c"), "i32 %tiles")
    thread = k.thread()
    made = [(ring.barriers + 8 * i, 1) for i in range(ring.stages)]
    made += [(ring.barriers + 8 * (ring.stages + i), 2) for i in range(ring.stages)]
    k.mbarriers(thread, *made)
    group = k.i32("sub", k.i32("lshr", thread, 7), 1)
    k.do(f"br i1 {k.op(f'icmp slt i32 {group}, 0')}, label %produce, label %consume")
    _produce(k, ring, thread)
    around = _consume(k, ring, thread, group)
    k.label("end")
    return re.sub(r"%kept(\d+)", lambda match: around[int(match[1])], str(k))


def _run(llvm: str, ring: Ring, tiles: int, order: Callable = range) -> None:
    random = np.random.default_rng(tiles)
    a, b = (random.integers(-2, 3, (rows, tiles * BK)).astype(ml_dtypes.bfloat16) for rows in (BM, BN))
    c = np.zeros((BM, BN), ml_dtypes.bfloat16)
    maps = [SimulatedTensorMap(x, x.shape, (tiles * BK, 1), (len(x), BK), 128) for x in (a, b)]
    out = SimulatedTensorMap(c, c.shape, (BN, 1), (64, BN), 128)
    simulate(llvm, (1,), [*maps, out, tiles], 12, ring.shared_bytes, order)
    wanted = a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_array_equal(c, wanted.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("stages, kept", [(1, 0), (2, 0), (2, 1), (3, 1), (4, 1)])
@pytest.mark.parametrize("tiles", [1, 3, 7])
def test_the_pipeline_is_right_in_every_order(text, descriptor, stages, kept, tiles) -> None:
    ring = Ring(stages, kept)
    llvm = _kernel(text, descriptor, ring)
    for order in (range, lambda count: range(count - 1, -1, -1), shuffled(tiles)):
        _run(llvm, ring, tiles, order)


def test_products_in_flight_need_a_second_slot(text, descriptor) -> None:
    with pytest.raises(SimulationError, match="no warp can go on:\nwarp 0 waits at mbarrier"):
        _run(_kernel(text, descriptor, Ring(1, 1)), Ring(1, 1), 3)


def test_a_slot_is_released_after_its_own_products_alone(text, descriptor) -> None:
    """With products in flight, the slot of the iteration before is free, not this one's."""
    llvm = _kernel(text, descriptor, Ring(3, 1)).replace("shl i32 %last, 3", "shl i32 %cs, 3")
    llvm = llvm.replace("icmp sgt i32 %ci, 0", "icmp sgt i32 %ci, -1")
    with pytest.raises(SimulationError, match="a TMA load .* writes byte .*, which a wgmma .* read"):
        _run(llvm, Ring(3, 1), 7)


def _without(pattern: str, number: int = 0) -> Callable[[str], str]:
    def edit(llvm: str) -> str:
        lines = llvm.splitlines()
        del lines[[i for i, line in enumerate(lines) if re.search(pattern, line)][number]]
        return "\n".join(lines)

    return edit


def _replaced(before: str, after: str, count: int = -1) -> Callable[[str], str]:
    return lambda llvm: llvm.replace(before, after, count)


BYTES = A_BYTES + B_BYTES
FIRST_EMPTY = Ring(2).barriers + 16
MISTAKES = {
    "the consumers do not wait": (_without("try_wait", 1), "read before it was written"),
    "the producer does not wait": (_without("try_wait", 0), "arrivals in a phase that lacks 0|race in shared memory"),
    "the consumers wait for the other parity": (
        _replaced("%cp = phi i32 [0,", "%cp = phi i32 [1,"),
        "a wgmma of warps .* reads byte .*, which a TMA load .* wrote|read before it was written",
    ),
    "the producer waits for the other parity": (
        _replaced("%pp = phi i32 [1,", "%pp = phi i32 [0,"),
        "no warp can go on:\nwarp 0 waits at mbarrier .* for parity 0; phase 0 lacks 2 arrivals",
    ),
    "the empty barriers want one arrival": (
        _replaced("[$0], 2;", "[$0], 1;"),
        "a TMA load .* writes byte .*, which a wgmma .* read|a wgmma .* reads byte .*, which a TMA load .* wrote|"
        "gets 1 arrivals|no warp can go on",
    ),
    "the empty barriers want three arrivals": (
        _replaced("[$0], 2;", "[$0], 3;"),
        "no warp can go on:\nwarp 0 waits at .* phase 0 lacks 1 arrivals",
    ),
    "no release by the consumers": (_without("mbarrier.arrive.shared"), "no warp can go on"),
    "a release before the products are over": (
        _replaced("wait_group.sync.aligned 0", "wait_group.sync.aligned 1", 1),
        "a TMA load .* writes byte .*, which a wgmma .* read",
    ),
    "fewer bytes expected than come": (_replaced(f"i32 {BYTES})", f"i32 {BYTES - 16})"), "lacks 0 arrivals, -16 bytes"),
    "more bytes expected than come": (_replaced(f"i32 {BYTES})", f"i32 {BYTES + 16})"), "lacks 0 arrivals, 16 bytes"),
    "barriers that are not fenced": (_without("fence.mbarrier_init"), "no fence.mbarrier_init"),
    "no barrier after the barriers are made": (_without("barrier.cta"), "race on mbarrier|where none was made"),
    "no wgmma.fence": (_without("wgmma.fence"), "with no wgmma.fence"),
    "no commit": (_without("wgmma.commit"), "a TMA load .* writes byte .*, which a wgmma .* read"),
    "accumulators used too early": (
        lambda llvm: "wait_group.sync.aligned 9".join(llvm.rsplit("wait_group.sync.aligned 0", 2)),
        "a TMA load .* writes byte .*, which a wgmma .* read|is used while its wgmma is in flight",
    ),
    "a store without a proxy fence": (_without("fence.proxy"), "a TMA store .* with no fence.proxy.async between"),
    "a store before all have written": (
        _without("bar.sync"),
        "a TMA store of thread .* reads .*, which thread .* wrote",
    ),
    "an end before the stores": (_without("bulk.wait_group"), "the program ends without a wait for a TMA store"),
    "slots that overlap": (
        _replaced(f"mul i32 %ps, {A_BYTES}", f"mul i32 %ps, {A_BYTES // 2}"),
        "a TMA load .* writes byte .*, which a TMA load .* wrote",
    ),
    "one warp too few at a barrier": (_replaced("$0, 128;", "$0, 160;"), "barrier 1, where 128 of 160 threads are"),
    "registers that one warp does not give up": (_replaced("u32 24;", "u32 20;"), "takes a multiple of 8"),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_a_mistake_is_caught(text, descriptor, mistake, seed) -> None:
    edit, message = MISTAKES[mistake]
    llvm = _kernel(text, descriptor, Ring(2))
    broken = edit(llvm)
    assert broken != llvm
    with pytest.raises(SimulationError, match=message):
        _run(broken, Ring(2), 5, range if seed is None else shuffled(seed))
