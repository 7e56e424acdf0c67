"""The same kernels on a real GPU, against float64 NumPy: random shapes, ragged ones included."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from single_operations import as_tf32, one_product
from target_runs import run_in_place

from deuteron.compiler.runtime.devices import get_device
from deuteron.compiler.runtime.launch.compile import compile

pytestmark = pytest.mark.gpu

DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "fp64": np.float64}
SEED = 11


@pytest.fixture(scope="module")
def device():
    return get_device("cuda:0")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(SEED)


@pytest.fixture
def launch(device):
    """Compiles a sample for the device and runs it on arrays, which change in place."""

    def run(sample, grid, arguments) -> None:
        schedule = sample.schedule
        kernel = compile(
            sample.source,
            sample.signature,
            sample.constexprs,
            target=device.target,
            num_warps=schedule.num_warps,
            num_stages=schedule.num_stages,
        )
        names = [a.name for a in sample.source.arguments if a.name in sample.signature]
        folded = [sample.signature[name] == "i32:1" for name in names]
        arguments = [a for a, is_one in zip(arguments, folded, strict=True) if not is_one]
        run_in_place(kernel, grid, arguments, device)

    return run


@pytest.mark.parametrize("n", [16, 4096, 98432])
def test_vector_add(standard_kernels, launch, rng, n) -> None:
    x, y = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    out = np.zeros_like(x)
    launch(standard_kernels["vector_add"], (-(-n // 1024),), [x, y, out, n])
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize(
    "warps, columns",
    [(1, 128), (4, 784), (4, 781), (8, 4096), (16, 1000), (16, 16384), (4, 3), (32, 8192)],
)
def test_softmax(softmax, launch, rng, warps, columns) -> None:
    x = rng.standard_normal((67, columns)).astype(np.float32)
    out = np.zeros_like(x)
    launch(softmax(columns, warps), (13,), [out, x, columns, columns, 67, columns])
    exact = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, exact / exact.sum(axis=1, keepdims=True), rtol=5e-6)


@pytest.mark.parametrize("columns", [1040, 4096, 16])
def test_layer_norm(standard_kernels, launch, rng, columns) -> None:
    rows = 37
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    weight, bias = (rng.standard_normal(columns).astype(np.float32) for _ in range(2))
    y, mean, rstd = np.zeros_like(x), np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    launch(
        standard_kernels["layer_norm"],
        (rows,),
        [x, y, weight, bias, mean, rstd, columns, columns, 1e-5],
    )
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5)
    exact = (wide - wide.mean(axis=1, keepdims=True)) * scale * weight + bias
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize(
    "shape, block, warps",
    [
        ((256, 256, 256), (128, 128, 32), 4),
        ((512, 384, 128), (64, 128, 64), 8),
        ((321, 250, 190), (64, 64, 32), 4),
        ((33, 47, 61), (16, 32, 16), 2),
        ((128, 64, 512), (32, 32, 64), 1),
    ],
)
def test_matmul(matmul, launch, rng, dtype, shape, block, warps) -> None:
    m, n, k = shape
    a, b = (rng.standard_normal(s).astype(DTYPES[dtype]) for s in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float16)
    grid = (-(-m // block[0]) * -(-n // block[1]),)
    launch(matmul(dtype, shape, block, warps, "leaky_relu"), grid, [a, b, c, m, n, k, k, 1, n, 1, n, 1])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    exact = np.where(exact >= 0, exact, 0.01 * exact)
    np.testing.assert_allclose(c, exact, atol=2e-3 * np.abs(exact).max())


@pytest.mark.parametrize(
    "dtype, precision, tolerance",
    [
        ("fp16", "tf32", 1e-6), ("bf16", "tf32", 1e-6), ("fp32", "tf32", 1e-6), ("fp32", "tf32x3", 3e-6),
        ("fp32", "ieee", 1e-6), ("fp64", "ieee", 1e-15), ("i8", "tf32", 0), ("fp8e5", "tf32", 1e-3),
        ("fp8e4nv", "tf32", 1e-3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(32, 32, 32), (128, 64, 64), (4, 32, 16)])
def test_dot(from_text, launch, rng, dtype, precision, tolerance, shape) -> None:
    m, _, k = shape
    sample, a, b, c = one_product(from_text, rng, dtype, precision, shape)
    launch(sample, (1,), [a, b, c])
    if (dtype, precision) == ("fp32", "tf32") and m >= 16:  # smaller tiles are multiplied and added in f32
        a, b = as_tf32(a), as_tf32(b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, exact, atol=tolerance * k * np.abs(exact).max() / 8)


DOUBLES = """
def doubles(a, b, c, R, S, K, sam, sak, sbk, sbn, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    inside = (m[:, None] < R) & (n[None, :] < S)
    out = c + m[:, None] * S + n[None, :]
    acc = tl.load(out, mask=inside, other=0.0)
    for i in range(0, tl.cdiv(K, BK)):
        k = i * BK + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * sam + k[None, :] * sak, mask=(m[:, None] < R) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * sbk + n[None, :] * sbn, mask=(k[:, None] < K) & (n[None, :] < S), other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(out, acc, mask=inside)
"""


@pytest.mark.parametrize("across", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(
    ("shape", "block", "warps"),
    [
        ((256, 192, 320), (64, 64, 16), 4),
        ((256, 256, 128), (128, 64, 16), 4),
        ((256, 256, 128), (128, 128, 16), 8),
        ((200, 190, 75), (64, 64, 32), 8),
        ((37, 41, 53), (16, 16, 8), 4),
        ((33, 24, 20), (8, 8, 4), 2),
        ((40, 40, 40), (8, 32, 16), 1),
        ((40, 40, 40), (4, 16, 16), 4),
    ],
)
def test_products_of_doubles(from_text, launch, rng, shape, block, warps, across) -> None:
    """Of integers that are exact, and of numbers between as exactly as f64 adds."""
    m, n, k = shape
    strides = {"sam": 1, "sak": m} if across[0] else {"sam": k, "sak": 1}
    strides |= {"sbk": 1, "sbn": k} if across[1] else {"sbk": n, "sbn": 1}
    numbers = {"R": m, "S": n, "K": k, **strides}
    kinds = {name: "i32:1" if x == 1 else "i32:16" if x % 16 == 0 else "i32" for name, x in numbers.items()}
    signature = dict.fromkeys("abc", "*fp64:16") | kinds
    sample = from_text(DOUBLES, signature, dict(zip(("M", "N", "BK"), block, strict=True)), warps)
    grid = (-(-m // block[0]), -(-n // block[1]))
    for exact in (True, False):
        shapes = ((m, k), (k, n), (m, n))
        a, b, start = (
            rng.integers(-(1 << 21), 1 << 21, s).astype(np.float64) if exact else rng.standard_normal(s) for s in shapes
        )
        lying = [np.ascontiguousarray(x.T if turned else x) for x, turned in zip((a, b), across, strict=True)]
        c = start.copy()
        launch(sample, grid, [*lying, c, *numbers.values()])
        allowed = 0 if exact else (k + 1) * np.finfo(np.float64).eps * (np.abs(a) @ np.abs(b) + np.abs(start))
        assert (np.abs(c - (a @ b + start)) <= allowed).all()


MATHS = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, tl.{function}(tl.load(x_ptr + offs)))
"""


@pytest.mark.parametrize("dtype, tolerance", [("fp32", 1e-6), ("fp64", 1e-14)])
@pytest.mark.parametrize("function", ["exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt"])
def test_maths(from_text, launch, rng, function, dtype, tolerance) -> None:
    sample = from_text(
        MATHS.format(function=function),
        {"x_ptr": f"*{dtype}:16", "y_ptr": f"*{dtype}:16"},
        {"N": 1024},
    )
    span = 1e5 if function in ("sin", "cos") else 20
    x = rng.uniform(-span, span, 1024).astype(DTYPES[dtype])
    x = np.abs(x) if function in ("log", "log2", "sqrt", "rsqrt") else x
    y = np.zeros_like(x)
    launch(sample, (1,), [x, y])
    wide = x.astype(np.float64)
    exact = 1 / np.sqrt(wide) if function == "rsqrt" else getattr(np, function)(wide)
    growth = 10 if function == "exp" else 1
    np.testing.assert_allclose(y, exact, rtol=growth * tolerance, atol=tolerance)


COUNT = """
def k(counts_ptr, order_ptr, x_ptr, n, N: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * N + tl.arange(0, N)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0)
    tl.atomic_add(counts_ptr + x, 1, mask=offs < n)
    ticket = tl.atomic_add(order_ptr, 1)
    tl.store(order_ptr + 1 + ticket, pid)
"""


def test_atomics(from_text, launch, rng) -> None:
    n, bins = 100_003, 37
    sample = from_text(
        COUNT,
        {"counts_ptr": "*i32:16", "order_ptr": "*i32:16", "x_ptr": "*i32:16", "n": "i32"},
        {"N": 256},
    )
    x = rng.integers(0, bins, n, dtype=np.int32)
    programs = -(-n // 256)
    counts, order = np.zeros(bins, np.int32), np.zeros(programs + 1, np.int32)
    launch(sample, (programs,), [counts, order, x, n])
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=bins))
    assert order[0] == programs
    np.testing.assert_array_equal(np.sort(order[1:]), np.arange(programs))


