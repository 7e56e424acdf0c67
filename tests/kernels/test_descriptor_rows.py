"""Rows and atomics of tensor descriptors, against NumPy's indexing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import CompilationError

ROWS, COLUMNS, COUNT, WIDTH = 12, 48, 16, 32


@triton.jit
def gathered(x, numbers, out, column, R, C, COUNT: tl.constexpr, WIDTH: tl.constexpr, PADDING: tl.constexpr = "zero"):
    source = tl.make_tensor_descriptor(x, [R, C], [C, 1], [1, WIDTH], PADDING)
    tile = source.gather(tl.load(numbers + tl.arange(0, COUNT)), column)
    tl.store(out + tl.arange(0, COUNT)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], tile)


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("column", [0, 16, 24, -8])
def test_gather_of_rows(launch, rng, normal, column, padding):
    x = normal(ROWS, COLUMNS)
    numbers = rng.integers(-2, ROWS + 2, COUNT).astype(np.int16 if column else np.int32)
    args = (x, numbers, np.ones((COUNT, WIDTH), np.float32), column, ROWS, COLUMNS)
    got = launch(gathered, (1,), *args, COUNT=COUNT, WIDTH=WIDTH, PADDING=padding)[2]
    wide = np.full((ROWS + 4, COLUMNS + 2 * WIDTH), np.nan if padding == "nan" else 0, np.float32)
    wide[2 : 2 + ROWS, WIDTH : WIDTH + COLUMNS] = x
    assert np.array_equal(got, wide[numbers + 2, WIDTH + column : 2 * WIDTH + column], equal_nan=True)


@triton.jit
def scattered(x, numbers, out, column, R, C, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    target = tl.make_tensor_descriptor(out, [R, C], [C, 1], [1, WIDTH])
    tile = tl.load(x + tl.arange(0, COUNT)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :])
    target.scatter(tile, tl.load(numbers + tl.arange(0, COUNT)), column)


@pytest.mark.parametrize("column", [0, 24, -8])
def test_scatter_of_rows(launch, rng, normal, column):
    x, numbers = normal(COUNT, WIDTH), (rng.permutation(COUNT) - 2).astype(np.int32)
    out = np.ones((ROWS, COLUMNS), np.float32)
    got = launch(scattered, (1,), x, numbers, out, column, ROWS, COLUMNS, COUNT=COUNT, WIDTH=WIDTH)[2]
    wide = np.ones((COUNT + 4, COLUMNS + 2 * WIDTH), np.float32)
    wide[numbers + 2, WIDTH + column : 2 * WIDTH + column] = x
    assert np.array_equal(got, wide[2 : 2 + ROWS, WIDTH : WIDTH + COLUMNS])


@triton.jit
def updated(x, out, R, C, KIND: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    target = tl.make_tensor_descriptor(out, [R, C], [C, 1], [BR, BC])
    row, column = tl.program_id(0) * BR, tl.program_id(1) * BC
    tile = tl.load(x + (row + tl.arange(0, BR))[:, None] * 64 + (column + tl.arange(0, BC))[None, :])
    getattr(target, "atomic_" + KIND)([row, column], tile)


@pytest.mark.parametrize(
    ("kind", "combine", "dtype"),
    [
        ("add", np.add, np.float32),
        ("add", np.add, np.uint64),
        ("max", np.maximum, np.int32),
        ("min", np.minimum, np.uint32),
        ("and", np.bitwise_and, np.int32),
        ("or", np.bitwise_or, np.int64),
        ("xor", np.bitwise_xor, np.uint32),
    ],
)
def test_atomics_of_a_block(launch, rng, kind, combine, dtype):
    low = 0 if np.dtype(dtype).kind == "u" else -100
    x, out = (rng.integers(low, 100, shape).astype(dtype) for shape in ((32, 64), (20, 40)))
    got = launch(updated, (2, 2), x, out, 20, 40, KIND=kind, BR=16, BC=32)[1]
    assert np.array_equal(got, combine(out, x[:20, :40]))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("kind", "combine"), [("max", np.fmax), ("min", np.fmin)])
def test_extrema_of_halves(launch, normal, dtype, kind, combine):
    """Of a NaN and a number the number is left, as PTX has it."""
    x, out = normal(32, 64).astype(dtype), normal(20, 40).astype(dtype)
    x[3, :9], out[2:5, 4:12] = np.nan, np.nan
    out[7, :4] = 0, -np.inf, np.inf, 0.0
    got = launch(updated, (2, 2), x, out, 20, 40, KIND=kind, BR=16, BC=32)[1]
    wide = combine(out.astype(np.float32), x[:20, :40].astype(np.float32))
    assert np.array_equal(got.astype(np.float32), wide, equal_nan=True)
    assert np.isnan(wide).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("d.gather(n, 0)", "needs a descriptor whose block is one row"),
        ("r.gather(n.to(tl.int64), 0)", "row numbers, got tile<16xi64>"),
        ("r.gather(3, 0)", "gather takes a tensor"),
        ("r.scatter(tl.zeros((8, 32), tl.float32), n, 0)", r"scatter of 16 rows takes \[16, 32\]"),
        ("d.atomic_add([0, 0], tl.zeros((8, 32), tl.float32))", r"a value of shape \[16, 32\]"),
        ("d.atomic_add([0], tl.zeros((16, 32), tl.float32))", "1 entries for 2 dimensions"),
        ("d.atomic_xor([0, 0], tl.zeros((16, 32), tl.float32))", "xor"),
    ],
)
def test_what_does_not_fit(call, message):
    @triton.jit
    def kernel(x):
        CALL  # noqa: B018, F821 -- replaced below

    head = """r = tl.make_tensor_descriptor(x, [64, 64], [64, 1], [1, 32])
    d = tl.make_tensor_descriptor(x, [64, 64], [64, 1], [16, 32])
    n = tl.arange(0, 16)
    """
    kernel._unsafe_update_src(kernel.src.replace("CALL", head + call))
    with pytest.raises(CompilationError, match=message):
        kernel[(1,)](np.zeros((64, 64), np.float32))
