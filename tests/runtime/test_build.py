"""What the compiler makes of names and sums that LLVM, PTX and the assembler have no room for."""

from __future__ import annotations

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def übernommen(größe, x, BLOCK: tl.constexpr):
    π = tl.arange(0, BLOCK)
    tl.store(x + π, tl.load(x + π) + größe)


def test_names_may_have_letters_outside_of_ascii() -> None:
    """Python's may; those of LLVM IR and PTX may not."""
    x = np.zeros(64, np.float32)
    kernel = übernommen[(1,)](2.5, x, BLOCK=64)
    assert (x == 2.5).all() and kernel.name == "übernommen"
    for target in ("cuda:80", "cuda:90a"):
        code = deuteron.compile(übernommen, {"größe": "fp32", "x": "*fp32"}, {"BLOCK": 64}, target=target)
        assert ".entry _u00fcbernommen(" in code.asm["ptx"]


@deuteron.jit
def two_sums(x, y, z, short, wide, M, K, YK, N, ZK):
    m, n, k = tl.arange(0, 128), tl.arange(0, 256), tl.arange(0, 32)
    box = tl.make_block_ptr(x, (M, K), (1, 136), (0, 0), (128, 32), (0, 1))
    at = z + k[:, None] + n[None, :] * 9
    first = tl.zeros((128, 256), tl.float32)
    second = tl.zeros((128, 256), tl.float32)
    for i in tl.range(0, M, 32, num_stages=3):
        a = tl.maximum(tl.load(box, boundary_check=(0, 1), padding_option="zero"), 0.0).to(tl.bfloat16)
        rows, columns = (i + k)[:, None], n[None, :] < N
        b = tl.load(y + rows * 0 + n[None, :], mask=(rows < YK) & columns, other=0.0).to(tl.bfloat16)
        c = (tl.load(at, mask=(rows < ZK) & columns, other=0.0).to(tl.bfloat16) * 0.5).to(tl.bfloat16)
        first = tl.dot(a, b, first)
        second = second + tl.dot(a, c)
        box, at = tl.advance(box, (0, 32)), at + 32
    tl.store(short + m[:, None] + n[None, :] * 129, first.to(tl.bfloat16))
    tl.store(wide + m[:, None] * 256 + n[None, :], second, mask=m[:, None] % 2 < 1)


def test_sums_that_no_registers_hold_are_those_of_single_warps() -> None:
    """Accumulators of warp groups cannot be in local memory: ptxas refused the kernel."""
    pointers = {"x": "*bf16:16", "y": "*fp16", "z": "*fp16:16", "short": "*bf16:16", "wide": "*fp32:16"}
    signature = pointers | {"M": "i32:16", "K": "i32:1", "YK": "i32:1", "N": "i32", "ZK": "i32:1"}
    made = deuteron.compile(two_sums, signature, target="cuda:90a", num_warps=2, num_stages=4)
    assert made.metadata.target == "cuda:90a" and made.metadata.spills
    assert "wgmma" not in made.asm["ptx"] and "mma.sync" in made.asm["ptx"]
