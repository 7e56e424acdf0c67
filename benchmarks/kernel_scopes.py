"""What scopes inside kernels cost on a GPU, and the trace of a product's warps.

python benchmarks/kernel_scopes.py [--only product|copy] [--shape M,N,K] [--out FILE] [--trace NAME]

A product of bf16 runs without records, with one scope around its loop (two records a tile and warp), and with scopes
around each load and product of every iteration. A copy runs that does little beside recording: the kernel of Proton's
``test_overhead``, 16 times 256 numbers in each of 1024 programs, with a scope around all and one around each time.
Times are those of the kernel alone, which torch.profiler reads from CUPTI: medians of launches in turns. ``--trace``
writes NAME.chrome_trace of one launch of the product with all scopes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import torch

import deuteron as triton
import deuteron.language as tl
import deuteron.profiler as proton
import deuteron.profiler.language as pl

#: BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, persistent: what benchmarks/gemm.py finds for large products.
CONFIG = (128, 256, 64, 8, 4, True)
ROUNDS = 5
#: Traced are the first warps of both groups that multiply and of the one that fetches, of two tiles a program.
TRACED_SHAPE = (4096, 2048, 512)
TRACED_MODE = "default:sampling_strategy=selective:sampling_options=0,4,8"
COPIED, COPY_PROGRAMS = 256, 1024


@dataclass(frozen=True)
class Kind:
    """What runs: how many scopes, a compile-time argument of the kernels, and how they record, None for not at all."""

    scopes: int
    mode: str | None


_COPY_MODE = "default:buffer_size=4096"
PRODUCT_KINDS = {
    "plain": Kind(0, None),
    "a scope a tile": Kind(1, "default"),
    "scopes in the loop": Kind(2, "default"),
    "scopes in the loop, clock32": Kind(2, "default:optimizations=clock32"),
}
COPY_KINDS = {
    "plain": Kind(0, None),
    "a scope around all": Kind(1, _COPY_MODE),
    "a scope around all, clock32": Kind(1, f"{_COPY_MODE}:optimizations=clock32"),
    "scopes in the loop": Kind(2, _COPY_MODE),
    "scopes in the loop, clock32": Kind(2, f"{_COPY_MODE}:optimizations=clock32"),
    "scopes in the loop, time_shift": Kind(2, f"{_COPY_MODE}:optimizations=clock32,time_shift"),
    "scopes in the loop, warp 0": Kind(2, f"{_COPY_MODE}:sampling_strategy=selective:sampling_options=0"),
}


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SCOPES: tl.constexpr):
    """c [M, N] = a [M, K] b [K, N], rows one after the other."""
    pid = tl.program_id(0)
    across = 8 * tl.cdiv(N, BN)
    first = pid // across * 8
    high = min(tl.cdiv(M, BM) - first, 8)
    rows = (first + pid % across % high) * BM + tl.arange(0, BM)
    columns = pid % across // high * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    if SCOPES:
        pl.enter_scope("tile")
    for k in range(tl.cdiv(K, BK)):
        if SCOPES == 2:
            pl.enter_scope("load")
        here = k * BK + inner
        x = tl.load(a + rows[:, None] * K + here[None, :], mask=(rows[:, None] < M) & (here[None, :] < K), other=0.0)
        y = tl.load(
            b + here[:, None] * N + columns[None, :], mask=(here[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        if SCOPES == 2:
            pl.exit_scope("load")
            pl.enter_scope("dot")
        acc = tl.dot(x, y, acc)
        if SCOPES == 2:
            pl.exit_scope("dot")
    if SCOPES == 2:
        pl.enter_scope("store")
    kept = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(c.dtype.element_ty), mask=kept)
    if SCOPES == 2:
        pl.exit_scope("store")
    if SCOPES:
        pl.exit_scope("tile")


@triton.jit
def copy(x, y, BLOCK: tl.constexpr, SCOPES: tl.constexpr):
    """y [BLOCK] = x + 1, by every program, 16 times."""
    if SCOPES:
        pl.enter_scope("kernel")
    for _ in range(16):
        if SCOPES == 2:
            pl.enter_scope("loop")
        v = tl.load(x + tl.arange(0, BLOCK))
        tl.store(y + tl.arange(0, BLOCK), v + 1)
        if SCOPES == 2:
            pl.exit_scope("loop")
    if SCOPES:
        pl.exit_scope("kernel")


class Workload(Protocol):
    """A kernel to launch, with as many scopes as asked for. ``launches``: how often in a round."""

    name: str
    launches: int

    def launch(self, scopes: int) -> None:
        """Launch it."""

    def check(self, scopes: int) -> None:
        """Launch it, and raise AssertionError where the result is wrong."""


class Products:
    """One product."""

    name, launches = "product", 2

    def __init__(self, shape: tuple[int, int, int], device: str) -> None:
        self.m, self.n, self.k = shape
        self.a = torch.randn(self.m, self.k, device=device).to(torch.bfloat16)
        self.b = torch.randn(self.k, self.n, device=device).to(torch.bfloat16)
        self.c = torch.empty(self.m, self.n, device=device, dtype=torch.bfloat16)
        self.wanted = self.a.float() @ self.b.float()

    def launch(self, scopes: int) -> None:
        bm, bn, bk, warps, stages, persistent = CONFIG
        own = {"num_warps": warps, "num_stages": stages, "persistent": persistent} if self.a.is_cuda else {}
        grid = (triton.cdiv(self.m, bm) * triton.cdiv(self.n, bn),)
        product[grid](self.a, self.b, self.c, self.m, self.n, self.k, BM=bm, BN=bn, BK=bk, SCOPES=scopes, **own)

    def check(self, scopes: int) -> None:
        """Raises AssertionError where the product is not that of torch in f32."""
        self.c.fill_(float("nan"))
        self.launch(scopes)
        error = ((self.c.float() - self.wanted).abs().max() / self.wanted.abs().max()).item()
        assert error < 1e-2, f"{scopes} scopes: off by {error:.3g} of the largest element"


class Copies:
    """The copy."""

    name, launches = "copy", 4

    def __init__(self, device: str) -> None:
        self.x = torch.randn(COPIED, device=device)
        self.y = torch.empty_like(self.x)

    def launch(self, scopes: int) -> None:
        own = {"num_warps": 4} if self.x.is_cuda else {}
        copy[(COPY_PROGRAMS,)](self.x, self.y, BLOCK=COPIED, SCOPES=scopes, **own)

    def check(self, scopes: int) -> None:
        """Raises AssertionError where a number is not one more."""
        self.y.zero_()
        self.launch(scopes)
        assert torch.equal(self.y, self.x + 1), f"{scopes} scopes: wrong numbers"


def kernel_microseconds(work: Workload, scopes: int) -> list[float]:
    """GPU time of each launch of the kernel."""
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(work.launches):
            work.launch(scopes)
        torch.cuda.synchronize()
    return [event.device_time for event in profile.events() if event.name.startswith(work.name)]


def compare(work: Workload, kinds: Mapping[str, Kind], folder: Path) -> dict[str, list[float]]:
    """Microseconds of each launch by kind, rounds in turns."""
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, kind in kinds.items():
            path = str(folder / name.replace(" ", "_"))
            session = None if kind.mode is None else proton.start(path, backend="instrumentation", mode=kind.mode)
            work.check(kind.scopes)
            times[name] += kernel_microseconds(work, kind.scopes)
            if session is not None:
                proton.finalize(session)
    return times


def show(work: Workload, times: Mapping[str, list[float]]) -> None:
    """A line for each kind."""
    plain = statistics.median(times["plain"])
    for name, found in times.items():
        spread = f"{min(found):.1f}-{max(found):.1f}"
        ratio = statistics.median(found) / plain
        print(f"{work.name:<8} {name:<31} {statistics.median(found):9.1f} us ({spread})  {ratio:.3f}x")


def write_trace(products: Products, name: str) -> None:
    """NAME.chrome_trace: a lane for each warp of one launch."""
    products.launch(2)
    session = proton.start(name, backend="instrumentation", data="trace", mode=TRACED_MODE)
    products.launch(2)
    proton.finalize(session)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=("product", "copy"))
    parser.add_argument("--shape", default="8192,8192,8192", metavar="M,N,K")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--trace", metavar="NAME", help="write NAME.chrome_trace of a small product")
    options = parser.parse_args()
    m, n, k = map(int, options.shape.split(","))
    measured: dict[str, object] = {}
    # Rings of 256 records keep the newest; older ones cost what they cost, and warnings say that they are gone.
    warnings.simplefilter("ignore")
    with TemporaryDirectory() as folder:
        if options.only != "copy":
            times = compare(products := Products((m, n, k), "cuda"), PRODUCT_KINDS, Path(folder))
            show(products, times)
            measured |= {"shape": [m, n, k], "us": times}
        if options.only != "product":
            times = compare(copies := Copies("cuda"), COPY_KINDS, Path(folder))
            show(copies, times)
            measured["copy_us"] = times
    if options.out:
        options.out.write_text(json.dumps(measured, indent=1))
    if options.trace:
        write_trace(Products(TRACED_SHAPE, "cuda"), options.trace)


if __name__ == "__main__":
    main()
