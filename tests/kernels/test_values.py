"""Values and types: bit patterns, NaN, questions to types, kernels that come as text."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import CompilationError, TypeMismatch
from deuteron.language.extra import libdevice


@triton.jit
def _pair(x: tl.tensor, want: tl.constexpr):
    if want:
        return (x, None)
    return (x * 2, x)


@triton.jit
def misc(
    x_ptr,
    o_ptr,
    n: tl.int32,
    eps: tl.constexpr = 1e-06,
    MODE: tl.constexpr = "fast",
    num_warps: tl.constexpr = 4,
    BLOCK: tl.constexpr = 32,
):
    tl.static_assert(BLOCK % 2 == 0, f"BLOCK {BLOCK} must be even")
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    a = b = 0
    a += 1
    y, z = _pair(x, MODE in ("fast", "slow"))
    if z is None:
        y = y + a + b
    w = tl.full(x.shape, 2.0, dtype=x.dtype)
    i = tl.arange(0, x.shape[0])
    bits = x.to(tl.int32, bitcast=True)
    back = bits.to(tl.float32, bitcast=True)
    sgn = bits >> 31 & 1
    m = tl.max(x[:, None] + x[None, :], 1)[:, None]
    t = (x[:, None] * w[None, :]).T
    s = tl.sum(t, axis=0, dtype=tl.float32)
    p2 = (1 << i % 4).to(x.dtype)
    u = -x + +x + tl.where(n > 3, 1.0, 2.0)
    if tl.program_id(0) == 0 and MODE == "fast":
        y += 1
    elif MODE == "never":
        y += 1000
    k = 5 if n > 100 else 6
    y += k
    if isinstance(eps, tl.constexpr):
        y += eps
    num = tl.load(x_ptr + n - 1)
    y = tl.where(o == n - 1, num, y)
    tl.store(o_ptr + o, y + back + sgn + tl.max(m) + s + p2 + u, mask=o < n)


@triton.jit
def outdt(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    o = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(a_ptr + o)
    b = tl.load(b_ptr + o)
    c = tl.dot(a, tl.trans(b, (1, 0)), out_dtype=tl.float16)
    c += tl.dot(a, b.T, out_dtype=tl.float32, max_num_imprecise_acc=32).to(tl.float16)
    tl.store(c_ptr + o, c)


@triton.jit
def whileand(x_ptr, o_ptr, n):
    i = 0
    s = 0.0
    while i < n and s < 3.0:
        s += tl.abs(tl.load(x_ptr + i))
        i += 1
    tl.store(o_ptr, s)
    tl.store(o_ptr + 1, i)


@triton.jit
def nestloop(x_ptr, o_ptr, M, N, BLOCK: tl.constexpr):
    best = float("-inf")
    bi = 0
    bj = 0
    for i in range(M):
        rowbest = float("-inf")
        rj = 0
        for j in range(0, N, BLOCK):
            o = j + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + i * N + o, mask=o < N, other=float("-inf"))
            v, k = tl.max(x, 0, return_indices=True)
            if v > rowbest:
                rowbest = v
                rj = j + k
        if rowbest > best:
            best, bi, bj = (rowbest, i, rj)
    tl.store(o_ptr, best)
    tl.store(o_ptr + 1, bi)
    tl.store(o_ptr + 2, bj)


@triton.jit
def nans(x_ptr, o_ptr, B: tl.constexpr):
    o = tl.arange(0, B)
    x = tl.load(x_ptr + o)
    tl.store(o_ptr + o, tl.maximum(x, 0.0))
    tl.store(o_ptr + B + o, tl.minimum(x, 0.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(o_ptr + 2 * B + o, tl.clamp(x, -1.0, 1.0))
    tl.store(o_ptr + 3 * B + o, libdevice.isnan(x).to(tl.float32))
    tl.store(o_ptr + 4 * B + o, x != x)
    tl.store(o_ptr + 5 * B, tl.max(x))
    tl.store(o_ptr + 5 * B + 1, tl.where(x == x, 1, 0).sum())
    tl.store(o_ptr + 5 * B + 2, tl.argmax(tl.where(x == x, x, -float("inf")), 0))


def test_a_bit_of_everything(launch, normal, close) -> None:
    x = normal(20)
    padded = np.pad(x.astype(np.float64), (0, 12))
    y = padded + 8 + 1e-6
    y[19] = x[19]
    exact = y + 65 * padded + (padded < 0) + 2 * x.max() + 2 ** (np.arange(32) % 4) + 1
    for n in (20, np.int64(20)):
        close(launch(misc, (1,), x, np.zeros(20, np.float32), n)[1], exact[:20])


def test_products_in_half_precision(launch, normal, close) -> None:
    a, b = normal(16, 16).astype(np.float16), normal(16, 16).astype(np.float16)
    got = launch(outdt, (1,), a, b, np.zeros((16, 16), np.float16), N=16)[2]
    close(got, 2 * a.astype(np.float64) @ b.T.astype(np.float64), 2e-2)


def test_while_with_two_conditions(launch, normal, close) -> None:
    x = normal(30)
    sums = np.cumsum(abs(x.astype(np.float64)))
    end = np.searchsorted(sums, 3.0)
    zeros = np.zeros(2, np.float32)
    close(launch(whileand, (1,), x, zeros, 30)[1], np.array([sums[end], end + 1]))
    close(launch(whileand, (1,), x, zeros, 1)[1], np.array([sums[0], 1]))


def test_branches_in_nested_loops(launch, normal) -> None:
    x = normal(5, 40)
    got = launch(nestloop, (1,), x, np.zeros(3, np.float32), 5, 40, BLOCK=16)[1]
    assert got.tolist() == [x.max(), *np.unravel_index(x.argmax(), x.shape)]


def test_nan(launch, normal) -> None:
    x = normal(16)
    x[[3, 5, 7]] = np.nan, np.inf, -np.inf
    nan = np.isnan(x)
    parts = [np.fmax(x, 0), np.minimum(x, 0), np.fmin(np.fmax(x, -1), 1), nan, nan, np.inf, 15, 5]
    got = launch(nans, (1,), x, np.zeros(83, np.float32), B=16)[1]
    np.testing.assert_array_equal(got, np.hstack(parts).astype(np.float32))


@triton.jit
def questions(x_ptr, o_ptr, n):
    x = tl.load(x_ptr + tl.arange(0, 4))
    tl.static_assert(x_ptr.type.element_ty == tl.float16)
    tl.static_assert(x_ptr.type.is_ptr() and x_ptr.dtype.is_ptr() and not x_ptr.type.is_block())
    tl.static_assert(x.type.is_block() and x.type.element_ty.is_fp16())
    tl.static_assert(x.type.scalar == x.dtype and x.type.scalar.primitive_bitwidth == 16)
    tl.static_assert(n.type.is_int() and n.dtype.is_int32() and n.dtype.int_bitwidth == 32)
    tl.static_assert((x > 0).dtype.is_int1() and x.dtype.is_standard_floating())
    tl.store(o_ptr, tl.math.exp2(tl.core.max(x).to(tl.float32)) + tl.extra.cuda.libdevice.tanh(0.0))


def test_questions_to_types(launch) -> None:
    x = np.arange(4).astype(np.float16)
    assert launch(questions, (1,), x, np.zeros(1, np.float32), 3)[1] == 8


TEXT = """
import triton
import triton.language as tl
from triton.language.extra.cuda.libdevice import tanh
from triton.language.math import exp2

