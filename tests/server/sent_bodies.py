"""Bodies of requests that tests send: a small job, and the text of a kernel."""

from __future__ import annotations

JOB = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}]}
KERNEL = """\
import triton
import triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr = 128):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask) + tl.load(y_ptr + i, mask), mask)
"""
