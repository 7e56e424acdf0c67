"""Single operations on the simulator, against NumPy."""

from __future__ import annotations

import itertools
import math
import re

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.errors import UnsupportedOp

DTYPES = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp32": np.float32,
    "fp64": np.float64,
    "i8": np.int8,
    "i32": np.int32,
    "u8": np.uint8,
    "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "fp8e5": ml_dtypes.float8_e5m2,
}


# Maths -------------------------------------------------------------------------------------------------------

UNARY = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, {expression}.to(y_ptr.dtype.element_ty))
"""


@pytest.mark.parametrize("dtype, tolerance", [("fp32", 4e-7), ("fp64", 1e-14), ("fp16", 1e-3)])
@pytest.mark.parametrize(
    "function",
    ["exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "floor", "ceil", "abs"],
)
def test_maths(from_text, simulated, check_ptx, rng, function, dtype, tolerance) -> None:
    wide = {"fp16": "tl.load(x_ptr + offs).to(tl.float32)"}.get(dtype, "tl.load(x_ptr + offs)")
    sample = from_text(
        UNARY.format(expression=f"tl.{function}({wide})"),
        {"x_ptr": f"*{dtype}:16", "y_ptr": f"*{dtype}:16"},
        {"N": 256},
    )
    x = rng.uniform(-8, 8, 256).astype(DTYPES[dtype])
    x = np.abs(x) if function in ("log", "log2", "sqrt", "rsqrt") else x
    y = np.zeros_like(x)
    simulated(sample, (1,), [x, y])
    reference = {"rsqrt": lambda v: 1 / np.sqrt(v), "erf": np.vectorize(math.erf)}
    exact = reference.get(function, getattr(np, function, None))(x.astype(np.float64))
    # ex2.approx(x log2(e)): the product is rounded, so the error grows with |x|.
    growth = 8 if function == "exp" else 1
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=growth * tolerance, atol=tolerance)
    check_ptx(sample)


@pytest.mark.parametrize(
    "source, to",
    [
        ("fp32", "fp16"), ("fp32", "bf16"), ("fp64", "bf16"), ("bf16", "fp16"), ("fp16", "bf16"),
        ("fp32", "fp8e4nv"), ("fp32", "fp8e5"), ("fp8e4nv", "fp32"), ("fp8e5", "fp16"), ("i8", "fp16"),
        ("i32", "bf16"), ("fp32", "i8"), ("u8", "fp32"), ("fp16", "i32"), ("i32", "u8"), ("fp64", "fp32"),
    ],
)  # fmt: skip
def test_casts(from_text, simulated, check_ptx, rng, source, to) -> None:
    sample = from_text(
        UNARY.format(expression="tl.load(x_ptr + offs)"),
        {"x_ptr": f"*{source}:16", "y_ptr": f"*{to}:16"},
        {"N": 512},
    )
    x = rng.uniform(0, 100, 512).astype(DTYPES[source])
    y = np.zeros(512, DTYPES[to])
    simulated(sample, (1,), [x, y])
    wanted = x.astype(np.float64).astype(DTYPES[to])  # ml_dtypes and NumPy round to nearest even
    np.testing.assert_array_equal(y.astype(np.float64), wanted.astype(np.float64))
    check_ptx(sample)


@pytest.mark.parametrize("to", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("source", ["i8", "u8", "fp8e4nv", "fp8e5"])
@pytest.mark.parametrize("turned", [False, True])
def test_every_byte_is_a_float(from_text, simulated, check_ptx, source: str, to: str, turned: bool) -> None:
    """Four at a time, whether they lie side by side or are those of a column; and never by an instruction that
    converts one integer."""
    sample = from_text(
        f"""
def k(x_ptr, y_ptr):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(x_ptr + {"j * 32 + i" if turned else "i * 32 + j"})
    tl.store(y_ptr + i * 32 + j, x.to(y_ptr.dtype.element_ty))
