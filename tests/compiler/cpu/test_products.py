"""Products on every kind of processor: packed operands, transposed ones, masked ones, and what pairs of 16 bits do.

Code for smaller processors runs on this one: it has narrower vectors and other instructions. What this processor lacks
is left out.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import deuteron
import deuteron.language as tl
from deuteron.compiler.frontend import lower
from deuteron.compiler.ir import Function
from deuteron.compiler.llvm import driver
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import cpu
from deuteron.compiler.targets.cpu.matmul import choose_blocking
from deuteron.compiler.targets.cpu.pack import Pack
from deuteron.compiler.targets.cpu.prepare import prepare
from deuteron.compiler.targets.cpu.processor import Processor, host_processor
from deuteron.compiler.tile import control
from deuteron.compiler.tile.passes import optimize

HOST = host_processor()
PLAIN = Processor(16, 32)
PROCESSORS = [PLAIN, Processor(32, 16), HOST]
if HOST.vector_bytes >= 32:
    PROCESSORS.append(Processor(32, 16, int16_pairs="madd"))
if HOST.vector_bytes >= 64 and HOST.int16_pairs:
    PROCESSORS.append(Processor(64, 32, int16_pairs="madd"))
#: Has all that the code generator knows of: AVX-512 with products of pairs of bf16 and of int16.
ZEN4 = driver.Machine("x86_64-unknown-linux-gnu", "znver4", "-prefer-256-bit")

NAMES = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8",
         "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "int32": "i32"}  # fmt: skip
DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, ml_dtypes.float8_e4m3fn,
          ml_dtypes.float8_e5m2]  # fmt: skip


@deuteron.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K, am: tl.constexpr, ak: tl.constexpr, bk: tl.constexpr, bn: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A_T: tl.constexpr, B_T: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, K, BK):
        k_left = k + rk < K
        if A_T:
            mask_a = k_left[:, None] & (rm[None, :] < M)
            a = tl.trans(tl.load(a_ptr + (k + rk)[:, None] * ak + rm[None, :] * am, mask=mask_a, other=0))
        else:
            mask_a = k_left[None, :] & (rm[:, None] < M)
            a = tl.load(a_ptr + rm[:, None] * am + (k + rk)[None, :] * ak, mask=mask_a, other=0)
        if B_T:
            mask_b = k_left[None, :] & (rn[:, None] < N)
            b = tl.trans(tl.load(b_ptr + rn[:, None] * bn + (k + rk)[None, :] * bk, mask=mask_b, other=0))
        else:
            mask_b = k_left[:, None] & (rn[None, :] < N)
            b = tl.load(b_ptr + (k + rk)[:, None] * bk + rn[None, :] * bn, mask=mask_b, other=0)
        acc = tl.dot(a, b, acc, out_dtype=ACC)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@deuteron.jit
def same_right_operand(a_ptr, b_ptr, c_ptr, steps, K: tl.constexpr, BRANCH: tl.constexpr):
    """c = sum of a[step] @ b over all steps (only over the even ones with BRANCH), for squares of K."""
    here = tl.arange(0, K)[:, None] * K + tl.arange(0, K)[None, :]
    b = tl.load(b_ptr + here)
    acc = tl.zeros((K, K), dtype=tl.float32)
    for step in range(steps):
        a = tl.load(a_ptr + step * K * K + here)
        if BRANCH:
            if step % 2 == 0:
                acc = tl.dot(a, b, acc)
        else:
            acc = tl.dot(a, b, acc)
    tl.store(c_ptr + here, acc)


@deuteron.jit
def read_before_the_loop(x_ptr, b_ptr, c_ptr, t_ptr, steps, K: tl.constexpr, N: tl.constexpr, KEPT: tl.constexpr):
    """c[step] = (y + y.T) @ b[step], where y = |x| + 1 as x was before the loop, which overwrites x."""
    here = tl.arange(0, K)[:, None] * K + tl.arange(0, K)[None, :]
    wide = tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :]
    y = (tl.abs(tl.load(x_ptr + here)) + 1).to(tl.float16)
    transposed = tl.trans(y)
    for step in range(steps):
        b = tl.load(b_ptr + step * K * N + wide)
        c = tl.dot(y, b)
        c += tl.dot(transposed, b)
        tl.store(c_ptr + step * K * N + wide, c)
        tl.store(x_ptr + here, step)
        if KEPT:
            tl.store(t_ptr + step * K * K + here, transposed)


def function_of(kernel: deuteron.JITFunction, types: str, **constexprs: object) -> Function:
    names = [a.name for a in kernel.source.arguments if not a.constexpr]
    return optimize(lower(kernel.source, dict(zip(names, types.split(), strict=True)), constexprs))


def launch(function: Function, processor: Processor, grid: tuple[int, int, int], arguments: list[object]) -> None:
    program = cpu.lower_to_llvm(function, Schedule(), processor)
    plain = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    types = [p.value.type for p in function.parameters]
    cpu.load(cpu.emit_object(program), program.name).launch(grid, plain, types, 1)


def strided(numbers: np.ndarray, order: str, padding: int) -> tuple[np.ndarray, tuple[int, int]]:
    """The matrix in memory, row by row ("C") or column by column ("F") with padding; and its strides in elements."""
    held = numbers if order == "C" else numbers.T
    memory = np.full((held.shape[0], held.shape[1] + padding), 3, numbers.dtype)
    memory[:, : held.shape[1]] = held
    row = memory.shape[1]
    return memory, (row, 1) if order == "C" else (1, row)


def multiply(dtype, sizes, blocks, processor, orders="CC", transposed=(False, False), padding=0, numbers=None):
    """What the kernel makes of random matrices, and the product in float64."""
    (m, n, k), (bm, bn, bk), rng = sizes, blocks, np.random.default_rng(sum(sizes))
    if numbers is None:
        low = 0 if np.dtype(dtype) == np.uint8 else -4
        a, b = (rng.integers(low, 5, shape).astype(dtype) for shape in ((m, k), (k, n)))
    else:
        a, b = numbers
    (a_memory, (am, ak)), (b_memory, (bk_, bn_)) = (strided(x, o, padding) for x, o in zip((a, b), orders, strict=True))
    acc = {"float64": tl.float64, "int8": tl.int32, "uint8": tl.int32}.get(a.dtype.name, tl.float32)
    c = np.zeros((m, n), {tl.float64: np.float64, tl.int32: np.int32}.get(acc, np.float32))
    types = " ".join(f"*{NAMES[x.dtype.name]}" for x in (a, b, c)) + " i32 i32 i32"
    function = function_of(
        product, types, am=am, ak=ak, bk=bk_, bn=bn_, BM=bm, BN=bn, BK=bk, A_T=transposed[0], B_T=transposed[1], ACC=acc
    )
    launch(function, processor, (-(-m // bm), -(-n // bn), 1), [a_memory, b_memory, c, m, n, k])
    return c.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64)


block = st.sampled_from([1, 2, 4, 8, 16, 32, 64])


@given(
    dtype=st.sampled_from(DTYPES),
    sizes=st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(1, 70)),
    blocks=st.tuples(block, block, block),
    processor=st.sampled_from(PROCESSORS),
    orders=st.sampled_from(["CC", "CF", "FC", "FF"]),
    transposed=st.tuples(st.booleans(), st.booleans()),
    padding=st.integers(0, 3),
)
@example(ml_dtypes.bfloat16, (65, 33, 31), (64, 64, 32), HOST, "FF", (False, False), 1)
@example(np.int8, (65, 33, 31), (32, 32, 16), HOST, "CF", (True, True), 0)
@example(np.float32, (65, 33, 31), (64, 64, 32), HOST, "FF", (True, True), 0)
@settings(max_examples=80, deadline=None)
def test_every_layout_on_every_processor(dtype, sizes, blocks, processor, orders, transposed, padding):
    found, wanted = multiply(dtype, sizes, blocks, processor, orders, transposed, padding)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("processor", PROCESSORS, ids=str)
def test_random_numbers_in_the_precision_of_the_sums(dtype, processor):
    k = 100
    numbers = [np.random.default_rng(i).standard_normal(s).astype(dtype) for i, s in enumerate([(30, k), (k, 50)])]
    found, wanted = multiply(dtype, (30, 50, k), (16, 64, 32), processor, numbers=numbers)
    bound = np.abs(numbers[0].astype(np.float64)) @ np.abs(numbers[1].astype(np.float64))
    unit = 2.0**-53 if dtype is np.float64 else 2.0**-24
    assert (np.abs(found - wanted) <= k * unit * bound).all()


@pytest.mark.parametrize("low,high", [(-128, -128), (127, 127), (-128, 127)])
def test_the_largest_bytes_do_not_overflow(low, high):
    numbers = (np.full((4, 64), low, np.int8), np.full((64, 8), high, np.int8))
    found, wanted = multiply(np.int8, (4, 8, 64), (4, 8, 64), HOST, numbers=numbers)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_special_numbers(dtype):
    a = np.ones((4, 8), dtype)
    a[0, 1], a[1, 2], a[2, 3] = np.inf, np.nan, -np.inf
    found, _ = multiply(dtype, (4, 8, 8), (4, 8, 8), HOST, numbers=(a, np.ones((8, 8), dtype)))
    np.testing.assert_array_equal(found[:, 0], [np.inf, np.nan, -np.inf, 8])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float16"])
@pytest.mark.parametrize("branch", [False, True])
def test_an_operand_from_outside_of_a_loop_is_packed_before_it(dtype, branch):
    """Not if a branch may leave the product out: then nobody may have use for it."""
    types = f"*{NAMES[dtype]} *{NAMES[dtype]} *fp32 i32"
    function = function_of(same_right_operand, types, K=32, BRANCH=branch)
    prepared = prepare(function, HOST)
    assert any(isinstance(op, control.For) for op in prepared.body.ops)
    assert sum(isinstance(op, Pack) for op in prepared.walk()) == 1
    assert any(isinstance(op, Pack) for op in prepared.body.ops) is not branch
    a, b = (np.random.default_rng(i).integers(-3, 4, s).astype(dtype) for i, s in enumerate([(5, 32, 32), (32, 32)]))
    c = np.zeros((32, 32), np.float32)
    launch(function, HOST, (1, 1, 1), [a, b, c, 5])
    taken = a[::2] if branch else a
    np.testing.assert_array_equal(c, taken.astype(np.float32).sum(0) @ b.astype(np.float32))


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("processor", [PLAIN, HOST], ids=str)
def test_a_transposed_operand_from_outside_of_a_loop_is_computed_before_it(processor, kept):
    """Its memory may hold something else by then."""
    rng, (steps, k, n) = np.random.default_rng(0), (3, 16, 32)
    x = rng.integers(-9, 9, (k, k)).astype(np.float32)
    b = rng.integers(-9, 9, (steps, k, n)).astype(np.float16)
    c, t = np.zeros((steps, k, n), np.float32), np.zeros((steps, k, k), np.float16)
    y = np.abs(x) + 1
    wanted = (y + y.T) @ b.astype(np.float32)
    function = function_of(read_before_the_loop, "*fp32 *fp16 *fp32 *fp16 i32", K=k, N=n, KEPT=kept)
    launch(function, processor, (1, 1, 1), [x, b, c, t, steps])
    np.testing.assert_array_equal(c, wanted)
    np.testing.assert_array_equal(t, np.broadcast_to(y.T if kept else 0, t.shape))


@given(block, block, st.sampled_from([4, 8]), st.sampled_from(PROCESSORS))
def test_accumulators_leave_registers_for_operands(m, n, size, processor):
    blocking = choose_blocking(m, n, size, processor)
    assert n % blocking.width == 0 and 1 <= blocking.rows <= m
    columns = blocking.vectors if blocking.rows > 1 else 1  # a single row needs each column once
    assert blocking.rows * blocking.vectors + columns + 1 <= processor.registers


@pytest.mark.parametrize("dtype,instruction", [("bf16", "vdpbf16ps"), ("i8", "vpdpwssd"), ("fp32", "vfmadd")])
def test_a_processor_with_avx512_uses_its_products_of_pairs(dtype, instruction):
    """Compiled for such a processor, not run: this one need not have these instructions."""
    acc = tl.int32 if dtype == "i8" else tl.float32
    types = f"*{dtype} *{dtype} *{'i32' if dtype == 'i8' else 'fp32'} i32 i32 i32"
    strides = {"am": 64, "ak": 1, "bk": 64, "bn": 1}
    function = function_of(product, types, **strides, BM=32, BN=32, BK=32, A_T=False, B_T=False, ACC=acc)
    program = cpu.lower_to_llvm(function, Schedule(), Processor(64, 32, bf16_pairs=True, int16_pairs="dot"))
    assembly = driver.compile_text(program.llvm, ZEN4, "assembly").decode()
    lines = [line for line in assembly.splitlines() if line.split()[:1] and line.split()[0].startswith(instruction)]
    assert len(lines) >= 32 and all("zmm" in line for line in lines)
