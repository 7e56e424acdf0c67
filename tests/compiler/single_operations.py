"""What tests of single operations have in common: NumPy's types, a kernel of one expression, one of one product."""

from __future__ import annotations

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
