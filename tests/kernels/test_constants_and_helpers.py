"""What kernels take from around them: constants, helper functions, modules."""

from __future__ import annotations

import math
import types
from math import log2

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler import errors
from deuteron.language.extra import libdevice

LOG2E = tl.constexpr(1.4426950408889634)
NEG_INF = tl.constexpr(float("-inf"))
DTYPE = tl.constexpr(tl.float32)
B0 = tl.constexpr(8) * 2
_ACT = tl.constexpr("gelu")


@triton.jit
def consts(o_ptr, N: tl.constexpr):
    H: tl.constexpr = N // 2
    K = tl.constexpr(H * 2)
    z = tl.zeros((B0, K), DTYPE) + NEG_INF
    z = tl.where(tl.arange(0, B0)[:, None] > H, z, B0 * 1.0)
    w = tl.full((B0, K), 3, tl.int32) if N > 4 else tl.full((B0, K), 4, tl.int32)
    tl.store(o_ptr + tl.arange(0, B0)[:, None] * K + tl.arange(0, K)[None, :], z + w)
    if N == 8 and H == 4:
        tl.store(o_ptr, 7.0)


@triton.jit
def transposed(x_ptr, o_ptr, SHAPE: tl.constexpr, STRIDES: tl.constexpr, N: tl.constexpr):
    """Row-major elements of an array of ``SHAPE`` whose axes lie ``STRIDES`` apart."""
    rest = tl.arange(0, N)
    place = tl.zeros((N,), tl.int32)
    for axis in tl.static_range(len(SHAPE.value) - 1, -1, -1):
        place += rest % SHAPE.value[axis] * STRIDES.value[axis][0]
        rest //= SHAPE[axis]
    tl.store(o_ptr + tl.arange(0, N), tl.load(x_ptr + place))


@pytest.mark.parametrize("launch", ["cpu", "tile", "blocks", "ptx"], indirect=True)
def test_tuples_that_are_constants_have_a_value(launch, rng) -> None:
    """As other constants of a compiled kernel: FlagGems reads sizes and strides so. Where a kernel is Python, Triton
    has the value itself."""
    x = rng.standard_normal((4, 2, 8)).astype(np.float32)
    got = launch(transposed, (1,), x, np.zeros(64, np.float32), SHAPE=(8, 2, 4), STRIDES=((1,), (8,), (16,)), N=64)[1]
    np.testing.assert_array_equal(got.reshape(8, 2, 4), x.T)


def test_constants(launch) -> None:
    expected = np.where(np.arange(16)[:, None] > 4, -np.inf, 16.0) + np.full((1, 8), 3.0)
    expected[0, 0] = 7
    got = launch(consts, (1,), np.zeros((16, 8), np.float32), N=8)[0]
    np.testing.assert_array_equal(got, expected)


@triton.constexpr_function
def half(n):
    return n // 2


def _plain(x):
    return x.value if isinstance(x, tl.constexpr) else x


@tl.constexpr
def wider(dtype) -> tl.dtype:
    dtype = _plain(dtype)
    if dtype.is_fp16() or dtype.is_bf16():
        return tl.float32
    return tl.core.get_int_dtype(dtype.primitive_bitwidth * 2, _plain(True))


@triton.jit
def largest(dtype: tl.constexpr):
    kind = dtype.value
    return 2 ** (kind.primitive_bitwidth - 1) - 1


@triton.jit
def widened(x_ptr, o_ptr, N: tl.constexpr):
    kind: tl.constexpr = wider(x_ptr.dtype.element_ty)
    x = tl.load(x_ptr + tl.arange(0, N)).to(kind)
    tl.store(o_ptr + tl.arange(0, N), x * 3 + largest(tl.int8))


@pytest.mark.parametrize(("narrow", "wide"), [(np.float16, np.float32), (np.int32, np.int64)])
def test_functions_of_types_that_constexpr_decorates(launch, narrow: type, wide: type) -> None:
    x = np.full(4, 60000 if narrow is np.float16 else 2**30, narrow)
    got = launch(widened, (1,), x, np.zeros(4, wide), N=4)[1]
    np.testing.assert_array_equal(got, x.astype(wide) * 3 + 127)
    assert wider(tl.constexpr(tl.bfloat16)) == tl.float32


