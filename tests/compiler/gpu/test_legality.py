"""Which schedules a kernel can have, and what becomes of those that it can have only in part."""

from __future__ import annotations

from textwrap import indent

import pytest

from deuteron.compiler import KernelSource, compile
from deuteron.compiler.errors import IllegalSchedule
from deuteron.compiler.gpu.legality import RULES, KernelTraits, objection, traits_of
from deuteron.compiler.hardware import MOST_THREADS, REGISTER_FILE
from deuteron.compiler.ir.parser import parse_function
from deuteron.compiler.options import SCHEDULE_OPTIONS, Schedule
from deuteron.compiler.runtime.launch.compiled import CompiledKernel

TEXT = """
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, K, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    m, n = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for k in range(0, K, 64):
        i = k + tl.arange(0, 64)
        left = tl.load(a + m[:, None] * K + i[None, :], mask=i[None, :] < K, other=0.0)
        total = tl.dot(left, tl.load(b + i[:, None] * BLOCK + n[None, :], mask=i[:, None] < K, other=0.0), total)
    tl.store(c + m[:, None] * BLOCK + n[None, :], total)


@triton.jit
def turns(a, b, c, K, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    while tl.atomic_add(c, 0.0) < tl.program_id(0):
        pass
    tl.atomic_add(c, 1.0)
"""


def built(
    name: str, *, rows: int = 128, block: int = 128, target: str = "cuda:90a", stage: str = "gpu", **options: object
) -> CompiledKernel:
    signature = {"a": "*f16:16", "b": "*f16:16", "c": "*f32:16", "K": "i32:16"}
    source = KernelSource.from_text(TEXT, name)
    return compile(source, signature, {"ROWS": rows, "BLOCK": block}, target, stop_after=stage, **options)  # type: ignore[arg-type]


def test_rules_are_about_options() -> None:
    assert set(RULES) <= set(SCHEDULE_OPTIONS)


@pytest.mark.parametrize(
    ("schedule", "traits", "message", "hint"),
    [
        (Schedule(persistent=True), KernelTraits(waits=True), "what it reads from memory", "persistent = False"),
        (Schedule(num_warps=8, maxnreg=255), KernelTraits(), None, None),
        (Schedule(num_warps=16, maxnreg=128), KernelTraits(), None, None),
        (Schedule(num_warps=16, maxnreg=136), KernelTraits(), "num_warps = 16", "at most 128"),
        (Schedule(num_warps=32, maxnreg=255), KernelTraits(), "num_warps = 32", "at most 64"),
        (Schedule(persistent=True), KernelTraits(), None, None),
        (Schedule(), KernelTraits(waits=True), None, None),
    ],
)
def test_objections(schedule: Schedule, traits: KernelTraits, message: str | None, hint: str | None) -> None:
    assert objection(schedule, "cpu", traits) is None  # the options have no effect there
    found = objection(schedule, "cuda", traits)
    if message is None:
        assert found is None
    else:
        assert found is not None and message in found.message
        assert hint in str(found.hint)


def test_the_compiler_raises_what_the_rules_say() -> None:
    with pytest.raises(IllegalSchedule, match=r"turns: persistent = True .* reads from memory"):
        built("turns", persistent=True)
    with pytest.raises(IllegalSchedule, match="product: maxnreg = 255"):
        built("product", num_warps=16, maxnreg=255)
    for target in ("cpu", "cuda:80"):
        built("turns", target=target, stage="llvm")
    built("turns", target="cpu", stage="llvm", persistent=True)


def test_no_stages_are_one_and_too_many_are_as_many_as_fit() -> None:
    code = {stages: str(built("product", stage="gpu", num_stages=stages).asm["gpu"]) for stages in (0, 1, 16, 40)}
    assert code[0] == code[1] != code[16] == code[40]


WAITING = """
import triton, triton.language as tl
@triton.jit
def kernel(p, flag, n, B: tl.constexpr):
    at = tl.arange(0, B)
BODY
"""