""",
        {"x_ptr": f"*{source}:16", "y_ptr": f"*{to}:16"},
        {},
    )
    x = np.tile(np.arange(256, dtype=np.uint8).view(DTYPES[source]), 4).reshape(32, 32)
    y = np.zeros((32, 32), DTYPES[to])
    with np.errstate(invalid="ignore"):
        simulated(sample, (1,), [x.T.copy() if turned else x, y])
    with np.errstate(invalid="ignore"):  # NaNs that signal
        wanted = x.astype(np.float64)
        np.testing.assert_array_equal(y.astype(np.float64), wanted)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(wanted))
    if source != "fp8e4nv":
        check_ptx(sample, "cuda:80")
    ptx = check_ptx(sample)
    assert not re.search(r"cvt\.rn\.\w+\.[su](8|16|32)", ptx)


def test_fp8_needs_sm_89(from_text) -> None:
    sample = from_text(
        UNARY.format(expression="tl.load(x_ptr + offs)"),
        {"x_ptr": "*fp32:16", "y_ptr": "*fp8e4nv:16"},
        {"N": 512},
    )
    with pytest.raises(UnsupportedOp, match="cuda:80 has no conversions of f8e4m3"):
        sample.program("cuda:80")


E5M2 = """
def k(x_ptr, y_ptr, bits_ptr, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    y = tl.load(x_ptr + offs).to(tl.float8e5, fp_downcast_rounding="{rounding}")
    tl.store(y_ptr + offs, y)
    tl.store(bits_ptr + offs, y.to(tl.uint8, bitcast=True))
"""


def around_e5m2(source: str) -> np.ndarray:
    """All numbers of a type of 16 bits; of wider ones what lies at and beside the numbers of f8e5m2 and the middles
    between them, with each exponent of f32, in subnormal numbers the same places with fewer bits."""
    if DTYPES[source] not in (np.float32, np.float64):
        return np.arange(1 << 16, dtype=np.uint16).view(DTYPES[source])
    heads = np.arange(512, dtype=np.uint32)[:, None, None] << 23
    places = np.arange(16, dtype=np.uint32)[None, :, None] << 19
    beside = np.array([0, 1, (1 << 19) - 1, 1 << 18], np.uint32)
    x = (heads + places + beside).ravel().view(np.float32)
    if DTYPES[source] == np.float32:
        return x
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        return np.concatenate([wide, np.nextafter(wide, np.inf), np.nextafter(wide, -np.inf), wide * 2.0**-40])


def nearest_e5m2(x: np.ndarray, rounding: str) -> np.ndarray:
    """By ml_dtypes, which goes to infinity beyond the largest number."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        clipped = np.clip(wide, -57344.0, 57344.0)
        # By way of f16, rounded to odd, so that rounding twice is rounding once.
        half = clipped.astype(np.float16)
        half = np.where(np.abs(half.astype(np.float64)) > np.abs(clipped), np.nextafter(half, np.float16(0)), half)
        half = (half.view(np.uint16) | (half.astype(np.float64) != clipped)).view(np.float16)
        half = np.where(np.isnan(wide), np.float16(np.nan), half)
        made = half.astype(ml_dtypes.float8_e5m2)
        if rounding == "rtz":
            larger = np.abs(made.astype(np.float64)) > np.abs(wide)
            made = (made.view(np.uint8) - larger).astype(np.uint8).view(ml_dtypes.float8_e5m2)
            made = np.where(np.isinf(wide), wide.astype(ml_dtypes.float8_e5m2), made)
        return made


@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("source", ["fp16", "bf16", "fp32", "fp64"])
@pytest.mark.parametrize("target", ["cuda:80", "cuda:86", "cuda:89"])
def test_float8e5_is_made_on_every_gpu(
    from_text, run_function, check_ptx, target: str, source: str, rounding: str
) -> None:
    """By instructions from sm_89 on, by integer arithmetic before; rounded once, and by the same rules."""
    types = {"x_ptr": f"*{source}:16", "y_ptr": "*fp8e5:16", "bits_ptr": "*u8:16"}
    sample = from_text(E5M2.format(rounding=rounding), types, {"N": 2048})
    ptx = check_ptx(sample, target)
    assert ("e5m2x2" in ptx) == (target == "cuda:89" and rounding == "rtne")
    x = around_e5m2(source)
    y, bits = np.zeros(x.size, ml_dtypes.float8_e5m2), np.zeros(x.size, np.uint8)
    with np.errstate(invalid="ignore"):  # NaNs that signal
        run_function(sample.tile(), (x.size // 2048,), [x, y, bits], 4, target)
    wanted = nearest_e5m2(x, rounding).astype(np.float64)
    for made in (y, bits.view(ml_dtypes.float8_e5m2)):
        np.testing.assert_array_equal(made.astype(np.float64), wanted)
        known = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(made)[known], np.signbit(wanted)[known])


@pytest.mark.parametrize("dtype", ["fp8e4nv", "fp8e5"])
@pytest.mark.parametrize("other", [0.0, -1.5, 1e6])
def test_what_a_masked_fp8_load_gives_beyond_its_mask(
    from_text, simulated, check_ptx, dtype: str, other: float
) -> None:
    sample = from_text(
        f"""
def k(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < 200, other={other}))
""",
        {"x_ptr": f"*{dtype}:16", "y_ptr": f"*{dtype}:16"},
        {"N": 256},
    )
    x = np.linspace(-9, 9, 256).astype(DTYPES[dtype])
    y = np.full(256, np.nan, DTYPES[dtype])
    simulated(sample, (1,), [x, y])
    np.testing.assert_array_equal(y[:200], x[:200])
    wanted = min(other, float(ml_dtypes.finfo(DTYPES[dtype]).max))
    assert (y[200:].astype(np.float64) == wanted).all()
    check_ptx(sample)


# Reductions and scans ----------------------------------------------------------------------------------------

REDUCE = """
def k(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    rows = tl.arange(0, M)
    columns = tl.arange(0, N)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :])
    if AXIS == 0:
        tl.store(y_ptr + columns, {reduction})
    else:
        tl.store(y_ptr + rows, {reduction})
"""


@pytest.mark.parametrize(
    "shape, axis, warps",
    [
        *itertools.product([(1, 64), (8, 8), (64, 2), (128, 32), (16, 256)], [0, 1], [1, 4]),
        *[((2, 2048), 1, 32), ((16, 256), 1, 32), ((512, 4), 0, 16), ((1, 4096), 1, 16)],
    ],
)
def test_reductions(from_text, simulated, rng, shape, axis, warps) -> None:
    for name, dtype in (("sum", "i32"), ("max", "fp32"), ("argmin", "fp32"), ("min", "fp64"), ("max", "i8")):
        sample = from_text(
            REDUCE.format(reduction=f"tl.{name}(x, AXIS)"),
            {"x_ptr": f"*{dtype}:16", "y_ptr": "*i32:16" if name == "argmin" else f"*{dtype}:16"},
            {"M": shape[0], "N": shape[1], "AXIS": axis},
            warps,
        )
        x = (rng.standard_normal(shape) * 50).astype(DTYPES[dtype])
        y = np.zeros(shape[1 - axis], np.int32 if name == "argmin" else DTYPES[dtype])
        simulated(sample, (1,), [x, y])
        np.testing.assert_array_equal(y, getattr(np, name)(x, axis=axis))


@pytest.mark.parametrize(
    ("dtype", "warps", "sums", "shuffles"),
    [
        ("fp32", 4, 3, 0),
        ("fp32", 8, 3 + 1, 1),
        ("fp32", 16, 3 + 2, 2),
        ("fp32", 32, 3 + 3, 3),
        ("fp64", 4, 1 + 1, 2),  # two words each
        ("fp64", 32, 1 + 4, 8),
        ("fp16", 32, 7 + 2, 2),
    ],
)
def test_lanes_share_what_warps_bring_together(from_text, dtype, warps, sums, shuffles) -> None:
    """Each reads 16 bytes at once and adds them up; without sharing it would be all of up to 256 bytes."""
    sample = from_text(
        "def k(x_ptr, y_ptr, N: tl.constexpr):\n    tl.store(y_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, N)), 0))\n",
        {"x_ptr": f"*{dtype}:16", "y_ptr": f"*{dtype}:16"},
        {"N": 4096},
        warps,
    )
    text = sample.program().llvm
    _, after = text[text.index("define ") :].split("call void @llvm.nvvm.barrier.cta.sync")
    assert after.count("= load ") == after.count("= load <") == 1
    assert (after.count("fadd"), after.count("shfl.sync.bfly")) == (sums, shuffles)


SCAN = """
def k(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    offs = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y_ptr + offs, tl.cumsum(tl.load(x_ptr + offs), AXIS, reverse=REVERSE))
"""


@pytest.mark.parametrize("shape", [(1, 1024), (8, 16), (256, 4), (2, 64)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(from_text, simulated, check_ptx, rng, shape, axis, reverse) -> None:
    constants = {"M": shape[0], "N": shape[1], "AXIS": axis, "REVERSE": reverse}
    sample = from_text(SCAN, {"x_ptr": "*i32:16", "y_ptr": "*i32:16"}, constants)
    x = rng.integers(-9, 9, shape, dtype=np.int32)
    y = np.zeros_like(x)
    simulated(sample, (1,), [x, y])
    wanted = np.flip(np.cumsum(np.flip(x, axis), axis), axis) if reverse else np.cumsum(x, axis)
    np.testing.assert_array_equal(y, wanted)
    check_ptx(sample)


# Matrix products ---------------------------------------------------------------------------------------------

DOT = """
def k(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, P: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    c = tl.dot(a, b, input_precision=P)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c)
"""


def as_tf32(x: np.ndarray) -> np.ndarray:
    """What tensor cores read of f32: sign, exponent and ten bits of the mantissa."""
    return (x.view(np.uint32) >> 13 << 13).view(np.float32)


@pytest.mark.parametrize(
    "dtype, precision, instruction, tolerance",
    [
        ("fp16", "tf32", "m16n8k16", 1e-6), ("bf16", "tf32", "m16n8k16", 1e-6),
        ("fp32", "tf32", "m16n8k8", 1e-6), ("fp32", "tf32x3", "m16n8k8", 2e-6), ("fp32", "ieee", "fma", 1e-6),
        ("fp64", "ieee", "m16n8k16", 1e-15), ("i8", "tf32", "m16n8k32", 0), ("fp8e5", "tf32", "m16n8k32", 1e-6),
        ("fp8e4nv", "tf32", "m16n8k32", 1e-6),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(32, 32, 32), (64, 16, 64)])
def test_dot(from_text, simulated, check_ptx, rng, dtype, precision, instruction, tolerance, shape) -> None:
    m, n, k = shape
    accumulator = {"fp64": np.float64, "i8": np.int32}.get(dtype, np.float32)
    out = {"fp64": "*fp64:16", "i8": "*i32:16"}.get(dtype, "*fp32:16")
    sample = from_text(
        DOT,
        {"a_ptr": f"*{dtype}:16", "b_ptr": f"*{dtype}:16", "c_ptr": out},
        {"M": m, "N": n, "K": k, "P": precision},
    )
    a, b = ((rng.standard_normal(s) * (50 if dtype == "i8" else 1)).astype(DTYPES[dtype]) for s in ((m, k), (k, n)))
    c = np.zeros((m, n), accumulator)
    simulated(sample, (1,), [a, b, c])
    if (dtype, precision) == ("fp32", "tf32"):
        a, b = as_tf32(a), as_tf32(b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, exact, atol=tolerance * k * np.abs(exact).max() / 8)
    ptx = check_ptx(sample)
    # A group of four warps takes tiles of 64 rows; f64, and what recovers f32 from tf32, is done by single warps.
    groups = m >= 64 and instruction != "fma" and precision != "tf32x3" and dtype != "fp64"
    assert ("wgmma.mma_async" in ptx) == groups
    assert ("mma.sync" in ptx) == (instruction != "fma" and not groups)
    assert (instruction.replace("m16n8", f"m64n{n}") if groups else instruction) in ptx


def test_a_dot_too_small_for_tensor_cores_is_multiplied_and_added(from_text, simulated, rng) -> None:
    sample = from_text(
        DOT,
        {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "c_ptr": "*fp32:16"},
        {"M": 4, "N": 32, "K": 16, "P": "ieee"},
    )
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((4, 16), (16, 32)))
    c = np.zeros((4, 32), np.float32)
    simulated(sample, (1,), [a, b, c])
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-5)


# Atomics -----------------------------------------------------------------------------------------------------

ATOMIC = """
def k(out_ptr, old_ptr, x_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    old = tl.atomic_{kind}(out_ptr + offs % 4, tl.load(x_ptr + offs), mask=offs % 3 != 0)
    tl.store(old_ptr + offs, old, mask=offs % 3 != 0)
"""


@pytest.mark.parametrize("n", [16, 256])
@pytest.mark.parametrize(
    "kind, dtype",
    [
        ("add", "i32"),
        ("add", "fp32"),
        ("max", "fp32"),
        ("min", "fp32"),
        ("max", "i32"),
        ("xor", "i32"),
    ],
)
def test_atomics_happen_once_an_element(from_text, simulated, check_ptx, rng, kind, dtype, n) -> None:
    sample = from_text(
        ATOMIC.format(kind=kind),
        {"out_ptr": f"*{dtype}:16", "old_ptr": f"*{dtype}:16", "x_ptr": f"*{dtype}:16"},
        {"N": n},
    )
    x = rng.integers(-50, 50, n).astype(DTYPES[dtype])
    out, old = np.zeros(4, x.dtype), np.zeros(n, x.dtype)
    program = sample.program()
    from simulator import simulate

    # What was there before depends on the order, so the two orders are not compared.
    simulate(program.llvm, (1,), [out, old, x], program.num_warps, program.shared_bytes)
    function = {"add": np.add, "max": np.maximum, "min": np.minimum, "xor": np.bitwise_xor}[kind]
    wanted = np.zeros(4, x.dtype)
    active = np.arange(n) % 3 != 0
    function.at(wanted, np.arange(n)[active] % 4, x[active])
    np.testing.assert_array_equal(out, wanted)
    for place in range(4):
        mine = active & (np.arange(n) % 4 == place)
        assert (old[mine] == 0).any(), "somebody was first"
    check_ptx(sample)


def test_scalar_atomic_result_reaches_every_thread(from_text, simulated, check_ptx) -> None:
    text = """
def k(counter_ptr, out_ptr, N: tl.constexpr):
    ticket = tl.atomic_add(counter_ptr, 1)
    tl.store(out_ptr + ticket * N + tl.arange(0, N), ticket)
"""
    sample = from_text(text, {"counter_ptr": "*i32:16", "out_ptr": "*i32:16"}, {"N": 128})
    counter, out = np.zeros(1, np.int32), np.full((3, 128), -1, np.int32)
    simulated(sample, (3,), [counter, out])
    assert counter[0] == 3
    np.testing.assert_array_equal(out, np.repeat(np.arange(3), 128).reshape(3, 128))
    ptx = check_ptx(sample)
    assert "atom.global.gpu.acq_rel.add.u32" in ptx


def test_compare_and_swap(from_text, simulated, check_ptx) -> None:
    text = """
def k(lock_ptr, out_ptr):
    pid = tl.program_id(0)
    old = tl.atomic_cas(lock_ptr, pid, pid + 1, sem="relaxed", scope="cta")
    tl.store(out_ptr + pid, old)
"""
    sample = from_text(text, {"lock_ptr": "*i32:16", "out_ptr": "*i32:16"})
    lock, out = np.zeros(1, np.int32), np.full(4, -1, np.int32)
    simulated(sample, (4,), [lock, out])
    assert lock[0] == 4
    np.testing.assert_array_equal(out, [0, 1, 2, 3])
    assert "atom.global.relaxed.cta.cas.b32" in check_ptx(sample)


# Debugging and modifiers -------------------------------------------------------------------------------------


def test_print_and_assert_call_the_drivers_functions(from_text, check_ptx) -> None:
    text = """
def k(x_ptr, n, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.device_print("x", x)
    tl.device_print("n is", n)
    tl.device_assert(x > 0, "x must be positive")
"""
    sample = from_text(text, {"x_ptr": "*fp32:16", "n": "i32"}, {"N": 64}, debug=True)
    ptx = check_ptx(sample)
    assert "vprintf" in ptx and "__assertfail" in ptx


@pytest.mark.parametrize(
    "call, threads", [("'n is', n", "every"), ("'here'", "every"), ("'x', tl.load(x_ptr + tl.arange(0, 64))", "some")]
)
def test_every_thread_prints_what_is_no_tile(from_text, check_ptx, call, threads) -> None:
    text = f"""
def k(x_ptr, n):
    tl.device_print({call})
"""
    ptx = check_ptx(from_text(text, {"x_ptr": "*fp32:16", "n": "i32"}))
    assert ptx.count("vprintf, (") == 1
    assert ("bra" in ptx) == (threads == "some"), "128 threads have 64 elements"


def test_cache_modifiers_and_eviction(from_text, check_ptx) -> None:
    text = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs, cache_modifier=".cg")
    x += tl.load(x_ptr + offs, eviction_policy="evict_first")
    x += tl.load(x_ptr + offs, volatile=True)
    tl.store(y_ptr + offs, x, cache_modifier=".wt")
    tl.store(y_ptr + offs, x, eviction_policy="evict_last")
"""
    sample = from_text(text, {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}, {"N": 512})
    for target in ("cuda:80", "cuda:90a", "cuda:120"):
        ptx = check_ptx(sample, target)
        for part in (
            "ld.global.cg.v4.b32",
            "ld.global.L1::evict_first.v4.b32",
            "ld.volatile.global.v4.b32",
            "st.global.wt.v4.b32",
            "st.global.L1::evict_last.v4.b32",
        ):
            assert part in ptx, part


def test_masks_that_are_not_constant_over_a_vector_narrow_it(from_text, simulated) -> None:
    text = """
def k(x_ptr, y_ptr, n, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n, other=7), mask=offs < n + 2)
"""
    sample = from_text(text, {"x_ptr": "*i8:16", "y_ptr": "*i8:16", "n": "i32"}, {"N": 256})
    x, y = np.arange(101, dtype=np.int8), np.zeros(103, np.int8)
    simulated(sample, (1,), [x, y, 101])
    np.testing.assert_array_equal(y, [*range(101), 7, 7])


def test_in_place_shift_waits_for_all_reads(from_text, simulated) -> None:
    text = """
