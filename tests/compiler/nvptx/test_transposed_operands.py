"""Products of bytes and of 32-bit words that lie along M or N, on the simulator: wgmma reads them along K alone."""

from __future__ import annotations

import re

import numpy as np
import pytest
from single_operations import DTYPES

from deuteron.compiler.gpu.layouts.operands import LocalLoad, LocalStore
from deuteron.compiler.gpu.memory.scratch import choose_conversion
from deuteron.compiler.gpu.ops import ConvertLayout
from deuteron.compiler.hardware import WAVE_BYTES
from deuteron.compiler.layout import bank_conflicts

KERNEL = """
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.{kind})
    for start in range(0, K, BK):
        x = tl.load({x})
        y = {y}
        acc = tl.dot(x, y, acc, out_dtype=tl.{kind})
    tl.store(c + m[:, None] * N + n[None, :], acc)
"""
LEFT = {False: "a + m[:, None] * K + (start + k)[None, :]", True: "a + (start + k)[None, :] * M + m[:, None]"}
TURNED = "tl.trans(tl.load(b + n[:, None] + (start + k)[None, :] * N))"
RIGHT = {
    False: "tl.load(b + n[None, :] * K + (start + k)[:, None])",
    True: "tl.load(b + (start + k)[:, None] * N + n[None, :])",
}
#: Those of 16 columns have fewer bytes than a word of each for every thread.
SHAPES = [(64, 64, 64, 4), (128, 128, 64, 8), (64, 32, 128, 4), (64, 32, 32, 4), (64, 16, 32, 4), (128, 16, 32, 8)]


def numbers(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> np.ndarray:
    """Small integers, of which sums are exact in any order."""
    low = 0 if dtype == "u8" else -8
    return rng.integers(low, 9, shape).astype(DTYPES[dtype])


@pytest.mark.parametrize(("bm", "bn", "bk", "warps"), SHAPES)
@pytest.mark.parametrize(
    ("dtype", "along"),
    [
        *(("i8", "b"), ("i8", "ab"), ("i8", "turned"), ("u8", "a"), ("fp8e4nv", "b"), ("fp8e5", "ab")),
        *(("fp32", "b"), ("fp32", "ab"), ("fp32", "turned")),
    ],
)
def test_operands_along_the_other_axis(
    from_text, run_function, dtype: str, along: str, bm: int, bn: int, bk: int, warps: int
) -> None:
    kind = "float32" if dtype.startswith("fp") else "int32"
    signature = {"a": f"*{dtype}:16", "b": f"*{dtype}:16", "c": f"*{'fp32' if kind == 'float32' else 'i32'}:16"}
    signature |= dict.fromkeys("MNK", "i32:16")
    rng = np.random.default_rng(bm * bn * bk)
    m, n, k = bm, 2 * bn, 2 * bk
    a, b = numbers(rng, (m, k), dtype), numbers(rng, (n, k), dtype)
    across = {"turned": "b"}.get(along, along)
    given = [np.ascontiguousarray(x.T) if name in across else x for name, x in (("a", a), ("b", b))]
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    text = KERNEL.format(kind=kind, x=LEFT["a" in along], y=TURNED if along == "turned" else RIGHT["b" in along])
    made = from_text(text, signature, {"BM": bm, "BN": bn, "BK": bk}, warps=warps)
    c = np.full((m, n), 77, np.float32 if kind == "float32" else np.int32)
    run_function(made.tile(), (1, 2), [*given, c, m, n, k], warps, "cuda:90a")
    np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("dtype", ["i8", "fp8e4nv"])
def test_no_byte_is_stored_by_itself(from_text, check_ptx, dtype: str) -> None:
    """Matrices of pairs are read transposed, and words of four k written."""
    kind = "float32" if dtype.startswith("fp") else "int32"
    signature = {"a": f"*{dtype}:16", "b": f"*{dtype}:16", "c": f"*{'fp32' if kind == 'float32' else 'i32'}:16"}
    text = KERNEL.format(kind=kind, x=LEFT[False], y=RIGHT[True])
    made = from_text(text, signature | dict.fromkeys("MNK", "i32:16"), {"BM": 128, "BN": 128, "BK": 64}, warps=8)
    ptx = check_ptx(made)
    assert "wgmma.mma_async" in ptx
    assert re.search(r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans", ptx) and "stmatrix.sync.aligned.m8n8.x4" in ptx
    assert not re.search(r"st\.shared\.[busf]8\b", ptx)


def test_words_are_read_four_at_a_time_and_written_without_bank_conflicts(from_text) -> None:
    signature = {"a": "*fp32:16", "b": "*fp32:16", "c": "*fp32:16"} | dict.fromkeys("MNK", "i32:16")
    text = KERNEL.format(kind="float32", x=LEFT[False], y=RIGHT[True])
    made = from_text(text, signature, {"BM": 128, "BN": 128, "BK": 32}, warps=8).gpu("cuda:90a")
    plans = [choose_conversion(op) for op in made.walk() if isinstance(op, ConvertLayout)]
    (read,) = (plan.read for plan in plans if isinstance(plan, LocalLoad))
    (store,) = (plan for plan in plans if isinstance(plan, LocalStore))
    assert (read.vector, bank_conflicts(read)) == (4, 0)
    assert 8 * store.write.cycles * WAVE_BYTES == store.bytes


def test_single_numbers_are_written_as_rows_along_the_axis_of_the_lanes(from_text) -> None:
    """Of sides that are not multiples of a vector; words of 16 bits may lie along either axis."""
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16"} | dict.fromkeys("MNK", "i32")
    text = KERNEL.format(kind="float32", x=LEFT[False], y=RIGHT[True])
    made = from_text(text, signature, {"BM": 128, "BN": 128, "BK": 64}, warps=8).gpu("cuda:90a")
    plans = [choose_conversion(op) for op in made.walk() if isinstance(op, ConvertLayout)]
    stores = [plan for plan in plans if isinstance(plan, LocalStore)]
    assert stores and all(8 * store.write.cycles * WAVE_BYTES <= 2 * store.bytes for store in stores)