BLOCK = tl.constexpr(32)

@triton.constexpr_function
def half(n):
    return n // 2

@triton.jit
def total(*terms, scale=1.0):
    acc = terms[0]
    for term in terms[1:]:
        acc += term
    return acc * scale

@triton.jit
def kernel(x_ptr, o_ptr, B: tl.constexpr = BLOCK * 2):
    o = tl.arange(0, half(B))
    x = tl.load(x_ptr + o)
    tl.store(o_ptr + o, total(x, 1.0, half(B), scale=2.0) + exp2(x * 0) + tanh(x * 0))
"""


def test_helpers_of_a_text() -> None:
    kernel = triton.KernelSource.from_text(TEXT, "kernel")
    x = np.arange(32, dtype=np.float32)
    out = np.zeros_like(x)
    triton.compile(kernel, {"x_ptr": "*fp32", "o_ptr": "*fp32"}).run((1,), x, out)
    np.testing.assert_array_equal(out, (x + 33) * 2 + 1)


def test_constants_compute_like_numbers() -> None:
    four, table = tl.constexpr(4), tl.constexpr((1, 2))
    assert isinstance(four * 2, tl.constexpr)
    assert (four * 2, 9 // four, -four, four / 8) == (8, 2, -4, 0.5)
    assert four > 3
    assert [*table] == [1, 2]
    assert (len(table), table[1], float(four)) == (2, 2, 4.0)


@triton.jit
def asks_for_classes(out, x, n, one):
    tl.store(out, isinstance(x.dtype, tl.pointer_type))
    tl.store(out + 1, isinstance(n.dtype, tl.pointer_type))
    tl.store(out + 2, isinstance(tl.load(x + tl.arange(0, 4)).type, tl.block_type))
    tl.store(out + 3, isinstance(tl.load(x).dtype, tl.dtype))
    if isinstance(x.dtype, tl.pointer_type) and x.dtype.element_ty == tl.float32:
        tl.store(out + 4, 7)
    if tl.load(x + tl.arange(0, 1)) > 0.5:
        tl.store(out + 5, 8)


def test_classes_of_types_and_conditions_of_one_element(launch):
    held = launch(asks_for_classes, (1,), np.zeros(6, np.int32), np.ones(4, np.float32), 3, 1)
    assert list(held[0]) == [1, 0, 1, 1, 7, 8]


def test_types_by_name():
    assert [tl.dtype(name) for name in ("fp32", "int8", "uint64", "bf16", "fp8e5")] == [
        tl.float32, tl.int8, tl.uint64, tl.bfloat16, tl.float8e5,
    ]  # fmt: skip
    assert set(tl.dtype.SINT_TYPES) == {"int8", "int16", "int32", "int64"}
    assert tl.str_to_ty("*kfp16") == tl.pointer_type(tl.float16, const=True)
    assert tl.float16.fp_mantissa_width == 10 and tl.bfloat16.exponent_bias == 127
    with pytest.raises(TypeMismatch, match="no element type 'fp33'"):
        tl.dtype("fp33")
    given = [(1, True), (1, False), (8, True), (16, False), (64, True)]
    assert [tl.get_int_dtype(*known) for known in given] == [tl.int1, tl.int1, tl.int8, tl.uint16, tl.int64]
    with pytest.raises(TypeMismatch, match="no element type 'int24'"):
        tl.get_int_dtype(bitwidth=24, signed=True)


@pytest.mark.parametrize("made", [tl.pointer_type, lambda of: tl.block_type(of, [4])])
@pytest.mark.parametrize("of", [1, "fp32", None, np.float32])
def test_types_are_made_of_types(made, of):
    with pytest.raises(TypeMismatch, match="expected an element type such as tl.float32, got"):
        made(of)


@triton.jit
def turned(x, out, N: tl.constexpr):
    values = tl.load(x + tl.arange(0, N))
    same: tl.constexpr = tl.core.get_int_dtype(bitwidth=values.dtype.primitive_bitwidth, signed=True)
    tl.store(out + tl.arange(0, N), values.to(same, bitcast=True))


def test_the_integer_type_of_a_width(launch):
    x = np.array([1.5, -0.0, np.inf, -3.25], np.float32)
    assert (launch(turned, (1,), x, np.zeros(4, np.int32), 4)[1] == x.view(np.int32)).all()


@triton.jit
def as_a_neighbour(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    column = tl.load(y + at)[:, None]
    tl.store(out + at, values.to(column.type))
    tl.store(out + N + at, tl.cast(values, column.type, bitcast=True))


def test_casts_to_the_type_of_a_tile_are_to_its_elements(launch):
    x = np.array([1.5, -0.0, 7.9, -3.25], np.float32)
    held = launch(as_a_neighbour, (1,), x, np.zeros(4, np.int32), np.zeros(8, np.int32), 4)
    assert held[2].tolist() == [1, 0, 7, -3, *x.view(np.int32)]


@triton.jit
def of_64_bits(bits, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.random.uint_to_uniform_float(tl.load(bits + at)))


def test_uniform_numbers_of_64_bits(launch):
    bits = np.array([0, 1 << 62, (1 << 64) - (1 << 62), (1 << 64) - 1, (1 << 63) - 1, 1 << 63, 5, 1 << 50], np.uint64)
    got = launch(of_64_bits, (1,), bits, np.zeros(8, np.float32), N=8)[1]
    magnitude = [min(int(b), (1 << 64) - 1 - int(b)) / 2.0**63 for b in bits]
    np.testing.assert_allclose(got, magnitude, rtol=3e-7, atol=0)
    assert (got < 1).all()


def test_a_result_that_must_be_used():
    @triton.must_use_result("It changes nothing.")
    @triton.jit
    def square(x):
        return x * x

    @triton.jit
    def dropped(out):
        square(tl.load(out))

    @triton.jit
    def used(out):
        tl.store(out, square(tl.load(out)))

    out = np.full(1, 3, np.int32)
    used[(1,)](out)
    assert out[0] == 9
    with pytest.raises(CompilationError, match=r"The result of square is not being used\. It changes nothing\."):
        dropped[(1,)](out)


@triton.jit
def drawn(counter):
    return tl.atomic_add(counter, 1)


@triton.jit
def results_dropped(counter, taken):
    drawn(counter).to(tl.float32)
    tl.atomic_add(taken, 1).to(tl.float32)


def test_a_method_of_a_dropped_result_has_its_effects_once(launch):
    """A statement reads the function that it calls once: what that is read from may be a call with effects."""
    counter, taken = launch(results_dropped, (1,), np.zeros(1, np.int32), np.zeros(1, np.int32))
    assert (counter[0], taken[0]) == (1, 1)


@triton.jit
def halves_added(x, y, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    t = tl.load(x + at)
    halves = tl.reshape(t, t.shape[:-1] + [2, t.shape[1] // 2])
    both = tl.reshape(tl.sum(halves, 1), [1] + t.shape[:1] + (N // 2,))
    at = tl.arange(0, M)[:, None] * (N // 2) + tl.arange(0, N // 2)[None, :]
    tl.store(y + at[None, :, :], both)


def test_shapes_are_lengthened_by_lists(launch, normal) -> None:
    x = normal(8, 4)
    (_, got) = launch(halves_added, (1,), x, np.zeros((8, 2), np.float32), M=8, N=4)
    np.testing.assert_array_equal(got, x[:, :2] + x[:, 2:])
