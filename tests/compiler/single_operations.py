"""What tests of single operations have in common: NumPy's types, a kernel of one expression, one of one product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

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
DOT = """
def k(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, P: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    c = tl.dot(a, b, input_precision=P)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c)
"""
UNARY = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, {expression}.to(y_ptr.dtype.element_ty))
"""


def one_product(
    from_text: Callable[..., Any], rng: np.random.Generator, dtype: str, precision: str, shape: tuple[int, int, int]
) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """A kernel of one product of sizes M, N and K, its random operands, and what it writes to: zeros."""
    m, n, k = shape
    accumulator = {"fp64": np.float64, "i8": np.int32}.get(dtype, np.float32)
    out = {"fp64": "*fp64:16", "i8": "*i32:16"}.get(dtype, "*fp32:16")
    sample = from_text(
        DOT,
        {"a_ptr": f"*{dtype}:16", "b_ptr": f"*{dtype}:16", "c_ptr": out},
        {"M": m, "N": n, "K": k, "P": precision},
    )
    scale = 50 if dtype == "i8" else 1
    a, b = ((rng.standard_normal(s) * scale).astype(DTYPES[dtype]) for s in ((m, k), (k, n)))
    return sample, a, b, np.zeros((m, n), accumulator)


def as_tf32(x: np.ndarray) -> np.ndarray:
    """What tensor cores read of f32: sign, exponent and ten bits of the mantissa."""
    return (x.view(np.uint32) >> 13 << 13).view(np.float32)