@tl.constexpr
def top_bit(n):
    n = _plain(n)
    return 1 << (n - 1)


@triton.constexpr_function
def half_below(n):
    less = -n
    less -= 1
    pair = (less, 2)
    first, second = pair
    return first // second + first % second


@triton.jit
def with_names(o_ptr, N: tl.constexpr):
    bits = N  # a number of a type, in the kernel alone
    tl.static_assert(top_bit(bits) == 2147483648)
    top = tl.full((), top_bit(bits), tl.uint32)
    tl.store(o_ptr, (top >> 16).to(tl.int64))
    tl.store(o_ptr + 1, half_below(bits))


def test_numbers_that_compile_time_functions_name_stay_pythons(launch) -> None:
    """In a kernel a name's number has a type: 1 << 31 is negative there, and -33 // 2 is -16."""
    got = launch(with_names, (1,), np.zeros(2, np.int64), N=32)[0]
    assert got.tolist() == [2**31 >> 16, -33 // 2 + -33 % 2]


def test_constexpr_functions_are_plain_functions_outside() -> None:
    assert half(6) == 3
    assert half(tl.constexpr(6)) == 3


@triton.constexpr_function
def steps(n):
    return int(math.log2(n)) + math.gcd(n, 6)


@triton.jit
def with_math(x_ptr, o_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N)) / math.sqrt(2 * N) * tl.log2(math.e)
    if x_ptr is not None and math.isinf(math.inf):
        x += log2(N) + math.pi * math.pow(N, 0.5)
    tl.store(o_ptr + tl.arange(0, N), x + steps(N) * math.floor(2.5))


def test_the_module_math_at_compile_time(launch, normal, close) -> None:
    """Triton's kernels use math's numbers, and its functions of what is known at compile time."""
    x = normal(8)
    exact = x.astype(np.float64) / 4 * np.log2(np.e) + 3 + np.pi * 8**0.5 + (3 + 2) * 2
    close(launch(with_math, (1,), x, np.zeros_like(x), N=8)[1], exact, 1e-6)


@pytest.mark.parametrize(
    ("called", "message"),
    [
        ("math.sqrt(tl.load(p))", "math.sqrt takes numbers known at compile time"),
        ("math.log(N - 8)", "math.log at compile time"),
        ("math.factorial(N * 100)", "whole numbers up to 256"),
        ("math.ceil(1e300)", "more than 256 bits"),
        ("math.fsum((1.0, 2.0))", "math has no 'fsum'"),
    ],
)
def test_what_math_does_not_do(called: str, message: str) -> None:
    text = f"import math\nimport triton.language as tl\n@jit\ndef k(p, N: tl.constexpr):\n    tl.store(p, {called})\n"
    with pytest.raises(errors.CompilationError, match=message):
        triton.compile(triton.KernelSource.from_text(text, "k"), {"p": "*fp32"}, {"N": 8}, target="cpu")


def test_constants_of_a_text_that_math_computes() -> None:
    text = """
import math
RCP = tl.constexpr(1 / math.log(2.0))
@jit
def k(p):
    tl.store(p, RCP)
"""
    source = triton.KernelSource.from_text("import triton.language as tl" + text, "k")
    assert source.namespace.lookup("RCP") == 1 / math.log(2)


sizes = types.ModuleType("sizes")
sizes.WIDTH, sizes.SCALE, sizes.NAME = 4, 2.5, "wide"  # type: ignore[attr-defined]


@triton.jit
def with_members(o_ptr):
    tl.static_assert(sizes.NAME == "wide")
    tl.store(o_ptr + tl.arange(0, sizes.WIDTH), sizes.SCALE)


def test_numbers_and_strings_of_other_modules(launch) -> None:
    """Triton asks for tl.constexpr of a kernel's own globals; members of modules it takes as they are."""
    np.testing.assert_array_equal(launch(with_members, (1,), np.zeros(4, np.float32))[0], np.full(4, 2.5))


