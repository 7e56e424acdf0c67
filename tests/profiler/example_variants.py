"""Variants of example kernels for GPUs, for tests of what is made of their code."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from deuteron.compiler import KernelSource
from deuteron.compiler.runtime.variant.variant import Variant, make_variant
from deuteron.compiler.source.assume import assume

EXAMPLES = Path(__file__).parents[2] / "examples"
#: File, kernel, target, and what pointers point to.
CASES = [
    ("softmax.py", "softmax_kernel", "cuda:90a", "f32"),
    ("matmul.py", "matmul_kernel", "cuda:90a", "f16"),
    ("matmul.py", "matmul_kernel", "cuda:80", "f16"),
    ("layer_norm.py", "layer_norm_fwd", "cuda:120", "f32"),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]}-{case[2]}")


@cache
def example_variant(file: str, kernel: str, target: str, dtype: str) -> Variant:
    """The variant of a case, or of another like it, with what the compiler assumes where nothing is said."""
    source = KernelSource.from_file(EXAMPLES / file, kernel)
    found = assume(source, signature={}, constexprs={}, schedule={}, dtype=dtype)
    return make_variant(source, found.signature, found.constexprs, target, found.schedule)