EXTREMA = """
def k(out_ptr, x_ptr, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.atomic_max(out_ptr + 0 * offs, x)
    tl.atomic_min(out_ptr + 1 + 0 * offs, x)
"""


def test_float_extrema_by_integer_atomics(from_text, launch, rng) -> None:
    sample = from_text(EXTREMA, {"out_ptr": "*fp32:16", "x_ptr": "*fp32:16"}, {"N": 256})
    for shift in (-100, 0, 100):
        x = (rng.standard_normal(2048) + shift).astype(np.float32)
        out = np.array([-np.inf, np.inf], np.float32)
        launch(sample, (8,), [out, x])
        assert out[0] == x.max() and out[1] == x.min()


SCAN = """
def k(x_ptr, y_ptr, N: tl.constexpr, REVERSE: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, tl.cumsum(tl.load(x_ptr + offs), 0, reverse=REVERSE))
"""


@pytest.mark.parametrize("n", [2, 64, 4096])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(from_text, launch, rng, n, reverse) -> None:
    sample = from_text(SCAN, {"x_ptr": "*i32:16", "y_ptr": "*i32:16"}, {"N": n, "REVERSE": reverse})
    x = rng.integers(-9, 9, n, dtype=np.int32)
    y = np.zeros_like(x)
    launch(sample, (1,), [x, y])
    np.testing.assert_array_equal(y, np.cumsum(x[::-1])[::-1] if reverse else np.cumsum(x))


