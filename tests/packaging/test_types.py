"""What type checkers make of programs with kernels: mypy reads this file, and an error that it does not find, or a new
one, fails ``make lint``. The tests run what it has read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, assert_type

import numpy as np

import deuteron as triton
import deuteron.language as tl

if TYPE_CHECKING:
    from deuteron import misspelt  # type: ignore[attr-defined]  # noqa: F401
    from deuteron.compiler import misspelt  # type: ignore[attr-defined]  # noqa: F401, F811
    from deuteron.language import misspelt  # type: ignore[attr-defined]  # noqa: F401, F811
    from deuteron.profiler import misspelt  # type: ignore[attr-defined]  # noqa: F401, F811
    from deuteron.server import misspelt  # type: ignore[attr-defined]  # noqa: F401, F811
    from deuteron.tuner import misspelt  # type: ignore[attr-defined]  # noqa: F401, F811


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.constexpr_function
def half(n):
    return n // 2


@triton.aggregate
class Pair:
    high: tl.tensor
    low: tl.tensor


@triton.autotune(configs=[triton.Config({"BLOCK": 32}, num_warps=4)], key=["n"])
@triton.jit(do_not_specialize=["scale"])
def normalise(x_ptr, n, scale, BLOCK: tl.constexpr, SHIFTED: tl.constexpr = True):
    at = tl.arange(0, BLOCK)
    x = assert_type(tl.load(x_ptr + at, mask=at < n, other=-float("inf")).to(tl.float32), tl.tensor)
    assert_type(x == 0, tl.tensor)
    assert_type(~(x < 1) & (1.0 - -x[:, None] > 2), tl.tensor)
    if SHIFTED:
        x -= assert_type(tl.max(x, axis=0), tl.tensor)
    for i in tl.static_range(half(BLOCK)):
        x += i - i
    e = tl.exp(x)
    pair = Pair(e, assert_type(e.sum(0), tl.tensor))
    tl.store(x_ptr + at, pair.high / pair.low * scale, mask=at < n)
    if TYPE_CHECKING:
        assert_type(x.max(0, return_indices=True), tuple[tl.tensor, tl.tensor])
        assert_type(x.atomic_add(1), tl.tensor)
        x.misspelt()  # type: ignore[attr-defined]
        x + "text"  # type: ignore[arg-type]


def test_the_kernel_of_the_readme() -> None:
    text = Path(__file__).read_text()
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    kernel = re.search(r"@triton\.jit\ndef add_kernel.*?mask=mask\)\n\n", text, re.DOTALL)
    assert kernel is not None and kernel[0].strip() in readme

    n = 1000
    x = np.arange(n, dtype=np.float32)
    out = np.empty_like(x)
    add_kernel[(assert_type(triton.cdiv(n, 256), int),)](x, x, out, n, BLOCK=256)
    assert (out == 2 * x).all()
