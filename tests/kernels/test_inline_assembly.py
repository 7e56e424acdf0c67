"""Inline assembly: simulated and assembled for GPUs, refused elsewhere, and what is wrong with it said in time."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import AssemblerError, CompilationError, UnsupportedOp
from deuteron.compiler.targets import assembler
from deuteron.compiler.targets.assembler import newest_ptx


@triton.jit
def shift(x, y, out, N: tl.constexpr, BY: tl.constexpr):
    i = tl.arange(0, N)
    made = tl.inline_asm_elementwise(
        "shf.l.wrap.b32 $0, $1, $2, $3;",
        "=r,r, r, r",
        [tl.load(x + i), tl.load(y + i), BY],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    tl.store(out + i, made)


@triton.jit
def flip_bits(x, y, out, N: tl.constexpr, PACK: tl.constexpr):
    """Elements below 32 bits share registers; ``y`` broadcasts."""
    i = tl.arange(0, N)
    made = tl.inline_asm_elementwise(
        "xor.b32 $0, $1, $2;", "=r,r,r", [tl.load(x + i), tl.load(y)], tl.int8, is_pure=True, pack=PACK
    )
    tl.store(out + i, made)


@triton.jit
def scale(x, out, N: tl.constexpr):
    """A register of floats, and one number for all; the result is read twice."""
    i = tl.arange(0, N)
    made = tl.inline_asm_elementwise("mul.f32 $0, $1, $2;", "=f,f,f", [tl.load(x + i), 2.5], tl.float32, True, 1)
    tl.store(out + i, made + made)


@triton.jit
def shift_one(x, out):
    """Scalars."""
    v = tl.load(x)
    tl.store(out, tl.inline_asm_elementwise("shf.l.wrap.b32 $0, $1, $2, $3;", "=r,r,r,r", [v, v, 8], tl.int32, True, 1))


@triton.jit
def numbers(x, out, N: tl.constexpr):
    """Operands that stand in the text."""
    x = tl.load(x + tl.arange(0, N))
    turned = tl.inline_asm_elementwise("shf.l.wrap.b32 $0, $1, $2, $3;", "=r,r,r,n", [x, x, 5], tl.int32, True, 1)
    made = tl.inline_asm_elementwise("xor.b32 $0, $1, $2;", "=r,r,i", [turned, 0x000F00F0], tl.int32, True, 1)
    tl.store(out + tl.arange(0, N), made)


@triton.jit
def nibbles(x, low, high, N: tl.constexpr):
    """A table of truth, which is no operand of another kind, and 64 bits."""
    i = tl.arange(0, N)
    a, b = tl.inline_asm_elementwise(
        "{ .reg .b32 t; lop3.b32 t, $2, $3, $4, $5; mov.b32 {$0, $1}, t; }",
        "=h,=h,r,n,n,n",
        [tl.load(x + i), 0x000F000F, 0x01000100, (0xF0 & 0xCC) | 0xAA],
        (tl.int16, tl.int16),
        is_pure=True,
        pack=1,
    )
    far = tl.inline_asm_elementwise("add.s64 $0, $1, $2;", "=l,l,n", [b.to(tl.int64), 1 << 40], tl.int64, True, 1)
    tl.store(low + i, a)
    tl.store(high + i, far)


@triton.jit
def unpack(x, y, wide, larger, N: tl.constexpr):
    """Two results of other types, four elements at a time, several instructions."""
    i = tl.arange(0, N)
    c, d = tl.inline_asm_elementwise(
        asm="""
        {
            .reg .b8 t<4>;
            mov.b32 {t0, t1, t2, t3}, $8;
            cvt.u32.u8 $0, t0;
            cvt.u32.u8 $1, t1;
            cvt.u32.u8 $2, t2;
            cvt.u32.u8 $3, t3;
        }
        cvt.rn.f32.s32 $4, $0;
        cvt.rn.f32.s32 $5, $1;
        cvt.rn.f32.s32 $6, $2;
        cvt.rn.f32.s32 $7, $3;
        max.f32 $4, $4, $9;
        max.f32 $5, $5, $10;
        max.f32 $6, $6, $11;
        max.f32 $7, $7, $12;
        """,
        constraints="=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,r,r,r,r,r",
        args=[tl.load(x + i), tl.load(y + i)],
        dtype=(tl.int32, tl.float32),
        is_pure=True,
        pack=4,
    )
    tl.store(wide + i, c)
    tl.store(larger + i, d)


@triton.jit
def everything(h, s, l, d, p, out, N: tl.constexpr):  # noqa: E741
    """Each kind of register, a tied operand, a clobber, effects, booleans, pointers and 16 bits in a register of 32."""
    i = tl.arange(0, N)
    half = tl.inline_asm_elementwise("add.f16 $0, $1, $1;", "=h,h", [tl.load(h + i)], tl.float16, True, 1)
    brain = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(s + i)], tl.bfloat16, True, 1)
    long = tl.inline_asm_elementwise("add.s64 $0, $0, 1;", "=l,0", [tl.load(l + i)], tl.int64, True, 1)
    double = tl.inline_asm_elementwise("neg.f64 $0, $1;", "=d,d", [tl.load(d + i)], tl.float64, True, 1)
    flag = tl.inline_asm_elementwise("xor.b32 $0, $1, 1;", "=r,r", [half > 1], tl.int1, True, 1)
    where = tl.inline_asm_elementwise(
        "ld.global.b32 $0, [$1];", "=r,l,~{memory}", [p + i], tl.float32, is_pure=False, pack=1
    )
    sleep: tl.constexpr = "{ nanosleep.u32 $1; bra.uni $$next; $$next: mov.u32 $0, 0; }"
    tl.inline_asm_elementwise(sleep, "=r,r", [20], tl.int32, is_pure=False, pack=1)
    clock = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], tl.int64, is_pure=False, pack=1)
    tl.device_assert(clock > 0)
    tl.store(out + i, half + brain + long + double + tl.where(flag, where, 0.0))


def simulated(launch: Any, request: pytest.FixtureRequest) -> bool:
    return request.node.callspec.params["launch"] in ("ptx", "cuda")


@pytest.mark.parametrize("size", [8, 256])
def test_one_element_at_a_time(launch, request, rng, size):
    x, y = (rng.integers(-(2**31), 2**31, size).astype(np.int32) for _ in range(2))
    args = x, y, np.zeros_like(x)
    if not simulated(launch, request):
        with pytest.raises(UnsupportedOp, match="inline assembly is that of GPUs"):
            launch(shift, (1,), *args, N=size, BY=5)
        return
    whole = y.astype(np.uint32).astype(np.uint64) << np.uint64(32) | x.astype(np.uint32).astype(np.uint64)
    want = (whole << np.uint64(5) >> np.uint64(32)).astype(np.uint32).view(np.int32)
    np.testing.assert_array_equal(launch(shift, (1,), *args, N=size, BY=5)[2], want)


@pytest.mark.parametrize("pack", [1, 2, 4])
@pytest.mark.parametrize("size", [2, 32, 512])
def test_packed_elements(launch, request, rng, pack, size):
    if not simulated(launch, request):
        pytest.skip("assembly is that of GPUs")
    x, y = rng.integers(-128, 128, size).astype(np.int8), np.array([0x5A], np.int8)
    got = launch(flip_bits, (1,), x, y, np.zeros_like(x), N=size, PACK=pack)[2]
    np.testing.assert_array_equal(got, x ^ y)


def test_floats_and_scalars(launch, request, normal):
    if not simulated(launch, request):
        pytest.skip("assembly is that of GPUs")
    x = normal(64)
    np.testing.assert_array_equal(launch(scale, (1,), x, np.zeros_like(x), N=64)[1], x * np.float32(5))
    one = np.array([0x01020304], np.int32)
    assert launch(shift_one, (1,), one, np.zeros_like(one))[1][0] == 0x02030401


@pytest.mark.parametrize("size", [8, 256])
def test_numbers_in_the_text(launch, request, rng, size):
    if not simulated(launch, request):
        pytest.skip("assembly is that of GPUs")
    x = rng.integers(-(2**31), 2**31, size).astype(np.int32)
    turned = (x.astype(np.uint32) << 5 | x.astype(np.uint32) >> 27) ^ np.uint32(0x000F00F0)
    np.testing.assert_array_equal(launch(numbers, (1,), x, np.zeros_like(x), N=size)[1], turned.view(np.int32))


def test_numbers_that_have_to_stand_in_the_text():
    types = {"x": "*i32:16", "low": "*i16:16", "high": "*i64:16"}
    code = triton.compile(nibbles, types, {"N": 128}, "cuda:90a").asm["ptx"]
    assert re.search(r"lop3.b32 t, %r\d+, 983055, 16777472, 234;", code)
    assert re.search(rf"add.s64 %rd\d+, %rd\d+, {1 << 40};", code)


@pytest.mark.gpu
def test_on_a_gpu(rng, normal):
    import deuteron

    device = deuteron.get_device("cuda:0")
    x, y = rng.integers(0, 256, 256).astype(np.uint8), normal(256) * 100
    held = [device.array(a) for a in (x, y, np.zeros(256, np.int32), np.zeros(256, np.float32))]
    unpack[(1,)](*held, N=256)
    np.testing.assert_array_equal(held[2].to_numpy(), x)
    np.testing.assert_array_equal(held[3].to_numpy(), np.maximum(x, y))
    n = np.arange(64)
    kinds = np.float16, ml_dtypes.bfloat16, np.int64, np.float64, np.float32
    held = [device.array(a) for a in (*(n.astype(k) for k in kinds), np.zeros(64, np.float64))]
    everything[(1,)](*held, N=64)
    np.testing.assert_array_equal(held[-1].to_numpy(), 2 * n + n + (n + 1) - n + np.where(2 * n > 1, 0, n))


@triton.jit
def where_and_when(out, before):
    tl.store(before + tl.program_id(0), tl.extra.cuda.globaltimer())
    tl.store(out + tl.program_id(0), tl.extra.cuda.smid())


@pytest.mark.gpu
def test_where_and_when_programs_run():
    import deuteron

    device = deuteron.get_device("cuda:0")
    count = device.properties.sm_count
    out, before = device.array(np.full(4 * count, -1, np.int32)), device.array(np.zeros(4 * count, np.int64))
    times = []
    for _ in range(2):
        where_and_when[(4 * count,)](out, before)
        times.append(before.to_numpy())
        assert set(out.to_numpy()) <= set(range(count))
    assert len(set(out.to_numpy())) > count // 2
    assert times[0].min() > 0
    assert times[1].min() >= times[0].max()


def test_registers_are_read_where_they_stand():
    made = triton.compile(where_and_when, {"out": "*i32:16", "before": "*i64:16"}, {}, target="cuda:90a")
    ptx = str(made.asm["ptx"])
    assert ptx.index("%globaltimer") < ptx.index("%smid")
    with pytest.raises(UnsupportedOp, match="inline assembly is that of GPUs"):
        triton.compile(where_and_when, {"out": "*i32:16", "before": "*i64:16"}, {}, target="cpu")


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:100a"])
def test_every_register_assembles(target):
    pointers = dict(zip("hsldp", ("*fp16:16", "*bf16:16", "*i64:16", "*fp64:16", "*fp32:16"), strict=True))
    made = triton.compile(everything, {**pointers, "out": "*fp64:16"}, {"N": 256}, target=target)
    ptx = str(made.asm["ptx"])
    assert made.metadata.spills == 0
    assert ptx.count("nanosleep.u32") == 1
    assert "ld.global.b32" in ptx
    assert ptx.count("%globaltimer") == 1
    signature = {"x": "*u8:16", "y": "*fp32:16", "wide": "*i32:16", "larger": "*fp32:16"}
    made = triton.compile(unpack, signature, {"N": 512}, target=target)
    assert str(made.asm["ptx"]).count("cvt.rn.f32.s32") == 4
    assert len(made.asm["cubin"]) > 0


@triton.jit
def round_by_chance(x, bits, out, N: tl.constexpr):
    """Of PTX 8.7, where code for sm_100a is of 8.6."""
    i = tl.arange(0, N)
    value = tl.load(x + i)
    asm: tl.constexpr = "cvt.rs.bf16x2.f32 $0, $1, $1, $2;"
    pair = tl.inline_asm_elementwise(asm, "=r,f,r", [value, tl.load(bits + i)], tl.int32, is_pure=True, pack=1)
    tl.store(out + i, pair)


SIGNATURE = {"x": "*fp32:16", "bits": "*i32:16", "out": "*i32:16"}


@pytest.mark.skipif(newest_ptx() < 87, reason="an assembler of CUDA 12.8 or newer")
def test_instructions_may_be_newer_than_the_code_around_them():
    made = triton.compile(round_by_chance, SIGNATURE, {"N": 128}, target="cuda:100a")
    assert len(made.asm["cubin"]) > 0
    said = f".version {newest_ptx() // 10}.{newest_ptx() % 10}\n"
    assert said in str(made.asm["ptx"])


@pytest.mark.parametrize(
    ("identity", "version"),
    [
        ("ptxas 12.6.85 compiler.35059454_0", "8.6"),  # which reads 8.5: less than what the code generator needs
        ("ptxas 12.9.86 compiler.36037853_0", "8.8"),
        ("nvJitLink 13.0", "9.0"),
        ("ptxas 14.2.1 compiler.1_0", "9.1"),  # not known, and no older
        ("ptxas sha256 0123", "8.6"),
        ("absent", "8.6"),
    ],
)
def test_the_version_is_the_newest_that_the_assembler_reads(monkeypatch, identity: str, version: str):
    monkeypatch.setattr(assembler, "assembler_identity", lambda: identity)
    made = triton.compile(round_by_chance, SIGNATURE, {"N": 64}, target="cuda:100a", stop_after="ptx")
    assert f".version {version}\n" in str(made.asm["ptx"])


@triton.jit
def wrong(x, ASM: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr):
    v = tl.load(x + tl.arange(0, 64))
    tl.store(x + tl.arange(0, 64), tl.inline_asm_elementwise(ASM, CONSTRAINTS, [v], tl.float32, True, PACK))


@pytest.mark.parametrize(
    ("text", "constraints", "pack", "said"),
    [
        ("mov.b32 $0, $1;", "=r", 1, "1 constraints for 1 registers of results and 1 of operands"),
        ("mov.b32 $0, $1;", "=r,r,r", 1, "3 constraints for 1 registers"),
        ("mov.b32 $0, $1;", "=r,r", 2, "2 constraints for 2 registers of results and 2"),
        ("mov.b32 $0, $1;", "r,r", 1, "'r' is no constraint of a result"),
        ("mov.b32 $0, $1;", "=r,=r", 1, "'=r' is no constraint of an operand"),
        ("mov.b32 $0, $1;", "=r,x", 1, "'x' is no constraint of an operand"),
        ("mov.b32 $0, $1;", "=n,r", 1, "'=n' is no constraint of a result"),
        ("mov.b32 $0, $1;", "=r,n", 1, "an operand of 'n' is an integer that is known at compile time"),
        ("mov.b32 $0, $1;", "=r,1", 1, "'1' is no constraint of an operand"),
        ("mov.b32 $0, $1;", "=r,r,~memory", 1, "'~memory' is no constraint"),
        ("mov.b32 $0, $2;", "=r,r", 1, "'$2' in the assembly stands for nothing"),
        ("mov.b32 $0, ${1:x};", "=r,r", 1, "stands for nothing"),
        ("mov.b32 $0, $", "=r,r", 1, "'$' in the assembly stands for nothing"),
        ("mov.b32 $0, $1;", "=r,r", 3, "pack is 3"),
    ],
)
def test_mistakes_are_shown_where_they_are(text, constraints, pack, said):
    with pytest.raises(CompilationError) as caught:
        triton.compile(wrong, {"x": "*fp32"}, {"ASM": text, "CONSTRAINTS": constraints, "PACK": pack}, "cuda:90a")
    assert said in str(caught.value)
    assert "^" in str(caught.value)


@triton.jit
def no_integer(x):
    half = tl.full((64,), 0.5, tl.float32)
    tl.store(x + tl.arange(0, 64), tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,n", [half], tl.float32, True, 1))


def test_only_integers_stand_in_the_text():
    with pytest.raises(CompilationError, match="an operand of 'n' is an integer"):
        triton.compile(no_integer, {"x": "*fp32"}, target="cuda:90a")


def test_what_the_assembler_refuses_is_an_error():
    with pytest.raises(AssemblerError, match="b33"):
        options = {"ASM": "mov.b33 $0, $1;", "CONSTRAINTS": "=r,r", "PACK": 1}
        triton.compile(wrong, {"x": "*fp32"}, options, "cuda:90a")
