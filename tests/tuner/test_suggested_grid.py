"""The grid that a message suggests, from the text of the kernel."""

from __future__ import annotations

import pytest

from deuteron.compiler.source.kernel import KernelSource
from deuteron.tuner.workloads.grid import suggested_grid

TEXT = """
import triton
import triton.language as tl


@triton.jit
def kernel(x, M, N, BLOCK: tl.constexpr, BLOCK_N: tl.constexpr):
    {body}
    tl.store(x, 1.0)
"""


@pytest.mark.parametrize(
    ("body", "grid"),
    [
        ("row = tl.program_id(0)", ("M",)),
        ("i = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)", ("cdiv(M, BLOCK)",)),
        ("i = BLOCK_N * tl.program_id(0)", ("cdiv(N, BLOCK_N)",)),
        ("row, pid = tl.program_id(0), 1; j = tl.program_id(1) * BLOCK_N", ("M", "cdiv(N, BLOCK_N)")),
        ("pid = tl.program_id(0); a = tl.program_id(1); i = pid * BLOCK; j = a * N", ("cdiv(M, BLOCK)", "N")),
        ("i = tl.program_id(2) * BLOCK", ("M", "N", "cdiv(N, BLOCK)")),
        ("pid = tl.program_id(0); m = pid // N; i = m * BLOCK + (pid % N) * BLOCK_N", ("cdiv(N, BLOCK_N)",)),
        ("m = tl.program_id(0) % 8; i = m * BLOCK_N; e = tl.program_id(1)", ("cdiv(N, BLOCK_N)", "M")),
        ("pass", ("M",)),
        ("axis = N; i = tl.program_id(axis)", ("M",)),
    ],
)
def test_suggested_grids(body: str, grid: tuple[str, ...]) -> None:
    assert suggested_grid(KernelSource.from_text(TEXT.format(body=body), "kernel"), ("M", "N")) == grid
