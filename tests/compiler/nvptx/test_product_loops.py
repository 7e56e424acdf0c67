"""Products of warp groups whose steps along K are one instruction in a loop: text, and results on the simulator."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.targets import Target
from deuteron.compiler.targets.nvptx import assemble, emit_ptx

TEXT = """
def product(a_ptr, b_ptr, c_ptr, K, sam, sak, sbk, sbn,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ZERO: tl.constexpr):
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + rm[:, None] * sam + (k + rk)[None, :] * sak)
        b = tl.load(b_ptr + (k + rk)[:, None] * sbk + rn[None, :] * sbn)
        if ZERO:
            acc += tl.dot(a * 2, b) + 1
        else:
            acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rm[:, None] * BN + rn[None, :], acc)
"""
_DTYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp32": np.float32, "fp8e4nv": ml_dtypes.float8_e4m3fn}


def _sample(from_text, dtype="bf16", tile=(64, 64, 64), warps=4, a_rows=True, b_rows=True, zero=False):
    signature = {"a_ptr": f"*{dtype}:16", "b_ptr": f"*{dtype}:16", "c_ptr": "*fp32:16", "K": "i32:16"}
    signature |= {"sam": "i32:16" if a_rows else "i32:1", "sak": "i32:1" if a_rows else "i32:16"}
    signature |= {"sbk": "i32:16" if b_rows else "i32:1", "sbn": "i32:1" if b_rows else "i32:16"}
    return from_text(TEXT, signature, {**dict(zip(("BM", "BN", "BK"), tile, strict=True)), "ZERO": zero}, warps)


def _matrix(rng, shape, dtype, rows) -> np.ndarray:
    values = rng.integers(-3, 4, shape).astype(_DTYPES[dtype])
    return values if rows else np.ascontiguousarray(values.T)


def _instructions(text: str) -> tuple[int, int]:
    """Products, and loops of them."""
    return len(re.findall(r"wgmma\.mma_async", text)), len(re.findall(r"bra LAB_STEP", text))


@pytest.mark.parametrize(
    ("form", "products", "loops"),
    [
        ({}, 1, 1),
        ({"tile": (64, 256, 64)}, 1, 1),
        ({"tile": (64, 64, 128)}, 2, 2),  # two panels of 64
        ({"tile": (64, 128, 64), "a_rows": False}, 1, 1),
        ({"tile": (64, 64, 128), "b_rows": False}, 2, 2),
        ({"tile": (64, 64, 256), "dtype": "fp8e4nv", "b_rows": False}, 2, 2),
        ({"tile": (64, 64, 32), "dtype": "fp32", "b_rows": False}, 1, 1),
        ({"tile": (128, 64, 64)}, 2, 2),  # the group's 64 rows in turn
        ({"tile": (64, 64, 32)}, 2, 0),  # two steps only
        ({"tile": (64, 32, 64)}, 4, 0),  # few columns: a product is over sooner than a turn of the loop
    ],
    ids=str,
)
def test_steps_that_add_are_a_loop(from_text, run_function, rng, form, products, loops) -> None:
    sample = _sample(from_text, **form)
    (m, n, depth), dtype = form.get("tile", (64, 64, 64)), form.get("dtype", "bf16")
    a_rows, b_rows = form.get("a_rows", True), form.get("b_rows", True)
    k = 2 * depth
    a, b = _matrix(rng, (m, k), dtype, a_rows), _matrix(rng, (k, n), dtype, b_rows)
    c = np.full((m, n), np.nan, np.float32)
    strides = [*((k, 1) if a_rows else (1, m)), *((n, 1) if b_rows else (1, k))]
    ran = run_function(sample.tile(), (1,), [a, b, c, k, *(s for s in strides if s > 1)], 4)
    wide = [x.astype(np.float64) if rows else x.astype(np.float64).T for x, rows in ((a, a_rows), (b, b_rows))]
    np.testing.assert_array_equal(c, wide[0] @ wide[1])
    assert _instructions(ran.llvm) == (products, loops)


def test_sums_that_begin_at_zero_are_not_looped(from_text) -> None:
    """Their first step does not add, and what waits for them is slower behind a loop (attention, 0.99)."""
    ptx = emit_ptx(_sample(from_text, zero=True).program(), Target.parse("cuda:90a"), _sample(from_text).schedule)
    assert _instructions(ptx) == (4, 0)


def test_loops_assemble_without_spills_and_warnings(from_text) -> None:
    target = Target.parse("cuda:90a")
    sample = _sample(from_text, tile=(128, 256, 64), warps=8)
    cubin = assemble(emit_ptx(sample.program(), target, sample.schedule), target, sample.schedule)
    assert cubin.spill_bytes == 0 and "C75" not in cubin.log
