"""Kernels whose sums the warps asked for cannot hold get twice as many."""

from __future__ import annotations

from pathlib import Path

import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.targets.assembler import has_ptxas

pytestmark = pytest.mark.skipif(not has_ptxas(), reason="needs an assembler")


@triton.jit
def three_sums(a, b, c, d, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    wide = tl.dot(x, tl.load(b + k[:, None] * N + n[None, :]))
    first = tl.dot(x, tl.load(c + m[None, :] * K + k[:, None]))
    second = tl.dot(x, tl.load(d + m[None, :] * K + k[:, None]))
    lower = m[:, None] >= m[None, :]
    v = tl.load(b + m[:, None] * N + n[None, :])
    wide += tl.dot(tl.where(lower, first, 0.0).to(tl.float16), v)
    wide += tl.dot(tl.where(lower, second, 0.0).to(tl.float16), v)
    tl.store(out + m[:, None] * N + n[None, :], wide.to(tl.float16))


POINTERS = dict.fromkeys(("a", "b", "c", "d", "out"), "*fp16:16")


def compiled(warps: int, n: int = 128, m: int = 64, **schedule: object):
    sizes = {"M": m, "N": n, "K": 128}
    return triton.compile(three_sums, POINTERS, sizes, "cuda:90a", num_warps=warps, **schedule)  # type: ignore[arg-type]


def test_a_kernel_that_spills_gets_twice_the_warps() -> None:
    made, asked = compiled(2), compiled(2, maxnreg=255)
    assert asked.metadata.num_threads == 64
    assert asked.metadata.spills > 1000
    assert made.metadata.num_warps == 2  # as it was asked for
    assert made.metadata.num_threads == 128
    assert made.metadata.spills == 0
    # What is shown of it is what runs.
    assert ".reqntid 128" in str(made.asm["ptx"])
    assert "// 128 threads" in str(made.asm["gpu"])
    assert made.metadata.hash != compiled(4).metadata.hash


@triton.jit
def asking(a, b, c, d, out, seen, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    tl.store(seen, tl.extra.cuda.num_threads())
    three_sums(a, b, c, d, out, M, N, K)


@triton.jit
def waiting(a, b, c, d, out, seen, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    while tl.atomic_add(seen, 0) == 0:
        pass
    three_sums(a, b, c, d, out, M, N, K)


@pytest.mark.parametrize("kernel", [asking, waiting])
def test_one_that_counts_on_its_warps_or_on_other_programs_keeps_them(kernel) -> None:
    pointers, sizes = {**POINTERS, "seen": "*i32:16"}, {"M": 64, "N": 128, "K": 128}
    made = triton.compile(kernel, pointers, sizes, "cuda:90a", num_warps=2)
    assert made.metadata.spills > 1000
    assert made.metadata.num_threads == 64


def test_one_that_waits_for_nobody_but_has_an_argument_more_gets_them() -> None:
    @triton.jit
    def plain(a, b, c, d, out, seen, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
        tl.store(seen, 1)
        three_sums(a, b, c, d, out, M, N, K)

    pointers, sizes = {**POINTERS, "seen": "*i32:16"}, {"M": 64, "N": 128, "K": 128}
    assert triton.compile(plain, pointers, sizes, "cuda:90a", num_warps=2).metadata.num_threads == 128


def test_it_is_the_same_from_the_cache(private_cache: Path) -> None:
    first, second = compiled(2), compiled(2)
    assert not first.metadata.cached
    assert second.metadata.cached
    assert second.metadata.num_threads == 128
    assert first.asm["cubin"] == second.asm["cubin"]


@pytest.mark.parametrize(("n", "spills"), [(16, 100), (32, 500)])
def test_of_two_warps_any_spill_is_too_much(n: int, spills: int) -> None:
    made, asked = compiled(2, n), compiled(2, n, maxnreg=255)
    assert 0 < asked.metadata.spills <= spills  # type: ignore[operator]
    assert asked.metadata.num_threads == 64
    assert made.metadata.num_threads == 128
    assert made.metadata.spills == 0


def test_four_that_spill_little_stay() -> None:
    made = compiled(4, 64, m=128)
    assert 0 < made.metadata.spills <= 512  # type: ignore[operator]
    assert made.metadata.num_threads == 128
    assert compiled(8, 64, m=128).metadata.spills == 0, "twice as many would hold it"


def test_what_fits_keeps_its_warps() -> None:
    assert compiled(4).metadata.num_threads == 128
