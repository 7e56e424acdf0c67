"""Functions of numbers, and casts from type to type, on the simulator against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from single_operations import DTYPES, UNARY


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


HALVES = """
def k(x_ptr, wide_ptr, same_ptr, swapped_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    offs = tl.program_id(0) * N + i
    x = tl.load(x_ptr + offs)
    wide = x.to(tl.float32)
    tl.store(wide_ptr + offs, wide)
    tl.store(same_ptr + tl.reshape(offs, (N // 2, 2)), tl.reshape(wide, (N // 2, 2)).to(tl.bfloat16))
    tl.store(swapped_ptr + offs, tl.gather(wide, i ^ 1, 0).to(tl.bfloat16))
"""


def test_every_bf16_is_widened_and_narrowed_again(from_text, simulated) -> None:
    """They arrive two in a word: neither is the other."""
    pointers = {"x_ptr": "*bf16:16", "wide_ptr": "*fp32:16", "same_ptr": "*bf16:16", "swapped_ptr": "*bf16:16"}
    sample = from_text(HALVES, pointers, {"N": 1024})
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide, same, swapped = np.zeros(bits.size, np.float32), np.zeros_like(bits), np.zeros_like(bits)
    simulated(
        sample,
        (64,),
        [array.view(DTYPES["bf16"]) if array.itemsize == 2 else array for array in (bits, wide, same, swapped)],
    )
    is_nan = (bits & 0x7FFF) > 0x7F80
    wanted = bits.astype(np.uint32) << 16
    np.testing.assert_array_equal(wide.view(np.uint32)[~is_nan], wanted[~is_nan])
    assert np.isnan(wide[is_nan]).all()
    for found, of in ((same, bits), (swapped, bits.reshape(-1, 2)[:, ::-1].ravel())):
        other_nan = (of & 0x7FFF) > 0x7F80
        np.testing.assert_array_equal(found[~other_nan], of[~other_nan])
        assert ((found[other_nan] & 0x7FFF) > 0x7F80).all()
