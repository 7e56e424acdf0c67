"""Copies between arrays and shared memory: boxes by TMA, cp.async, matrices of a warp."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from simulator import SimulatedTensorMap, SimulationError, shuffled, simulate

STORE = "cp.async.bulk.tensor.{0}d.global.shared::cta.bulk_group [$0, {{{1}}}], [${2}];"
TILE = 1024


def _store_box(k, box: str, coordinates: list[str], source: str) -> None:
    places = ", ".join(f"${i + 1}" for i in range(len(coordinates)))
    text = STORE.format(len(coordinates), places, len(coordinates) + 1)
    k.asm(text, f"ptr {box}", *(f"i32 {c}" for c in coordinates), f"i32 {source}")


def _box_to_box(text, descriptor, corner: tuple[int, ...], to: tuple[int, ...], size: int) -> str:
    """Thread 0 loads a box at ``corner`` and stores it at ``to`` (innermost first)."""
    k = text(descriptor("%a"), descriptor("%b"))
    thread = k.thread()
    k.mbarriers(thread, (0, 1))

    def body() -> None:
        k.expect("0", size)
        k.load_box(str(TILE), "%a", [str(c) for c in corner], "0")
        k.wait("0", "0")
        _store_box(k, "%b", [str(c) for c in to], str(TILE))
        k.asm("cp.async.bulk.commit_group;")
        k.asm("cp.async.bulk.wait_group.read 0;")

    k.only(k.op(f"icmp eq i32 {thread}, 0"), "copy", body)
    return str(k)


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("corner", [(0, 0), (16, 4), (-8, -3), (40, 9)])
def test_boxes_beyond_an_array(text, descriptor, padding, corner) -> None:
    """Loads pad, stores leave out; a box of (8, 16) of an array of (10, 48)."""
    a = np.arange(480, dtype=np.float32).reshape(10, 48)
    b = np.full((10, 48), -1, np.float32)
    maps = [SimulatedTensorMap(x, (10, 44), (48, 1), (8, 16), 0, padding) for x in (a, b)]
    simulate(_box_to_box(text, descriptor, corner, (32, 4), 512), (1,), maps, 1, 4096)
    padded = np.full((40, 100), 0 if padding == "zero" else np.nan, np.float32)
    padded[10:20, 10:54] = a[:, :44]
    box = padded[10 + corner[1] : 18 + corner[1], 10 + corner[0] : 26 + corner[0]]
    wanted = np.full((10, 48), -1, np.float32)
    wanted[4:, 32:44] = box[:6, :12]
    np.testing.assert_array_equal(b, wanted)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 5])
def test_dimensions(text, descriptor, dimensions) -> None:
    shape = (3, 4, 2, 6, 16)[-dimensions:]
    box = (2, 2, 1, 3, 8)[-dimensions:]
    a = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    b = np.zeros_like(a)
    strides = tuple(s // 4 for s in a.strides)
    maps = [SimulatedTensorMap(x, shape, strides, box) for x in (a, b)]
    corner, to = (8, 2, 1, 2, 1)[:dimensions], (0, 3, 0, 1, 0)[:dimensions]
    simulate(_box_to_box(text, descriptor, corner, to, maps[0].bytes), (1,), maps, 1, 4096)
    wanted = np.zeros_like(a)
    boxes = [tuple(slice(c, c + n) for c, n in zip(reversed(at), box, strict=True)) for at in (to, corner)]
    wanted[boxes[0]] = a[boxes[1]]
    np.testing.assert_array_equal(b, wanted)


def test_the_order_of_swizzled_bytes(text, descriptor) -> None:
    """16-byte chunk c of the row of 128 bytes r is at c ^ (r % 8), and so on for narrower rows."""
    for swizzle, mask in ((128, 7), (64, 3), (32, 1)):
        wide = swizzle // 4
        a = np.arange(16 * wide, dtype=np.int32).reshape(16, wide)
        b = np.zeros_like(a)
        maps = [
            SimulatedTensorMap(a, a.shape, (wide, 1), a.shape, swizzle),
            SimulatedTensorMap(b, b.shape, (wide, 1), b.shape),
        ]
        simulate(_box_to_box(text, descriptor, (0, 0), (0, 0), a.nbytes), (1,), maps, 1, 4096)
        chunks, wanted = a.reshape(-1, 4), b.reshape(-1, 4)
        for number, chunk in enumerate(chunks):
            line = number // 8  # of 128 bytes of shared memory
            np.testing.assert_array_equal(wanted[number ^ (line & mask)], chunk)


@pytest.mark.parametrize(
    "form, message",
    [
        ({"sizes": (4,)}, "as many strides"),
        ({"strides": (8, 2)}, "cannot have the strides"),
        ({"strides": (7, 1)}, "cannot have the strides"),
        ({"box": (257, 8)}, "cannot have the box"),
        ({"box": (4, 6)}, "multiples of 16 bytes, not 24"),
        ({"box": (4, 64), "swizzle": 128}, "256 bytes cannot be swizzled in 128"),
        ({"box": (4, 8), "swizzle": 64}, "does not know rows of 32 bytes"),
        ({"padding": "one"}, "pads with zero or nan"),
    ],
)
def test_tensor_maps_that_there_cannot_be(form, message) -> None:
    made = {"sizes": (4, 8), "strides": (8, 1), "box": (4, 8)} | form
    with pytest.raises(SimulationError, match=message):
        SimulatedTensorMap(np.zeros((4, 8), np.float32), **made)


@pytest.mark.parametrize(
    "before, after, message",
    [
        ("i32 1024, ptr %a", "i32 1040, ptr %a", "not aligned to 128 bytes"),
        ("wait_group.read 0", "wait_group.read 1", "the program ends without a wait for a TMA store of thread 0"),
        ("2d.shared", "1d.shared", "2 coordinates for a box of 1 dimensions"),
        ("2d.shared", "2d.im2col.shared", "does not know im2col"),
        ("fence.mbarrier_init.release.cluster", "griddepcontrol.wait", "no fence.mbarrier_init"),
        (
            '"r,r,~{memory}"(i32 0, i32 0)',
            '"r,r,~{memory}"(i32 0, i32 1)',
            "a TMA store of thread 0 reads byte .*, which a TMA load .* wrote",
        ),
    ],
)
def test_misuse_of_boxes(text, descriptor, before, after, message) -> None:
    a, b = np.zeros((8, 16), np.float32), np.zeros((8, 16), np.float32)
    maps = [SimulatedTensorMap(x, x.shape, (16, 1), x.shape) for x in (a, b)]
    llvm = _box_to_box(text, descriptor, (0, 0), (0, 0), 512)
    assert before in llvm
    with pytest.raises(SimulationError, match=message):
        simulate(llvm.replace(before, after), (1,), maps, 1, 4096)


@pytest.mark.parametrize("waits", [True, False])
def test_a_store_that_others_read_too(text, descriptor, waits) -> None:
    """Reads of the same bytes by threads do not hide that a store still reads them."""
    k = text(descriptor("%b"))
    thread = k.thread()
    first = k.op(f"icmp eq i32 {thread}, 0")
    place = k.op(f"inttoptr i32 {k.i32('add', k.i32('mul', thread, 16), TILE)} to ptr addrspace(3)")
    k.do(f"store <4 x i32> zeroinitializer, ptr addrspace(3) {place}, align 16")
    k.asm("fence.proxy.async.shared::cta;")
    k.barrier()

    def store() -> None:
        _store_box(k, "%b", ["0", "0"], str(TILE))
        k.asm("cp.async.bulk.commit_group;")
        if waits:
            k.asm("cp.async.bulk.wait_group.read 0;")

    k.only(first, "store", store)
    k.op(f"load <4 x i32>, ptr addrspace(3) {place}, align 16")
    k.barrier()
    k.do(f"store <4 x i32> zeroinitializer, ptr addrspace(3) {place}, align 16")
    k.only(first, "end_of_store", lambda: k.asm("cp.async.bulk.wait_group 0;"))
    b = np.ones((8, 16), np.int32)
    arguments = [SimulatedTensorMap(b, b.shape, (16, 1), b.shape)]
    if waits:
        simulate(str(k), (1,), arguments, 1, 4096)
        assert not b.any()
        return
    changed = str(k)[::-1].replace("zeroinitializer"[::-1], "<i32 1, i32 1, i32 1, i32 1>"[::-1], 1)[::-1]
    with pytest.raises(SimulationError, match="writes byte .*, which a TMA store of thread 0 read"):
        simulate(changed, (1,), arguments, 1, 4096)


def test_a_load_that_nobody_waits_for(text, descriptor) -> None:
    k = text(descriptor("%a"))
    thread = k.thread()
    k.mbarriers(thread, (0, 1))
    first = k.op(f"icmp eq i32 {thread}, 0")
    k.load_box(str(TILE), "%a", ["0", "0"], "0", predicate=first)
    a = np.zeros((8, 16), np.float32)
    with pytest.raises(SimulationError, match="the program ends without a wait for a TMA load"):
        simulate(str(k), (1,), [SimulatedTensorMap(a, a.shape, (16, 1), a.shape)], 1, 4096)


@pytest.mark.parametrize("order", [range, shuffled(0), shuffled(3)])
def test_a_box_for_all_programs_of_a_cluster(text, descriptor, order) -> None:
    """Each of two programs loads one half and sends it to both."""
    k = text(descriptor("%a"), "ptr addrspace(1) %out")
    thread = k.thread()
    rank = k.op("call i32 @llvm.nvvm.read.ptx.sreg.cluster.ctarank()")
    k.mbarriers(thread, (0, 1))
    k.asm("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    half = k.i32("mul", rank, 8)

    def body() -> None:
        k.expect("0", 1024)
        k.asm(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
            ".L2::cache_hint [$0], [$1, {$2, $3}], [$4], $5, $6;",
            f"i32 {k.i32('add', k.i32('mul', rank, 512), TILE)}", "ptr %a", "i32 0", f"i32 {half}", "i32 0", "i16 3",
            "i64 0",
        )  # fmt: skip

    k.only(k.op(f"icmp eq i32 {thread}, 0"), "load", body)
    k.wait("0", "0")
    place = k.op(f"inttoptr i32 {k.i32('add', k.i32('mul', thread, 32), TILE)} to ptr addrspace(3)")
    to = k.i32("add", k.i32("mul", rank, 256), k.i32("mul", thread, 8))
    for i in range(2):
        source = k.op(f"getelementptr i32, ptr addrspace(3) {place}, i32 {4 * i}")
        words = k.op(f"load <4 x i32>, ptr addrspace(3) {source}, align 16")
        target = k.op(f"getelementptr i32, ptr addrspace(1) %out, i32 {k.i32('add', to, 4 * i)}")
        k.do(f"store <4 x i32> {words}, ptr addrspace(1) {target}, align 16")
    k.asm("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    a = np.arange(256, dtype=np.int32).reshape(16, 16)
    out = np.zeros((2, 16, 16), np.int32)
    simulate(str(k), (2,), [SimulatedTensorMap(a, a.shape, (16, 1), (8, 16)), out], 1, 4096, order, cluster=2)
    np.testing.assert_array_equal(out, [a, a])


# cp.async ----------------------------------------------------------------------------------------------------


def _stages(text, stages: int, kept: int, wait: str = "") -> str:
    """Sums rows of 128 floats that 32 threads bring in ``stages`` slots; ``kept`` groups stay in flight."""
    k = text("ptr addrspace(1) %a", "ptr addrspace(1) %out", "i32 %rows", "i32 %present")
    thread = k.thread()
    mine, other = k.i32("mul", thread, 16), k.i32("mul", k.i32("xor", thread, 1), 16)

    def copy(row: str) -> None:
        slot = k.i32("mul", k.i32("urem", row, stages), 512)
        offset = k.i32("add", k.i32("mul", row, 512), mine)
        source = k.op(f"getelementptr i8, ptr addrspace(1) %a, i32 {offset}")
        inside = k.op(f"icmp slt i32 {row}, %rows")
        size = k.op(f"select i1 {inside}, i32 %present, i32 0")
        text = "@$3 cp.async.cg.shared.global [$0], [$1], 16, $2;"
        k.asm(text, f"i32 {k.i32('add', slot, mine)}", f"ptr addrspace(1) {source}", f"i32 {size}", "i1 true")
        k.asm("cp.async.commit_group;")

    for row in range(stages - 1):
        copy(str(row))
    k.do("br label %loop")
    k.label("loop")
    k.do("%i = phi i32 [0, %entry], [%next, %loop]")
    k.do("%sum = phi <4 x float> [zeroinitializer, %entry], [%more, %loop]")
    k.asm(f"cp.async.wait_group {kept};")
    k.barrier()
    slot = k.i32("mul", k.i32("urem", "%i", stages), 512)
    place = k.op(f"inttoptr i32 {k.i32('add', slot, other)} to ptr addrspace(3)")
    read = k.op(f"load <4 x float>, ptr addrspace(3) {place}, align 16")
    k.do(f"%more = fadd <4 x float> %sum, {read}")
    copy(k.i32("add", "%i", stages - 1))
    k.do("%next = add i32 %i, 1")
    k.do(f"br i1 {k.op('icmp slt i32 %next, %rows')}, label %loop, label %end")
    k.label("end")
    target = k.at("%out", other, "i8")
    k.do(f"store <4 x float> %more, {target}, align 16")
    return str(k)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("present", [16, 12, 4, 0])
def test_copies_by_the_threads(text, stages, present) -> None:
    a = np.arange(5 * 128, dtype=np.float32).reshape(5, 128)
    out = np.zeros(128, np.float32)
    simulate(_stages(text, stages, stages - 2), (1,), [a, out, 5, present], 1, 512 * stages)
    kept = np.where(np.arange(128) % 4 < present // 4, a, 0)
    np.testing.assert_array_equal(out, kept.sum(0))


@pytest.mark.parametrize(
    "before, after, message",
    [
        ("wait_group 1", "wait_group 2", "reads byte .*, which a cp.async of warp 0 wrote"),
        (
            "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
            "",
            "reads byte .*, which a cp.async of warp 0 wrote",
        ),
        ("cp.async.commit_group", "griddepcontrol.wait", "reads byte .*, which a cp.async of warp 0 wrote"),
        ("i32 %present, i32 0", "i32 20, i32 0", "of 20 of 16 bytes"),
    ],
)
def test_mistakes_of_copies(text, before, after, message) -> None:
    llvm = _stages(text, 3, 1)
    assert before in llvm
    broken = "\n".join(line for line in llvm.replace(before, after).splitlines() if line.strip())
    with pytest.raises(SimulationError, match=message):
        simulate(broken, (1,), [np.zeros((5, 128), np.float32), np.zeros(128, np.float32), 5, 16], 1, 1536)


def _copies_to_mbarrier(text) -> str:
    """Warp 0 copies 16 bytes a lane; warp 1 waits for the mbarrier at which the copies arrive."""
    k = text("ptr addrspace(1) %a", "ptr addrspace(1) %out")
    thread = k.thread()
    k.mbarriers(thread, (0, 32))
    mine = k.i32("mul", k.i32("and", thread, 31), 16)
    place = k.i32("add", mine, TILE)
    k.do(f"br i1 {k.op(f'icmp slt i32 {thread}, 32')}, label %copy, label %read")
    k.label("copy")
    source = k.at("%a", mine, "i8")
    k.asm("cp.async.ca.shared.global [$0], [$1], 16;", f"i32 {place}", f"{source}")
    k.asm("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];", "i32 0")
    k.do("br label %end")
    k.label("read")
    k.wait("0", "0")
    from_shared = k.op(f"inttoptr i32 {place} to ptr addrspace(3)")
    words = k.op(f"load <4 x i32>, ptr addrspace(3) {from_shared}, align 16")
    target = k.at("%out", mine, "i8")
    k.do(f"store <4 x i32> {words}, {target}, align 16")
    k.do("br label %end")
    k.label("end")
    return str(k)


@pytest.mark.parametrize("order", [range, shuffled(2)])
def test_copies_arrive_at_an_mbarrier(text, order) -> None:
    a, out = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    simulate(_copies_to_mbarrier(text), (1,), [a, out], 2, 2048, order)
    np.testing.assert_array_equal(a, out)
    # An arrival of the threads themselves does not say that their copies are over.
    arrival = "mbarrier.arrive.shared::cta.b64 _, [$0]"
    early = _copies_to_mbarrier(text).replace("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0]", arrival)
    with pytest.raises(SimulationError, match="reads byte .*, which a cp.async of warp 0 wrote"):
        simulate(early, (1,), [a, out], 2, 2048, order)


# Matrices ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_of_a_warp(text, count, transposed) -> None:
    """stmatrix puts (8 * count, 8) elements down, row by row; ldmatrix gets them again."""
    k = text("ptr addrspace(1) %words", "ptr addrspace(1) %rows", "ptr addrspace(1) %again")
    thread = k.thread()
    mine = k.i32("mul", k.i32("and", thread, 8 * count - 1), 16)
    words = []
    for number in range(count):
        index = k.i32("add", thread, 32 * number)
        place = k.at("%words", index)
        words.append(k.op(f"load i32, {place}, align 4"))
    listed = ", ".join(f"${i + 1}" for i in range(count))
    suffix = ".trans" if transposed else ""
    text_ = f"stmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 [$0 + 512], {{{listed}}};"
    k.asm(text_, f"i32 {mine}", *(f"i32 {w}" for w in words))
    k.barrier()
    from_shared = k.op(f"inttoptr i32 {k.i32('add', mine, 512)} to ptr addrspace(3)")
    row = k.op(f"load <4 x i32>, ptr addrspace(3) {from_shared}, align 16")
    target = k.at("%rows", mine, "i8")
    k.do(f"store <4 x i32> {row}, {target}, align 16")
    listed = ", ".join(f"${i}" for i in range(count))
    text_ = f"ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 {{{listed}}}, [${count} + 512];"
    for number, word in enumerate(k.asm(text_, f"i32 {mine}", results=["i32"] * count)):
        index = k.i32("add", thread, 32 * number)
        place = k.at("%again", index)
        k.do(f"store i32 {word}, {place}, align 4")
    elements = np.arange(64 * count, dtype=np.int16).reshape(count, 8, 8)
    rows, again = np.zeros_like(elements), np.zeros_like(elements)
    simulate(str(k), (1,), [elements.copy(), rows, again], 1, 2048)
    np.testing.assert_array_equal(rows, elements.transpose(0, 2, 1) if transposed else elements)
    np.testing.assert_array_equal(again, elements)


def test_bfloat_boxes_keep_their_bits(text, descriptor) -> None:
    a = np.arange(128).astype(ml_dtypes.bfloat16).reshape(8, 16)
    b = np.zeros_like(a)
    maps = [SimulatedTensorMap(x, x.shape, (16, 1), x.shape, 32) for x in (a, b)]
    simulate(_box_to_box(text, descriptor, (0, 0), (0, 0), 256), (1,), maps, 1, 4096)
    np.testing.assert_array_equal(a, b)
