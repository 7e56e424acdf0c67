"""Reductions and scans along either axis, on the simulator against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from single_operations import DTYPES

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


MEAN = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    mean, _ = tl.reduce((x, tl.full((N,), 1, x.dtype)), 0, {combine})
    tl.store(y_ptr + i, tl.broadcast_to(mean, (N,)))


@triton.jit
def means(mean, count, other, others):
    total = count + others
    return mean + (other - mean) * (others / total), total


@triton.jit
def sums(x, count, other, others):
    return x + other, others * count


@triton.jit
def nearest(x, count, other, others):
    first = (x.abs() < other.abs()) | ((x.abs() == other.abs()) & (count < others))
    return tl.where(first, x, other), tl.where(first, count, others)


@triton.jit
def products(x, y, other, others):
    return x * other - y * others, x * others + y * other
"""


@pytest.mark.parametrize("warps", [1, 2, 8, 32])
@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_a_result_is_one_number_in_all_lanes(from_text, simulated, rng, dtype, warps) -> None:
    """Which of two means is the left one differs between lanes, and so does what is rounded."""
    types = {"x_ptr": f"*{dtype}:16", "y_ptr": f"*{dtype}:16"}
    sample = from_text(MEAN.format(combine="means"), types, {"N": 1024}, warps)
    x = rng.standard_normal(1024).astype(DTYPES[dtype])
    y = np.zeros_like(x)
    simulated(sample, (1,), [x, y])
    np.testing.assert_array_equal(y, y[0])
    np.testing.assert_allclose(y[0], x.astype(np.float64).mean(), atol=1e-6)


@pytest.mark.parametrize(
    ("combine", "shuffles"), [("means", 10 + 2), ("sums", 10), ("nearest", 10), ("products", 10 + 2)]
)
def test_only_lanes_that_round_otherwise_are_told(from_text, combine, shuffles) -> None:
    types = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}
    text = from_text(MEAN.format(combine=combine), types, {"N": 256}, 1).program().llvm
    assert text[text.index("define ") :].count("shfl.sync") == shuffles


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


TIMES = """
@triton.jit
def times(x, y):
    return x * y
"""


@pytest.mark.parametrize(("dtype", "together"), [("fp32", 1), ("fp16", 2), ("bf16", 2), ("i8", 4)])
def test_narrow_results_of_a_thread_travel_together(from_text, simulated, rng, dtype, together) -> None:
    """Eight rows a warp, all lanes along each: as many at once as fit the 32 bits of a shuffle, five times."""
    types = {"x_ptr": f"*{dtype}:16", "y_ptr": f"*{dtype}:16"}
    text = REDUCE.format(reduction="tl.reduce(x, 1, times)") + TIMES
    sample = from_text(text, types, {"M": 8, "N": 512, "AXIS": 1}, 1)
    llvm = sample.program().llvm
    assert llvm[llvm.index("define ") :].count("shfl.sync.bfly") == 5 * 8 // together
    x = rng.choice([-1, 1], (8, 512)).astype(DTYPES[dtype])
    x[:, 37] = np.arange(1, 9)
    y = np.zeros(8, x.dtype)
    simulated(sample, (1,), [x, y])
    np.testing.assert_array_equal(y, x.astype(np.int64).prod(axis=1))


OF_SOME_WIDTHS = """
def k(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr):
    rows = tl.arange(0, M)
    x = tl.load(x_ptr + rows[:, None] * N + tl.arange(0, N)[None, :])
    wide, some, least = tl.reduce((x, x > 7, x.to(tl.int16)), 1, each)
    tl.store(y_ptr + rows, wide)
    tl.store(y_ptr + M + rows, some)
    tl.store(y_ptr + 2 * M + rows, least)

@triton.jit
def each(x, y, z, others, any_y, more):
    return x + others, y | any_y, tl.minimum(z, more)
"""


@pytest.mark.parametrize(("rows", "shuffles"), [(2, 1 + 1 + 2), (8, 2 + 4 + 8), (16, 4 + 8 + 16)])
def test_what_is_narrow_travels_together_beside_what_is_wide(from_text, simulated, rng, rows, shuffles) -> None:
    """Four booleans and two 16-bit numbers a shuffle, and one of 32 bits, five times."""
    sample = from_text(OF_SOME_WIDTHS, {"x_ptr": "*i32:16", "y_ptr": "*i32:16"}, {"M": rows, "N": 128}, 1)
    llvm = sample.program().llvm
    assert llvm[llvm.index("define ") :].count("shfl.sync.bfly") == 5 * shuffles
    x, y = rng.integers(-9, 9, (rows, 128)).astype(np.int32), np.zeros((3, rows), np.int32)
    x[::3] = np.minimum(x[::3], 7)
    simulated(sample, (1,), [x, y])
    np.testing.assert_array_equal(y, [x.sum(1), (x > 7).any(1), x.min(1)])


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
