"""wgmma: where its operands lie in shared memory and registers, and what must not be touched in flight."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from simulator import SimulatedTensorMap, SimulationError, simulate

_BARRIER = 0
_TILES = 1024
_SWIZZLE_BITS = {0: 0, 128: 1, 64: 2, 32: 3}
_RESULTS = {"f32": ("float", np.float32), "s32": ("i32", np.int32), "f16": ("i32", np.float16)}
#: A descriptor of 2048 bytes from address 0: core matrices side by side along k, then along rows.
_SPREAD = 128 // 16 << 16 | 256 // 16 << 32
_DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "s8": np.int8,
    "u8": np.uint8,
}


@dataclass
class Operand:
    """A matrix (rows, depth) as TMA brings it, and how its descriptors are.

    Loaded by boxes as wide as the swizzle (16 bytes without), one after the other: the outermost dimension.
    """

    matrix: np.ndarray
    swizzle: int
    transposed: bool

    def __post_init__(self) -> None:
        stored = np.ascontiguousarray(self.matrix.T if self.transposed else self.matrix)
        outer, inner = stored.shape
        item = self.matrix.dtype.itemsize
        wide = (self.swizzle or 16) // item
        box = (inner // wide, outer, wide)
        self.map = SimulatedTensorMap(stored, box, (wide, inner, 1), box, self.swizzle)
        self.row, self.panel = wide * item, outer * wide * item

    def bits(self, place: int, step: int) -> int:
        """The descriptor of depth ``step`` (32 bytes each) of the matrix at ``place``."""
        if self.transposed:
            start = step * 32 // self.matrix.dtype.itemsize * self.row
            leading, stride = (self.panel, 8 * self.row) if self.swizzle else (8 * self.row, self.panel)
        else:
            start = step * 32 // self.row * self.panel + step * 32 % self.row
            leading, stride = self.panel, 8 * self.row
        bits = (place + start) >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32
        bits |= _SWIZZLE_BITS[self.swizzle] << 62
        return bits - (1 << 64) if bits >> 63 else bits


def _product(text, descriptor, a, b, kinds, swizzles, transposes=(False, False), registers=False) -> tuple[str, list]:
    """A kernel of one warp group that multiplies a (64, k) and b (n, k); its text and arguments."""
    out, kind = kinds
    word, dtype = _RESULTS[out]
    n, depth = b.shape
    per_step = 32 // a.dtype.itemsize
    left, right = (Operand(x, s, t) for x, s, t in zip((a, b), swizzles, transposes, strict=True))
    place_b = _TILES + -(-left.map.bytes // 1024) * 1024
    k = text(descriptor("%a"), descriptor("%b"), "ptr addrspace(1) %words", "ptr addrspace(1) %c")
    thread = k.thread()
    k.mbarriers(thread, (_BARRIER, 1))

    def load() -> None:
        k.expect(str(_BARRIER), left.map.bytes + right.map.bytes)
        k.load_box(str(_TILES), "%a", ["0", "0", "0"], str(_BARRIER))
        k.load_box(str(place_b), "%b", ["0", "0", "0"], str(_BARRIER))

    k.only(k.op(f"icmp eq i32 {thread}, 0"), "load", load)
    k.wait(str(_BARRIER), "0")
    count = n // (4 if out == "f16" else 2)
    acc = ["0.0" if word == "float" else "7"] * count  # scale-d 0 makes the first product forget it
    words: list[list[str]] = []
    if registers:
        for step in range(depth // per_step):
            first = k.i32("mul", thread, 4 * depth // per_step)
            indices = [k.i32("add", first, 4 * step + i) for i in range(4)]
            places = [k.op(f"getelementptr i32, ptr addrspace(1) %words, i32 {i}") for i in indices]
            words.append([k.op(f"load i32, ptr addrspace(1) {place}, align 4") for place in places])
    k.asm("wgmma.fence.sync.aligned;")
    results = ", ".join(f"${i}" for i in range(count))
    for step in range(depth // per_step):
        end = "" if out == "s32" else ", 1, 1"
        if a.dtype.itemsize == 2:
            end += f", {transposes[1]:d}" if registers else f", {transposes[0]:d}, {transposes[1]:d}"
        bits_b = f"i64 {right.bits(place_b, step)}"
        if registers:
            first = "{" + ", ".join(f"${count + i}" for i in range(4)) + "}"
            operands = [*(f"i32 {w}" for w in words[step]), bits_b]
        else:
            first = f"${count}"
            operands = [f"i64 {left.bits(_TILES, step)}", bits_b]
        last = count + len(operands)
        acc = k.asm(
            f"{{ .reg .pred p; setp.ne.b32 p, ${last}, 0; wgmma.mma_async.sync.aligned.m64n{n}k{per_step}"
            f".{out}.{kind}.{kind} {{{results}}}, {first}, ${last - 1}, p{end}; }}",
            *operands,
            f"i32 {int(step > 0)}",
            results=[word] * count,
            tied=[f"{word} {x}" for x in acc],
        )
    k.asm("wgmma.commit_group.sync.aligned;")
    acc = k.asm("wgmma.wait_group.sync.aligned 0;", results=[word] * count, tied=[f"{word} {x}" for x in acc])
    row = k.i32("add", k.i32("lshr", k.i32("and", thread, 31), 2), k.i32("mul", k.i32("lshr", thread, 5), 16))
    column = k.i32("mul", k.i32("and", thread, 3), 2)
    per_word = 2 if out == "f16" else 1
    for i, x in enumerate(acc):
        i *= per_word
        r, c = k.i32("add", row, 8 * (i >> 1 & 1)), k.i32("add", column, 8 * (i >> 2) + (i & 1))
        index = k.i32("add", k.i32("mul", r, n), c)
        kept = "half" if out == "f16" else word
        place = k.op(f"getelementptr {kept}, ptr addrspace(1) %c, i32 {index}")
        k.do(f"store {word} {x}, ptr addrspace(1) {place}, align 4")
    return str(k), [left.map, right.map, _fragments(a), np.zeros((64, n), dtype)]


def _fragments(a: np.ndarray) -> np.ndarray:
    """(128, words): A as the threads hold it, by the figures of the PTX ISA (matrix fragments of m64nNkK)."""
    item, depth = a.dtype.itemsize, a.shape[1]
    per_word, per_step = 4 // item, 32 // item
    held = np.zeros((128, depth // per_step, 4, per_word), a.dtype)
    for thread in range(128):
        row, quarter = thread // 32 * 16 + thread % 32 // 4, thread % 4
        for step in range(depth // per_step):
            for word in range(4):
                k = step * per_step + quarter * per_word + (word // 2) * 4 * per_word
                held[thread, step, word] = a[row + 8 * (word % 2), k : k + per_word]
    return held.reshape(128, -1).view(np.int32)


def _operands(kind: str, n: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(n + depth)
    low = 0 if kind == "u8" else -3
    return tuple(random.integers(low, 4, (rows, depth)).astype(_DTYPES[kind]) for rows in (64, n))


def _check(text, descriptor, kinds, swizzles, n=32, depth=64, **form) -> None:
    a, b = _operands(kinds[1], n, depth)
    llvm, arguments = _product(text, descriptor, a, b, kinds, swizzles, **form)
    simulate(llvm, (1,), arguments, 4, 1 << 16)
    np.testing.assert_array_equal(arguments[-1], a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize("swizzles", [(128, 128), (64, 128), (32, 32), (0, 0), (64, 0)])
@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
def test_operands_in_shared_memory(text, descriptor, swizzles, transposes) -> None:
    _check(
        text, descriptor, ("f32", "bf16"), swizzles, n=128, depth=64 if 128 in swizzles else 32, transposes=transposes
    )


@pytest.mark.parametrize(
    "kinds, depth",
    [(("f32", "f16"), 64), (("f16", "f16"), 64), (("f32", "tf32"), 32), (("f32", "e4m3"), 128), (("s32", "s8"), 128),
     (("s32", "u8"), 128)],
)  # fmt: skip
@pytest.mark.parametrize("registers", [False, True])
def test_element_types(text, descriptor, kinds, depth, registers) -> None:
    _check(text, descriptor, kinds, (128, 128), depth=depth, registers=registers)


def test_a_in_registers_and_b_transposed(text, descriptor) -> None:
    _check(text, descriptor, ("f32", "bf16"), (128, 64), registers=True, transposes=(False, True))


def _broken(text, descriptor, before: str, after: str, count: int = 1) -> None:
    a, b = _operands("bf16", 32, 64)
    llvm, arguments = _product(text, descriptor, a, b, ("f32", "bf16"), (128, 128))
    assert before in llvm
    simulate(llvm.replace(before, after, count), (1,), arguments, 4, 1 << 16)


def test_registers_in_flight(text, descriptor) -> None:
    with pytest.raises(SimulationError, match="an accumulator of warp 0 is used while its wgmma is in flight"):
        _broken(text, descriptor, "wait_group.sync.aligned 0", "wait_group.sync.aligned 1")


def test_products_that_were_not_committed(text, descriptor) -> None:
    with pytest.raises(SimulationError, match="is used while its wgmma is in flight"):
        _broken(text, descriptor, "wgmma.commit_group", "wgmma.fence")


def test_registers_without_a_fence(text, descriptor) -> None:
    with pytest.raises(SimulationError, match="with no wgmma.fence"):
        _broken(text, descriptor, "wgmma.fence.sync.aligned;", "griddepcontrol.wait;")


def test_operands_that_nobody_waited_for(text, descriptor) -> None:
    with pytest.raises(SimulationError, match="a wgmma of warps 0-3 reads byte .*, which a TMA load .* wrote"):
        _broken(text, descriptor, "i32 0, i32 0) convergent\n  call void asm sideeffect \"wgmma.fence",
                "i32 0, i32 1) convergent\n  call void asm sideeffect \"wgmma.fence")  # fmt: skip


@pytest.mark.parametrize("by", ["st", "cp.async"])
@pytest.mark.parametrize("fence", ["before", "after", "never"])
def test_operands_that_threads_wrote(text, by, fence) -> None:
    """What ordinary instructions and cp.async wrote, wgmma reads beyond a proxy fence on either side of a barrier."""
    k = text("ptr addrspace(1) %a")
    thread = k.thread()
    offset = k.i32("mul", thread, 16)
    if by == "st":
        place = k.op(f"inttoptr i32 {offset} to ptr addrspace(3)")
        k.do(f"store <4 x i32> zeroinitializer, ptr addrspace(3) {place}, align 16")
    else:
        source = k.at("%a", offset, "i8")
        k.asm("cp.async.cg.shared.global [$0], [$1], 16, $2;", f"i32 {offset}", source, "i32 16")
        k.asm("cp.async.wait_all;")
    if fence == "before":
        k.asm("fence.proxy.async.shared::cta;")
    k.barrier()
    if fence == "after":
        k.asm("fence.proxy.async.shared::cta;")
    k.asm("wgmma.fence.sync.aligned;")
    k.asm(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, $4, $5, 0, 1, 1, 0, 0;",
        f"i64 {_SPREAD}", f"i64 {_SPREAD}", results=["float"] * 4, tied=["float 0.0"] * 4,
    )  # fmt: skip
    k.asm("wgmma.commit_group.sync.aligned;")
    k.asm("wgmma.wait_group.sync.aligned 0;")
    arguments = (str(k), (1,), [np.zeros(1024, np.int16)], 4, 2048)
    if fence == "never":
        who = "thread 0" if by == "st" else "a cp.async of warp 0"
        with pytest.raises(SimulationError, match=f"reads byte 0x0, which {who} wrote, with no fence.proxy.async"):
            simulate(*arguments)
    else:
        simulate(*arguments)


def test_warps_of_a_group_that_disagree(text, descriptor) -> None:
    k = text()
    thread = k.thread()
    warp = k.op(f"lshr i32 {thread}, 5")
    bits = k.op(f"zext i32 {warp} to i64")
    k.asm("wgmma.fence.sync.aligned;")
    k.asm(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, $4, $5, 0, 1, 1, 0, 0;",
        f"i64 {bits}", "i64 0", results=["float"] * 4, tied=["float 0.0"] * 4,
    )  # fmt: skip
    with pytest.raises(SimulationError, match="warp 1 starts another wgmma than warp 0"):
        simulate(str(k), (1,), [], 4, 1024)
    with pytest.raises(SimulationError, match="is not one of a group of four"):
        simulate(str(k), (1,), [], 3, 1024)


def test_a_warp_that_leaves_its_group_alone(text) -> None:
    k = text()

    def product() -> None:
        k.asm("wgmma.fence.sync.aligned;")
        k.asm(
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, $4, $5, 0, 1, 1, 0, 0;",
            "i64 0", "i64 0", results=["float"] * 4, tied=["float 0.0"] * 4,
        )  # fmt: skip
        k.asm("wgmma.commit_group.sync.aligned;")

    k.only(k.op(f"icmp slt i32 {k.thread()}, 96"), "some", product)
    with pytest.raises(SimulationError, match="have not all started the same wgmma"):
        simulate(str(k), (1,), [], 4, 1024)
    waiting = str(k).replace(
        "label %some_end\nsome_end:", "label %some_wait\nsome_wait:\n  WAIT\n  br label %some_end\nsome_end:"
    )
    wait = 'call void asm sideeffect "wgmma.wait_group.sync.aligned 0;", "~{memory}"() convergent'
    with pytest.raises(SimulationError, match="warp 0 waits at wgmma.wait_group 0; others of its four warps"):
        simulate(waiting.replace("WAIT", wait), (1,), [], 4, 1024)
