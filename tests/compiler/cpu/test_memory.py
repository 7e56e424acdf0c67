"""Loads, stores and atomics: masked-off elements never touch memory, and any pointer pattern works."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.compiler.ir.types import F32
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import cpu
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile import memory as m
from deuteron.compiler.tile import program as p
from deuteron.compiler.tile import shape as s


def copy_kernel(kernel, name, block, *, divisibility=1):
    """out[i] = x[i] for i < n, one block of a grid each."""
    x, out = (kernel.parameter(n, f"*{name}", divisibility) for n in ("x", "out"))
    n = kernel.parameter("n", "i32")
    start = kernel.binary(e.Mul, kernel.emit(p.ProgramId(0)), block)
    offsets = kernel.binary(e.Add, kernel.arange(block), start)
    mask = kernel.less(offsets, n)
    kernel.store(kernel.pointers(out, offsets), kernel.load(kernel.pointers(x, offsets), mask), mask)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16, ml_dtypes.bfloat16, np.float32, np.int64])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 100, 127, 128, 300])
def test_masked_copies_stay_inside_their_arrays(kernel, run, guarded, dtype, n):
    from_numpy = {
        "bool": "i1",
        "int8": "i8",
        "float16": "f16",
        "bfloat16": "bf16",
        "float32": "f32",
        "int64": "i64",
    }
    copy_kernel(kernel, from_numpy[np.dtype(dtype).name], 128)
    x = guarded(np.random.default_rng(n).integers(0, 2, n).astype(dtype))
    out = guarded(np.zeros(n, dtype))
    run(kernel.function, [x.array, out.array, n], (-(-n // 128),))
    np.testing.assert_array_equal(out.array, x.array)


@given(rows=st.integers(1, 20), columns=st.integers(1, 40), by_column=st.booleans(), data=st.randoms())
@settings(max_examples=40)
def test_boxes_of_any_stride_stay_inside(rows, columns, by_column, data):
    """A 16x32 tile over an array that ends at a guard page, row-major or column-major."""
    from_here = test_boxes_of_any_stride_stay_inside.helpers
    kernel, run, guarded = from_here
    kernel = type(kernel)()
    x, out = (kernel.parameter(n, "*f32") for n in ("x", "out"))
    numbers = [kernel.parameter(n, "i32") for n in ("rows", "columns", "row_stride", "column_stride")]
    offsets = kernel.grid_of((16, 32), numbers[2:])
    masks = []
    for axis, (size, limit) in enumerate(((16, numbers[0]), (32, numbers[1]))):
        index = kernel.emit(s.ExpandDims(kernel.arange(size), 1 - axis))
        masks.append(kernel.emit(s.Broadcast(kernel.less(index, limit), (16, 32))))
    mask = kernel.emit(e.And(*masks))
    other = kernel.constant(7.0, "tile<16x32xf32>")
    loaded = kernel.load(kernel.pointers(x, offsets), mask, other)
    kernel.store(kernel.rows(out, (16, 32)), loaded)
    shape = (min(rows, 16), min(columns, 32))
    held = np.random.default_rng(data.getrandbits(32)).random(shape[::-1] if by_column else shape)
    held = guarded(held.astype(np.float32))
    strides = (1, shape[0]) if by_column else (shape[1], 1)
    found = np.zeros((16, 32), np.float32)
    run(kernel.function, [held.array, found, *shape, *strides])
    wanted = np.full((16, 32), 7.0, np.float32)
    wanted[: shape[0], : shape[1]] = held.array.T if by_column else held.array
    np.testing.assert_array_equal(found, wanted)


@pytest.fixture(autouse=True)
def _helpers(kernel, run, guarded):
    # Hypothesis gives each example its own kernel; function-scoped fixtures cannot be arguments there.
    test_boxes_of_any_stride_stay_inside.helpers = (kernel, run, guarded)


@pytest.mark.parametrize("n", [0, 1, 40, 63, 64])
def test_masked_off_elements_of_vectors_are_other(kernel, run, n):
    """One vector access, so the mask and ``other`` go into the instruction."""
    x, out = kernel.parameter("x", "*f32"), kernel.parameter("out", "*f32")
    bound = kernel.parameter("n", "i32")
    index = kernel.arange(64)
    other = kernel.emit(e.Neg(kernel.emit(e.Cast(index, F32))))
    loaded = kernel.load(kernel.pointers(x, index), kernel.less(index, bound), other)
    kernel.store(kernel.pointers(out, index), loaded)
    data, found = np.random.default_rng(0).random(64, np.float32), np.ones(64, np.float32)
    run(kernel.function, [data, found, n])
    np.testing.assert_array_equal(found, np.where(np.arange(64) < n, data, -np.arange(64, dtype=np.float32)))


def test_vectors_whose_lanes_are_all_off_are_not_loaded(kernel):
    """In pages that are not mapped they would cost hundreds of cycles: a branch goes around each."""
    copy_kernel(kernel, "f32", 16)
    lines = cpu.lower_to_llvm(kernel.function, Schedule()).llvm.splitlines()
    loads = [number for number, line in enumerate(lines) if "= call" in line and "llvm.masked.load" in line]
    assert loads
    for number in loads:
        label = next(line.removesuffix(":") for line in reversed(lines[:number]) if line.endswith(":"))
        (branch,) = (line for line in lines if f"label %{label}," in line)
        condition = branch.partition("br i1 ")[2].partition(",")[0]
        assert any(line.strip().startswith(f"{condition} = call i1 @llvm.vector.reduce.or") for line in lines)


@pytest.mark.parametrize("stride", [-2, -1, 0, 1, 2, 3])
def test_constant_strides(kernel, run, stride):
    """out[s * i] = x[s * i + 1] for a stride that is known: a progression, contiguous for one stride only."""
    x, out = kernel.parameter("x", "*i32"), kernel.parameter("out", "*i32")
    index = kernel.arange(64)
    scaled = kernel.binary(e.Mul, index, stride)
    value = kernel.load(kernel.pointers(x, kernel.binary(e.Add, scaled, 1)))
    kernel.store(kernel.pointers(out, scaled), value)
    data, found, middle = np.arange(512, dtype=np.int32), np.zeros(512, np.int32), 256
    run(kernel.function, [data[middle:], found[middle:]])
    wanted = np.zeros(512, np.int32)
    for i in range(64):
        wanted[middle + stride * i] = data[middle + stride * i + 1]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("first, second", [(2, 1), (1, 2), (0, 1), (1, -1), (3, 3)])
def test_differences_of_progressions(kernel, run, first, second):
    """x[300 + a i - b i]: contiguous forwards, backwards, constant, or neither."""
    x, out = kernel.parameter("x", "*i32"), kernel.parameter("out", "*i32")
    index = kernel.arange(64)
    parts = [kernel.binary(e.Mul, index, stride) for stride in (first, second)]
    where = kernel.emit(e.Sub(kernel.binary(e.Add, parts[0], 300), parts[1]))
    kernel.store(kernel.pointers(out, index), kernel.load(kernel.pointers(x, where)))
    data, found = np.arange(600, dtype=np.int32) ** 2, np.zeros(64, np.int32)
    run(kernel.function, [data, found])
    np.testing.assert_array_equal(found, data[300 + (first - second) * np.arange(64)])


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_atomic_extremes_follow_the_sign_of_the_type(kernel, run, kind, dtype):
    name = f"{'u' if np.dtype(dtype).kind == 'u' else 'i'}{np.dtype(dtype).itemsize * 8}"
    cells, values = kernel.parameter("cells", f"*{name}"), kernel.parameter("values", f"*{name}")
    index = kernel.arange(4)
    kernel.emit(m.AtomicRMW(kernel.pointers(cells, index), kernel.load(kernel.pointers(values, index)), None, kind))
    bits = f"i{np.dtype(dtype).itemsize}"
    held, given_values = (np.array(v, bits).view(dtype) for v in ([-1, 1, -5, 7], [1, -1, -9, 3]))
    wanted = (np.maximum if kind == "max" else np.minimum)(held, given_values)
    run(kernel.function, [held, given_values])
    np.testing.assert_array_equal(held, wanted)


def test_gather_and_scatter(kernel, run):
    index, x, out = (
        kernel.parameter("index", "*i64"),
        kernel.parameter("x", "*f32"),
        kernel.parameter("out", "*f32"),
    )
    where = kernel.load(kernel.rows(index, (64,)))
    kernel.store(kernel.pointers(out, where), kernel.load(kernel.pointers(x, where)))
    order = np.random.default_rng(0).permutation(64)
    data, found = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    run(kernel.function, [order, data, found])
    np.testing.assert_array_equal(found, data)


def test_pointers_loaded_from_memory(kernel, run):
    table, out = kernel.parameter("table", "**f32"), kernel.parameter("out", "*f32")
    inner = kernel.load(kernel.rows(table, (8,)))
    kernel.store(kernel.rows(out, (8,)), kernel.load(inner))
    parts = [np.full(1, i, np.float32) for i in range(8)]
    found = np.zeros(8, np.float32)
    run(kernel.function, [np.array([a.ctypes.data for a in parts], np.uint64), found])
    np.testing.assert_array_equal(found, np.arange(8))


def test_a_store_does_not_overtake_earlier_loads(kernel, run):
    """x[i + 1] = x[i]: all loads come first, even where a block is many chunks long."""
    x = kernel.parameter("x", "*i32")
    offsets = kernel.arange(256)
    value = kernel.load(kernel.pointers(x, offsets))
    after = kernel.binary(e.Add, offsets, 1)
    kernel.store(kernel.pointers(x, after), value)
    data = np.arange(257, dtype=np.int32)
    run(kernel.function, [data])
    np.testing.assert_array_equal(data, [0, *range(256)])


def test_loads_between_stores_see_the_first_one_only(kernel, run):
    x, out = kernel.parameter("x", "*i32"), kernel.parameter("out", "*i32")
    where = kernel.rows(x, (64,))
    kernel.store(where, kernel.constant(1, "tile<64xi32>"))
    between = kernel.load(where)
    kernel.store(where, kernel.constant(2, "tile<64xi32>"))
    kernel.store(kernel.rows(out, (64,)), between)
    data, found = np.zeros(64, np.int32), np.zeros(64, np.int32)
    run(kernel.function, [data, found])
    assert (data == 2).all() and (found == 1).all()


@pytest.mark.parametrize("size", [1, 64])
@pytest.mark.parametrize(
    "kind,name", [(k, n) for k in m.RMW_KINDS for n in ("i32", "u32", "i64", "u64", "f32", "f64", "f16", "bf16")
                  if n[0] in "iu" or k == "add" or ("16" not in n and k in ("max", "min", "xchg"))]
)  # fmt: skip
def test_atomics(kernel, run, kind, name, size):
    """Every lane in order on one address, masked off every third time; the results are what was there."""
    x, values, out = (kernel.parameter(n, f"*{name}") for n in ("x", "values", "out"))
    index = kernel.arange(size)
    mask = kernel.emit(e.Compare(kernel.binary(e.Rem, index, 3), kernel.constant(2, index.type), "ne"))
    value = kernel.load(kernel.pointers(values, index))
    old = kernel.emit(m.AtomicRMW(kernel.splat(x, (size,)), value, mask, kind))
    kernel.store(kernel.pointers(out, index), old, mask)
    dtype = {"bf16": ml_dtypes.bfloat16}.get(name) or np.dtype(
        name.replace("u", "uint").replace("i", "int").replace("f", "float").replace("uintnt", "uint")
    )
    given_values = np.random.default_rng(0).integers(0, 100, size).astype(dtype)
    cell, found = np.array([50]).astype(dtype), np.zeros(size, dtype)
    run(kernel.function, [cell, given_values, found])
    combine = {
        "add": lambda a, b: a + b, "max": max, "min": min, "and": lambda a, b: a & b,
        "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "xchg": lambda a, b: b,
    }[kind]  # fmt: skip
    state = np.array(50).astype(dtype)[()]
    for i in range(size):
        if i % 3 != 2:
            assert found[i] == state
            state = np.array(combine(state, given_values[i])).astype(dtype)[()]
    assert cell[0] == state


def test_compare_and_swap(kernel, run):
    x, out = kernel.parameter("x", "*i32"), kernel.parameter("out", "*i32")
    index = kernel.arange(16)
    half = kernel.binary(e.Rem, index, 2)
    new = kernel.constant(9, "tile<16xi32>")
    old = kernel.emit(m.AtomicCAS(kernel.pointers(x, index), half, new))
    kernel.store(kernel.pointers(out, index), old)
    data, found = np.zeros(16, np.int32), np.ones(16, np.int32)
    run(kernel.function, [data, found])
    assert (found == 0).all()
    np.testing.assert_array_equal(data, [9, 0] * 8)


def test_atomics_of_many_threads_lose_nothing(kernel, run):
    x = kernel.parameter("x", "*f32")
    one = kernel.constant(1.0, "f32")
    kernel.emit(m.AtomicRMW(x, one, None, "add", "relaxed"))
    total = np.zeros(1, np.float32)
    run(kernel.function, [total], (20_000,), threads=4)
    assert total[0] == 20_000


def test_contiguous_access_is_one_vector_access(kernel):
    copy_kernel(kernel, "f32", 1024)
    program = cpu.lower_to_llvm(kernel.function, Schedule())
    assert "masked.load" in program.llvm and "masked.store" in program.llvm
    assert "gather" not in program.llvm and "scatter" not in program.llvm
    assert program.scratch_bytes == 4 * 1024  # for arrays that overlap: all is computed before any of it is stored


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("sizes", [(16, 64), (1, 64), (64, 1)])
def test_rows_are_changed_in_place_without_a_copy(kernel, sizes, order):
    x, stride = kernel.parameter("x", "*f32"), kernel.parameter("stride", "i32")
    pointers = kernel.emit(s.Permute(kernel.pointers(x, kernel.grid_of(sizes, (stride, 1))), order))
    kernel.store(pointers, kernel.binary(e.Mul, kernel.load(pointers), 2.0))
    assert cpu.lower_to_llvm(kernel.function, Schedule()).scratch_bytes == 0


@pytest.mark.parametrize("axis", [0, 1])
def test_a_transposed_row_is_changed_in_place_without_a_copy(kernel, axis):
    line = kernel.pointers(kernel.parameter("x", "*f32"), kernel.arange(64))
    pointers = kernel.emit(s.Permute(kernel.emit(s.ExpandDims(line, axis)), (1, 0)))
    kernel.store(pointers, kernel.binary(e.Mul, kernel.load(pointers), 2.0))
    assert cpu.lower_to_llvm(kernel.function, Schedule()).scratch_bytes == 0


@pytest.mark.parametrize("n", [0, 1, 1023, 1024, 1025, (1 << 31) - 1])
@pytest.mark.parametrize("start", [0, 512, (1 << 31) - 512])
def test_masks_at_the_edge_of_the_number_range(kernel, run, n, start):
    """Indices that wrap around: the mask is what the comparison of each says, never "all"."""
    out, begin, bound = (
        kernel.parameter("out", "*i32"),
        kernel.parameter("begin", "i32"),
        kernel.parameter("n", "i32"),
    )
    index = kernel.arange(1024)
    mask = kernel.less(kernel.binary(e.Add, index, begin), bound)
    kernel.store(kernel.pointers(out, index), kernel.constant(1, index.type), mask)
    found = np.zeros(1024, np.int32)
    run(kernel.function, [found, start, n])
    wrapped = (np.arange(1024) + start).astype(np.uint32).view(np.int32) if start else np.arange(1024)
    np.testing.assert_array_equal(found, (wrapped < n).astype(np.int32))