def test_a_changed_member_of_a_module_is_noticed(monkeypatch) -> None:
    out = np.zeros(4, np.float32)
    with_members[(1,)](out)
    monkeypatch.setattr(sizes, "SCALE", 3.0)
    with pytest.raises(errors.KernelMismatch, match="sizes.SCALE has changed"):
        with_members[(1,)](out)


integer = triton.constexpr_function(tl.core.get_int_dtype)
boxed = tl.constexpr(tl.core.get_int_dtype)


@triton.jit
def reinterpreted(x_ptr, o_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    bits = x.to(integer(bitwidth=x.dtype.primitive_bitwidth, signed=True), bitcast=True)
    tl.store(o_ptr + tl.arange(0, N), bits + (bits.dtype == boxed(32, True)))


def test_functions_of_the_language_as_compile_time_functions(launch, normal) -> None:
    x = normal(8).astype(np.float32)
    got = launch(reinterpreted, (1,), x, np.zeros(8, np.int32), N=8)[1]
    np.testing.assert_array_equal(got, x.view(np.int32) + 1)


@triton.jit
def packed(value, flag, WIDE: tl.constexpr):
    NARROW = tl.core._unwrap_if_constexpr(value.dtype)
    wide = tl.core._unwrap_if_constexpr(tl.constexpr(WIDE))
    return flag.to(wide) | (tl.core._unwrap_if_constexpr(value).to(wide) << NARROW.primitive_bitwidth)


@triton.jit
def packed_pairs(x_ptr, o_ptr, N: tl.constexpr, WIDE: tl.constexpr = tl.uint64):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(o_ptr + tl.arange(0, N), packed(x, tl.full(x.shape, 2, tl.uint32), WIDE))


def test_values_are_unwrapped_by_the_function_of_tritons_core(launch) -> None:
    x = np.arange(8, dtype=np.uint32) * 1000
    got = launch(packed_pairs, (1,), x, np.zeros(8, np.uint64), N=8)[1]
    np.testing.assert_array_equal(got, x.astype(np.uint64) << 32 | 2)


def test_next_power_of_two_of_what_is_not_positive() -> None:
    assert [triton.next_power_of_2(n) for n in (-5, 0, 1, 2, 3, 4, 5)] == [0, 0, 1, 2, 4, 4, 8]


@triton.jit
def _two(x, y):
    return (x + y, x - y)


@triton.jit
def _opt(x, scale=None, bias=None, ACT: tl.constexpr = "none"):
    if scale is not None:
        x = x * scale
    if bias is not None:
        x = x + bias
    if ACT == "relu":
        x = tl.maximum(x, 0)
    elif ACT == "gelu":
        x = 0.5 * x * (1 + libdevice.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
    else:
        tl.static_assert(ACT == "none")
    return x


@triton.jit
def helpers(
    x_ptr,
    bias_ptr,
    o_ptr,
    n,
    BLOCK: tl.constexpr,
    ACT: tl.constexpr = _ACT,
    OUT_DTYPE: tl.constexpr = tl.float32,
):
    """A docstring."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lo, hi = _two(tl.load(x_ptr + o, mask=o < n, other=0).to(tl.float32), 1.0)
    bias = None
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + o, mask=o < n, other=0)
    y = _opt(lo * hi, scale=LOG2E, bias=bias, ACT=ACT)
    h: tl.constexpr = half(BLOCK)
    y = y + h
    tl.store(o_ptr + o, y.to(OUT_DTYPE), mask=o < n)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
def test_helpers_with_defaults_and_none(launch, normal, close, biased, activation) -> None:
    x, bias = normal(70), normal(70) if biased else None
    exact = (x.astype(np.float64) ** 2 - 1) * np.log2(np.e) + (bias if biased else 0)
    if activation == "relu":
        exact = np.maximum(exact, 0)
    elif activation == "gelu":
        exact *= 0.5 * (1 + np.tanh(0.7978845608 * (exact + 0.044715 * exact**3)))
    arguments = x, bias, np.zeros_like(x), 70
    close(launch(helpers, (3,), *arguments, BLOCK=32, ACT=activation)[2], exact + 16, 1e-4)


@triton.jit
def _many(*xs):
    acc = xs[0]
    for i in tl.static_range(1, len(xs)):
        acc += xs[i]
    return acc


@triton.jit
def varargs(x_ptr, o_ptr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o)
    tl.store(o_ptr + o, _many(x, x * 2, 1.0))


def test_helpers_with_any_number_of_arguments(launch, normal, close) -> None:
    x = normal(32)
    got = launch(varargs, (1,), x, np.zeros(32, np.float32), BLOCK=32)[1]
    close(got, 3 * x.astype(np.float64) + 1)


@triton.jit
def _clip(x, lim):
    if lim == 0:
        return x
    return tl.minimum(x, lim)


@triton.jit
def _sel(x, k: tl.constexpr):
    if k == 0:
        return x
    if k == 1:
        return x * x
    return x * x * x


@triton.jit
def earlyret(x_ptr, o_ptr, lim, BLOCK: tl.constexpr, K: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o)
    tl.store(o_ptr + o, _sel(_clip(x, lim), K))


@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("power", [0, 1, 2])
def test_early_returns_of_helpers(launch, normal, close, limit, power) -> None:
    x = normal(32)
    exact = (np.minimum(x, 1) if limit else x).astype(np.float64) ** (power + 1)
    got = launch(earlyret, (1,), x, np.zeros(32, np.float32), limit, BLOCK=32, K=power)[1]
    close(got, exact)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 32}, num_warps=1),
        triton.Config({"BLOCK": 64}, num_warps=2, num_stages=2),
    ],
    key=["n"],
)
@triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})
@triton.jit
def tuned_add(x_ptr, o_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(o_ptr + o, tl.load(x_ptr + o) + 1)
    else:
        tl.store(o_ptr + o, tl.load(x_ptr + o, mask=o < n) + 1, mask=o < n)


@pytest.mark.parametrize("n", [64, 70])
def test_autotune_over_heuristics(normal, n) -> None:
    x = normal(n)
    out = np.zeros_like(x)
    tuned_add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    np.testing.assert_array_equal(out, x + np.float32(1))


toolbox = types.ModuleType("toolbox")
toolbox.inner = types.ModuleType("toolbox.inner")
toolbox.two = _two
toolbox.inner.WIDTH = tl.constexpr(3)
toolbox.PLAIN = 4
toolbox.python = abs


@triton.jit
def with_a_module(x_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    up, down = toolbox.two(tl.load(x_ptr + i), 1.0)
    tl.store(x_ptr + i, up * down + toolbox.inner.WIDTH)


def test_functions_and_constants_of_a_module(launch):
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(launch(with_a_module, (1,), x, N=8)[0], x * x - 1 + 3)


def test_what_a_kernel_uses_of_a_module_is_part_of_its_identity(monkeypatch):
    x = np.zeros(8, np.float32)
    before = with_a_module.source.hash
    with_a_module[(1,)](x, N=8)
    monkeypatch.setattr(toolbox, "PLAIN", 5)
    assert with_a_module.source.hash == before
    monkeypatch.setattr(toolbox.inner, "WIDTH", tl.constexpr(4))
    assert with_a_module.source.hash != before
    with pytest.raises(triton.DeuteronError, match=r"toolbox.inner.WIDTH has changed .* from constexpr\[3\]"):
        with_a_module[(1,)](x, N=8)


@triton.jit
def calls_python(x_ptr):
    tl.store(x_ptr, toolbox.python(1.0))


@triton.jit
def misspells(x_ptr):
    tl.store(x_ptr, toolbox.towo(1.0))


@pytest.mark.parametrize(
    "kernel, message",
    [
        (calls_python, "is Python, not a function of the kernel language(.|\n)*write tl.abs"),
        (misspells, "did you mean two"),
    ],
)
def test_nothing_else_of_a_module_is_there(kernel, message):
    with pytest.raises(triton.CompilationError, match=message):
        kernel[(1,)](np.zeros(1, np.float32))
