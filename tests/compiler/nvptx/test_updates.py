"""Atomics whose old values nobody reads: in vectors where layout, alignment, mask and target allow it."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.errors import UnsupportedOp
from deuteron.compiler.gpu.ops import VectorUpdate
from deuteron.compiler.tile.memory import AtomicRMW
from simulator import SimulationError, simulate

UPDATE = """
def k(x, out, n, N: tl.constexpr, SEM: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.atomic_{kind}(out + i, tl.load(x + i, mask=i < n, other=0), mask=i < n, sem=SEM)
"""
DTYPES = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "fp64": np.float64,
    "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
}  # fmt: skip
#: What one instruction adds, by target and type; 1 where nothing is said.
WIDEST = {
    ("cuda:80", "fp16"): 2, ("cuda:90a", "fp16"): 8, ("cuda:90a", "bf16"): 8, ("cuda:90a", "fp32"): 4,
    ("cuda:120", "fp16"): 8, ("cuda:120", "bf16"): 8, ("cuda:120", "fp32"): 4,
}  # fmt: skip
FUNCTIONS = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum,
    "max": np.maximum,
}  # fmt: skip


def sample_of(from_text, kind: str, dtype: str, aligned: bool = True, sem: str = "acq_rel", size: int = 1024):
    promise = ":16" if aligned else ""
    signature = {"x": f"*{dtype}{promise}", "out": f"*{dtype}{promise}", "n": "i32:16" if aligned else "i32"}
    return from_text(UPDATE.format(kind=kind), signature, {"N": size, "SEM": sem})


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(
    "kind, dtype",
    [*(("add", dtype) for dtype in DTYPES), ("and", "i32"), ("or", "u64"), ("xor", "i64"), ("min", "i32"),
     ("max", "u32"), ("min", "u64"), ("max", "fp32"), ("min", "fp64")],
)  # fmt: skip
def test_every_element_is_changed_once(from_text, run_function, rng, target, aligned, kind, dtype) -> None:
    sample = sample_of(from_text, kind, dtype, aligned)
    if dtype == "bf16" and target == "cuda:80":
        with pytest.raises(UnsupportedOp, match="bf16 needs sm_90"):
            sample.program(target)
        return
    n = 1936 if aligned else 1901  # the second program's part, and its last vectors, are not whole
    x, old = (rng.integers(0, 50, n).astype(DTYPES[dtype]) for _ in range(2))
    if dtype == "i32":
        x = -x
    out = old.copy()
    program = run_function(sample.tile(), (2,), [x, out, n], 4, target)
    np.testing.assert_array_equal(out, FUNCTIONS[kind](old, x))
    float_extremum = dtype.startswith("f") and kind in ("min", "max")
    assert ("atom." in program.llvm) == float_extremum
    words = WIDEST.get((target, dtype), 1) if aligned and kind == "add" else 1
    updates = [op for op in sample.gpu(target).walk() if isinstance(op, VectorUpdate)]
    assert [op.vector for op in updates] == [] if float_extremum else [words]


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_what_a_mask_leaves_out_stays(from_text, run_function, rng, target, dtype) -> None:
    text = "def k(x, out):\n    i = tl.arange(0, 512)\n    tl.atomic_add(out + i, tl.load(x + i), mask=i % 3 != 0)\n"
    sample = from_text(text, {"x": f"*{dtype}:16", "out": f"*{dtype}:16"})
    x, old = (rng.integers(1, 50, 512).astype(DTYPES[dtype]) for _ in range(2))
    out = old.copy()
    run_function(sample.tile(), (1,), [x, out], 4, target)
    np.testing.assert_array_equal(out, np.where(np.arange(512) % 3 != 0, old + x, old))


@pytest.mark.parametrize(
    "sem, before, behind", [("relaxed", 0, 0), ("release", 1, 0), ("acquire", 0, 1), ("acq_rel", 1, 1)]
)
@pytest.mark.parametrize("kind, dtype", [("add", "fp32"), ("max", "fp32"), ("xchg", "i32"), ("add", "i64")])
def test_a_tile_is_fenced_once(from_text, check_ptx, sem, before, behind, kind, dtype) -> None:
    ptx = check_ptx(sample_of(from_text, kind, dtype, sem=sem))
    found = re.findall(r"fence\.acq_rel\.gpu|(?:red|atom)\.[\w.]+", ptx)
    fences = [number for number, text in enumerate(found) if text.startswith("fence")]
    assert fences == [0] * before + [len(found) - 1] * behind
    assert all(".relaxed." in text for text in found if not text.startswith("fence"))


def test_one_element_a_thread_that_is_read_has_the_order_itself(from_text, check_ptx) -> None:
    text = "def k(out, old):\n    i = tl.arange(0, 128)\n    tl.store(old + i, tl.atomic_add(out + i, 1))\n"
    ptx = check_ptx(from_text(text, {"out": "*i32:16", "old": "*i32:16"}))
    assert "atom.global.gpu.acq_rel.add.u32" in ptx
    assert "fence." not in ptx


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
@pytest.mark.parametrize("sem", ["relaxed", "release", "acquire", "acq_rel"])
@pytest.mark.parametrize("kind, dtype", [("max", "fp32"), ("min", "fp64")])
def test_an_extremum_of_floats_has_the_order_itself(from_text, run_function, rng, target, sem, kind, dtype) -> None:
    text = f"""
def k(x, out):
    tl.atomic_{kind}(out, tl.load(x + tl.program_id(0)), sem="{sem}")
"""
    sample = from_text(text, {"x": f"*{dtype}", "out": f"*{dtype}"})
    x = rng.normal(size=5).astype(DTYPES[dtype])
    out = np.array([-np.inf if kind == "max" else np.inf], x.dtype)
    run_function(sample.tile(), (5,), [x, out], 4, target)
    assert out[0] == getattr(x, kind)()
    found = re.findall(r"fence[\w.]+|atom[\w.]+", sample.program(target).llvm)
    bits, other = 8 * x.itemsize, "min" if kind == "max" else "max"
    order = f"atom.global.gpu.{sem}"
    assert found == [f"{order}.{kind}.s{bits}", f"{order}.{other}.u{bits}"]  # exactly one of them is performed


def test_what_is_read_is_no_update(from_text) -> None:
    text = "def k(out, old):\n    i = tl.arange(0, 1024)\n    tl.store(old + i, tl.atomic_add(out + i, 1.0))\n"
    sample = from_text(text, {"out": "*fp32:16", "old": "*fp32:16"})
    kinds = [type(op) for op in sample.gpu("cuda:90a").walk() if isinstance(op, AtomicRMW)]
    assert kinds == [AtomicRMW]


def test_updates_in_loops_and_branches_are_found(from_text) -> None:
    text = """
def k(out, n):
    i = tl.arange(0, 512)
    for j in range(n):
        if j != 3:
            tl.atomic_add(out + j * 512 + i, 1.0)
"""
    sample = from_text(text, {"out": "*fp32:16", "n": "i32"})
    assert [op.vector for op in sample.gpu("cuda:90a").walk() if isinstance(op, VectorUpdate)] == [4]


#: A tile that a product makes, added to memory as split-K does.
SPLIT = """
def split(a, b, c, N: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.program_id(0) * K + tl.arange(0, K)
    x = tl.load(a + m * 2 * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n)
    tl.atomic_add(c + m * N + n, tl.dot(x, y).to(c.dtype.element_ty), sem="relaxed")
"""


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("shape", [(64, 64), (16, 128), (128, 32)])
def test_parts_of_a_product_are_added(from_text, run_function, rng, target, dtype, shape) -> None:
    (m, n), k = shape, 32
    sample = from_text(SPLIT, {"a": "*fp16:16", "b": "*fp16:16", "c": f"*{dtype}:16"}, {"M": m, "N": n, "K": k})
    a, b = rng.integers(-3, 4, (m, 2 * k)).astype(np.float16), rng.integers(-3, 4, (2 * k, n)).astype(np.float16)
    c = np.ones((m, n), DTYPES[dtype])
    run_function(sample.tile(), (2,), [a, b, c], 4, target)
    np.testing.assert_array_equal(c, 1 + a.astype(np.float64) @ b.astype(np.float64))
    (update,) = [op for op in sample.gpu(target).walk() if isinstance(op, VectorUpdate)]
    assert update.vector >= (2 if (target, dtype) in WIDEST else 1)


def test_the_simulator_knows_what_is_not_aligned(from_text) -> None:
    text = "def k(out, n):\n    tl.atomic_add(out + n + tl.arange(0, 512), 1.0)\n"
    program = from_text(text, {"out": "*fp32:16", "n": "i32:16"}).program()
    with pytest.raises(SimulationError, match="red of 16 bytes"):
        simulate(program.llvm, (1,), [np.zeros(513, np.float32), 1], program.num_warps, program.shared_bytes)


#: Programs that all update one row, whose last elements are outside the array, each with several rows at once.
HALVES = """
def k(x, out, n, M: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    tile = tl.load(x + row[:, None] * N + tl.arange(0, N)[None, :])
    tl.make_tensor_descriptor(out, [M, n], [0, 1], [M, N]).atomic_{kind}([0, 0], tile)
"""


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:100a", "cuda:120"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_extrema_of_halves_compare_and_swap(from_text, run_function, check_ptx, rng, target, dtype, kind) -> None:
    signature = {"x": f"*{dtype}:16", "out": f"*{dtype}:16", "n": "i32"}
    sample = from_text(HALVES.format(kind=kind), signature, {"M": 16, "N": 16})
    x = rng.normal(size=(48, 16)).astype(DTYPES[dtype])
    x[:, 0], x[5:, 1], x[30:40] = np.nan, np.nan, np.nan
    out = np.zeros(16, x.dtype)
    out[:2] = np.nan
    old = out.astype(np.float32)
    extremum = {"max": np.fmax, "min": np.fmin}[kind]
    expected = extremum(old, extremum.reduce(x.astype(np.float32)))
    expected[14:] = old[14:]
    run_function(sample.tile(), (3,), [x, out, 14], 4, target)
    np.testing.assert_array_equal(out.astype(np.float32), expected)
    ptx = check_ptx(sample, target)
    assert ptx.count("atom.global.gpu.relaxed.cas.b16") == 2  # two elements a thread
    assert f"{kind}.{'f16' if dtype == 'fp16' else 'bf16'}" in ptx