def k(x_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(x_ptr + (offs + 37) % N, x)
    y = tl.load(x_ptr + offs)
    tl.store(x_ptr + offs, y * 2)
"""
    sample = from_text(text, {"x_ptr": "*i32:16"}, {"N": 512})
    x = np.arange(512, dtype=np.int32)
    wanted = np.roll(x, 37) * 2
    simulated(sample, (1,), [x])
    np.testing.assert_array_equal(x, wanted)


def test_booleans_in_memory_and_as_arguments(from_text, simulated, check_ptx) -> None:
    text = """
def k(flag_ptr, out_ptr, invert, N: tl.constexpr):
    offs = tl.arange(0, N)
    flags = tl.load(flag_ptr + offs).to(tl.int1)
    tl.store(out_ptr + offs, flags ^ invert)
"""
    sample = from_text(text, {"flag_ptr": "*i1:16", "out_ptr": "*i1:16", "invert": "i1"}, {"N": 512})
    flags, out = np.arange(512) % 3 == 0, np.zeros(512, np.bool_)
    simulated(sample, (1,), [flags, out, 1])
    np.testing.assert_array_equal(out, ~flags)
    check_ptx(sample)


def test_pointers_made_from_integers(from_text, check_ptx) -> None:
    text = """
def k(table_ptr, out_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    row = tl.load(table_ptr + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    rows = tl.load(table_ptr + offs).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + offs, tl.load(row + offs) + tl.load(rows))
"""
    sample = from_text(text, {"table_ptr": "*i64:16", "out_ptr": "*fp32:16"}, {"N": 256})
    for target in ("cuda:80", "cuda:90a"):
        check_ptx(sample, target)
