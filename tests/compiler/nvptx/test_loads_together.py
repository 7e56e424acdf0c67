"""How often loops wait for memory, read from machine code, and code that waits less often. No GPU is needed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target
from deuteron.compiler.targets.nvptx import Cubin, assemble, emit_ptx
from deuteron.compiler.targets.nvptx.assemble import _assemble
from deuteron.compiler.targets.nvptx.machine_code import Waits, waits_of

ARCHITECTURES = ("80", "86", "87", "89", "90", "90a", "100a", "103a", "110a", "120", "121")
PTX = """
.version 9.0
.target sm_{arch}
.address_size 64
.visible .entry kernel(.param .u64 from, .param .u64 to, .param .u32 count)
.reqntid 128
{{
    .reg .b64 %a<9>;
    .reg .b32 %r<9>;
    .reg .pred %p<3>;
    ld.param.u64 %a0, [from];
    ld.param.u64 %a1, [to];
    ld.param.u32 %r0, [count];
    cvta.to.global.u64 %a0, %a0;
    cvta.to.global.u64 %a1, %a1;
    mov.u32 %r1, 0;
    mov.u32 %r2, 0;
{before}
again:
    .pragma "nounroll";
{body}
    add.u32 %r2, %r2, %r3;
    add.u64 %a0, %a0, 4096;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, %r0;
    @%p1 bra again;
    st.global.u32 [%a1], %r2;
    ret;
}}
"""
#: What a loop does, and how it waits.
BODIES = {
    "nothing loaded": ("mov.u32 %r3, %r1;", Waits(0, 0, 0)),
    "one load": ("ld.global.u32 %r3, [%a0];", Waits(1, 1, 1)),
    "loads together": (
        "ld.global.u32 %r3, [%a0]; ld.global.u32 %r4, [%a0+512]; add.u32 %r3, %r3, %r4;",
        Waits(1, 2, 1),
    ),
    "a load that needs the one before": (
        "ld.global.u32 %r4, [%a0]; mul.wide.u32 %a2, %r4, 4; add.u64 %a2, %a2, %a0; ld.global.u32 %r3, [%a2];",
        Waits(1, 2, 2),
    ),
    "the same twice": (
        "ld.global.u32 %r4, [%a0]; mul.wide.u32 %a2, %r4, 4; add.u64 %a2, %a2, %a0; ld.global.u32 %r4, [%a2];"
        "mul.wide.u32 %a2, %r4, 4; add.u64 %a2, %a2, %a0; ld.global.u32 %r3, [%a2]; ld.global.u32 %r5, [%a2+4];"
        "add.u32 %r3, %r3, %r5;",
        Waits(1, 4, 3),
    ),
}


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", BODIES)
def test_waits_of_loops(arch: str, name: str) -> None:
    """Of loops alone: what is loaded before one counts nothing."""
    body, wanted = BODIES[name]
    target = Target.parse(f"cuda:{arch}")
    for before in ("", "ld.global.u32 %r2, [%a1];"):
        made = _assemble(PTX.format(arch=arch, body=body, before=before), target, None, False)
        assert waits_of(made.image, target.capability) == wanted


def test_of_two_loops_both_count() -> None:
    body, _ = BODIES["loads together"]
    inner = (
        'mov.u32 %r5, 0; inner: .pragma "nounroll"; '
        + body
        + """
    add.u32 %r2, %r2, %r3; add.u64 %a0, %a0, 64; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, %r0; @%p2 bra inner;"""
    )
    ptx = PTX.format(arch="90a", body="ld.global.u32 %r3, [%a0];", before=inner)
    assert waits_of(_assemble(ptx, Target.parse("cuda:90a"), None, False).image, 90) == Waits(2, 3, 2)
    # Of loops in one another the inner one.
    nested = PTX.format(arch="90a", body=inner, before="")
    assert waits_of(_assemble(nested, Target.parse("cuda:90a"), None, False).image, 90) == Waits(1, 2, 1)


def test_files_of_another_layout_say_nothing() -> None:
    """And fail no compilation: cut short, with sections elsewhere or more of them, with code of other sizes."""
    body, _ = BODIES["a load that needs the one before"]
    image = _assemble(PTX.format(arch="90a", body=body, before=""), Target.parse("cuda:90a"), None, False).image
    assert waits_of(image, 90).in_turns
    (headers,) = struct.unpack_from("<Q", image, 0x28)
    count, names = struct.unpack_from("<HH", image, 0x3C)
    others = [image[:size] for size in (0, 4, 0x30, len(image) // 2)]
    others += [image[:at] + struct.pack("<Q", 1 << 63) + image[at + 8 :] for at in (0x28, headers + 64 * names + 24)]
    others.append(image[:0x3C] + struct.pack("<HH", count, count) + image[0x40:])
    others.append(image[:0x3C] + struct.pack("<H", 0xFFFF) + image[0x3E:])
    sizes = [headers + 64 * number + 32 for number in range(count)]
    others.append(_with_each(image, sizes, 1000 * 16 + 8))
    for other in others:
        assert waits_of(other, 90) == Waits(0, 0, 0)


def _with_each(image: bytes, places: Sequence[int], number: int) -> bytes:
    """``image`` with ``number`` in each of ``places``."""
    made = bytearray(image)
    for place in places:
        struct.pack_into("<Q", made, place, number)
    return bytes(made)


EXPONENTIALS = """
def online(x, out, N, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = tl.full((B,), -1e30, tl.float32)
    total = tl.zeros((B,), tl.float32)
    for start in range(0, N, B):
        c = start + tl.arange(0, B)
        value = tl.load(x + row * N + c, mask=c < N, other=-1e30).to(tl.float32)
        new = tl.maximum(best, value)
        total = total * tl.exp(best - new) + tl.exp(value - new)
        best = new
    top = tl.max(best)
    tl.store(out + row, top + tl.log(tl.sum(total * tl.exp(best - top))))
"""


@pytest.fixture
def exponentials(from_text: Callable[..., Any]) -> tuple[str, Target]:
    target = Target.parse("cuda:90a")
    made = from_text(EXPONENTIALS, {"x": "*bf16:16", "out": "*fp32:16", "N": "i32:16"}, {"B": 2048})
    return emit_ptx(made.program("cuda:90a"), target), target


def turns(made: Cubin) -> int:
    return waits_of(made.image, 90).turns


def test_loads_of_a_loop_are_begun_together(exponentials: tuple[str, Target]) -> None:
    ptx, target = exponentials
    plain, made = _assemble(ptx, target, None, False), assemble(ptx, target, Schedule())
    assert (turns(plain), turns(made)) == (2, 1)
    assert made.spill_bytes == 0
    assert made.registers is not None and plain.registers is not None
    # An SM holds one CTA less at most.
    assert 65536 // (128 * made.registers) >= 65536 // (128 * plain.registers) - 1


def test_registers_that_the_author_chose_are_kept(exponentials: tuple[str, Target]) -> None:
    ptx, target = exponentials
    told = ptx.replace(".reqntid 128\n", ".reqntid 128\n.maxnreg 56\n")
    assert assemble(told, target, Schedule(maxnreg=56)).image == _assemble(told, target, None, False).image