@pytest.mark.parametrize(
    ("body", "waits"),
    [
        ("tl.atomic_add(p + at, 1)", False),
        ("if tl.atomic_add(flag, 1) == n - 1:\n    tl.store(p, 0)", False),  # the last one to come: none is waited for
        ("while tl.atomic_cas(flag, 0, 1) == 1:\n    pass", True),
        ("while tl.load(flag, volatile=True) == 0:\n    pass", True),
        (
            "i = n\nwhile i != 0:\n    i = tl.load(flag + i)\ntl.store(p, i)",
            True,
        ),  # a list, or a wait that looks like one
        ("i = 0\nwhile i < n:\n    tl.store(p + i, tl.load(p + i) + 1)\n    i += 1", False),
        ("i = tl.load(p)\nwhile i < n:\n    i += 1\ntl.store(p, i)", False),  # read once, before
        ("i, s = 0, 0\nwhile i < n:\n    s += tl.load(p + i)\n    i += 1\ntl.store(p, s)", False),
        ("i, s = 0, 0\nwhile i < n:\n    s += tl.load(p + i)\n    if s < 9:\n        i += 1\ntl.store(p, i)", True),
        ("i = 0\nwhile i < n:\n    for k in range(3):\n        i += tl.load(p + k)\ntl.store(p, i)", True),
        ("i = 0\nwhile i < n:\n    for k in range(tl.load(p)):\n        i += 1\ntl.store(p, i)", True),
        (
            "i = 0\nwhile i < n:\n"
            "    i = tl.inline_asm_elementwise('ld.global.s32 $0, [$1];', '=r,l', [flag], tl.int32, False, 1)",
            True,
        ),
        ("tl.store(p, tl.inline_asm_elementwise('mov.u32 $0, $1;', '=r,r', [n], tl.int32, False, 1))", False),
        (
            "tl.inline_asm_elementwise('again: ld.acquire.gpu.global.s32 $0, [$1]; setp.eq.s32 %p, $0, 0;"
            " @%p bra again;', '=r,l', [flag], tl.int32, False, 1)",
            True,
        ),
    ],
)
def test_what_may_wait_for_another_program(body: str, waits: bool) -> None:
    text = WAITING.replace("BODY", indent(body, "    "))
    source = KernelSource.from_text(text, "kernel")
    tile = compile(source, {"p": "*i32", "flag": "*i32", "n": "i32"}, {"B": 64}, "cuda:90a", stop_after="tile").asm[
        "tile"
    ]
    assert traits_of(parse_function(str(tile))).waits == waits
    if not waits:
        assert objection(Schedule(persistent=True), "cuda", KernelTraits(waits)) is None


@pytest.mark.parametrize(
    ("options", "producer", "moves"),
    [
        ({"num_warps": 8}, True, True),
        ({"num_warps": 8, "maxnreg": 168}, True, False),
        ({"num_warps": 8, "maxnreg": 255}, False, False),
        ({"num_warps": 16, "rows": 256}, True, True),
        ({"num_warps": 32, "rows": 512, "block": 64}, False, False),
    ],
)
def test_a_block_always_has_room_for_its_threads(options: dict[str, int], producer: bool, moves: bool) -> None:
    """Registers that an author limits stay as they are: setmaxnreg would wait for ever for some that nobody has."""
    made = built("product", stage="llvm", **options)
    text, threads = str(made.asm["llvm"]), made.metadata.num_threads
    assert threads == 32 * (options["num_warps"] + (4 if producer else 0)) <= MOST_THREADS
    assert options.get("maxnreg", 0) * threads <= REGISTER_FILE
    assert ("setmaxnreg.inc" in text) == moves


@pytest.mark.parametrize(
    ("target", "asked", "slots"),
    [
        ("cuda:90a", 2, 4),  # and one that each of two warp groups is at
        ("cuda:90a", 4, 5),  # as the results of a program that goes on lie beside them
        ("cuda:90a", 16, 6),  # 227 KiB hold six times 32 KiB, beside the results of a program that goes on
        ("cuda:90a", 1, 0),
        ("cuda:80", 16, 5),  # 163 KiB; the result passes through slots that are idle by then
        ("cpu", 16, None),
    ],
)
def test_rings_have_as_many_slots_as_fit_and_the_metadata_says_how_many(target: str, asked: int, slots: int) -> None:
    made = built("product", target=target, stage="llvm", num_stages=asked, num_warps=8)
    assert made.metadata.num_slots == slots
    assert made.metadata.num_stages == asked