PAIRS = """
def k(x_ptr, y_ptr, p_ptr, q_ptr, N: tl.constexpr, REVERSE: tl.constexpr, TURNS: tl.constexpr):
    offs = tl.arange(0, N)
    p, q = tl.load(x_ptr + offs), tl.load(y_ptr + offs)
    for _ in range(TURNS):
        p, q = tl.associative_scan((p, q), 0, after, reverse=REVERSE)
    tl.store(p_ptr + offs, p)
    tl.store(q_ptr + offs, q)

@triton.jit
def after(a, b, c, d):
    return a * c, b * c + d
"""


@pytest.mark.parametrize(("n", "warps"), [(256, 4), (1024, 4), (4096, 8), (8192, 32), (512, 32)])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_of_pairs_one_after_the_other(from_text, launch, rng, n: int, warps: int, reverse: bool) -> None:
    """Warps tell each other totals in the memory where others may still read those of the scan before."""
    constants = {"N": n, "REVERSE": reverse, "TURNS": 3}
    sample = from_text(PAIRS, dict.fromkeys(("x_ptr", "y_ptr", "p_ptr", "q_ptr"), "*i32:16"), constants, warps)
    x, y = (rng.integers(-9, 9, n, dtype=np.int32) | 1 for _ in range(2))
    p, q = np.zeros_like(x), np.zeros_like(y)
    launch(sample, (1,), [x, y, p, q])
    with np.errstate(over="ignore"):
        for _ in range(3):
            order = range(n - 2, -1, -1) if reverse else range(1, n)
            for i in order:
                before = i + 1 if reverse else i - 1
                x[i], y[i] = x[before] * x[i], y[before] * x[i] + y[i]
    np.testing.assert_array_equal(p, x)
    np.testing.assert_array_equal(q, y)


def test_random_functions_agree_with_the_interpreter(functions, device) -> None:
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    from deuteron.compiler.targets import interpreter

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        function, arguments = data.draw(functions(floats=False, effects=False, steps=15))
        wanted = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        with np.errstate(all="ignore"):
            interpreter.run(function, (1,), wanted)  # more would store to the same places, in any order
        made = _launch_function(function, arguments, device)
        for got, want in zip(made, wanted, strict=True):
            if isinstance(got, np.ndarray):
                np.testing.assert_array_equal(got, want)

    check()


def _launch_function(function, arguments, device):
    """Lower a tile function and launch one program of it through the driver, with 4 warps."""
    from cuda.bindings import driver

    from deuteron.compiler.gpu import lower_to_gpu
    from deuteron.compiler.options import Schedule
    from deuteron.compiler.targets import Target
    from deuteron.compiler.targets.nvptx import emit_ptx, lower_to_llvm

    target, schedule = Target.parse(device.target), Schedule()
    program = lower_to_llvm(lower_to_gpu(function, target, schedule), target, schedule)
    ptx = emit_ptx(program, target).encode()
    held = [device.array(np.atleast_1d(a)) if isinstance(a, np.ndarray) else a for a in arguments]
    values = [np.array(h, np.int32) if isinstance(h, int) else np.array(_address(h), np.uint64) for h in held]
    error, module = driver.cuModuleLoadData(ptx)
    assert int(error) == 0, error
    error, kernel = driver.cuModuleGetFunction(module, program.name.encode())
    assert int(error) == 0, error
    addresses = np.array([v.ctypes.data for v in values], np.uint64)
    (error,) = driver.cuLaunchKernel(
        kernel,
        1,
        1,
        1,
        32 * program.num_warps,
        1,
        1,
        program.shared_bytes,
        0,
        addresses.ctypes.data,
        0,
    )
    assert int(error) == 0, error
    device.synchronize()
    made = [
        h.to_numpy().reshape(a.shape) if isinstance(a, np.ndarray) else a for h, a in zip(held, arguments, strict=True)
    ]
    driver.cuModuleUnload(module)
    return made


def _address(array) -> int:
    return array.__cuda_array_interface__["data"][0]
