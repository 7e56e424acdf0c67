"""What scopes inside a product cost on a GPU, and the trace of its warps.

python benchmarks/kernel_scopes.py [--shape M,N,K] [--out FILE] [--trace NAME]

A product of bf16 runs without records, with one scope around its loop (two records a tile and warp), and with scopes
around each load and product of every iteration. Times are those of the kernel alone, which torch.profiler reads from
CUPTI: medians of launches in turns. ``--trace`` writes NAME.chrome_trace of one launch with all scopes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import deuteron as triton
import deuteron.language as tl
import deuteron.profiler as proton
import deuteron.profiler.language as pl

#: BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, persistent: what benchmarks/gemm.py finds for large products.
CONFIG = (128, 256, 64, 8, 4, True)
ROUNDS = 5
LAUNCHES = 2
#: Traced are the first warps of both groups that multiply and of the one that fetches, of two tiles a program.
TRACED_SHAPE = (4096, 2048, 512)
TRACED_MODE = "default:sampling_strategy=selective:sampling_options=0,4,8"
#: What runs: the number of scopes is a compile-time argument of the kernel.
KINDS = {"plain": 0, "a scope a tile": 1, "scopes in the loop": 2}


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


class Products:
    """One product, launched in any of the :data:`KINDS`."""

    def __init__(self, shape: tuple[int, int, int], device: str) -> None:
        self.m, self.n, self.k = shape
        self.a = torch.randn(self.m, self.k, device=device).to(torch.bfloat16)
        self.b = torch.randn(self.k, self.n, device=device).to(torch.bfloat16)
        self.c = torch.empty(self.m, self.n, device=device, dtype=torch.bfloat16)
        self.wanted = self.a.float() @ self.b.float()

    def launch(self, kind: str) -> None:
        bm, bn, bk, warps, stages, persistent = CONFIG
        own = {"num_warps": warps, "num_stages": stages, "persistent": persistent} if self.a.is_cuda else {}
        grid = (triton.cdiv(self.m, bm) * triton.cdiv(self.n, bn),)
        product[grid](self.a, self.b, self.c, self.m, self.n, self.k, BM=bm, BN=bn, BK=bk, SCOPES=KINDS[kind], **own)

    def check(self, kind: str) -> None:
        """Raises AssertionError where the product is not that of torch in f32."""
        self.c.fill_(float("nan"))
        self.launch(kind)
        error = ((self.c.float() - self.wanted).abs().max() / self.wanted.abs().max()).item()
        assert error < 1e-2, f"{kind}: off by {error:.3g} of the largest element"


def recording(folder: Path, kind: str) -> int | None:
    """Begins a session that records what is inside kernels, except for the plain kind."""
    if kind == "plain":
        return None
    return proton.start(str(folder / kind.replace(" ", "_")), backend="instrumentation")


def kernel_microseconds(work: Callable[[], None]) -> list[float]:
    """GPU time of each launch of the kernel."""
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(LAUNCHES):
            work()
        torch.cuda.synchronize()
    return [event.device_time for event in profile.events() if event.name.startswith("product")]


def compare(products: Products, folder: Path) -> dict[str, list[float]]:
    """Microseconds of each launch by kind, rounds in turns."""
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(ROUNDS):
        for kind, found in times.items():
            session = recording(folder, kind)
            products.check(kind)
            found += kernel_microseconds(lambda kind=kind: products.launch(kind))
            if session is not None:
                proton.finalize(session)
    return times


def write_trace(products: Products, name: str) -> None:
    """NAME.chrome_trace: a lane for each warp of one launch."""
    kind = "scopes in the loop"
    products.launch(kind)
    session = proton.start(name, backend="instrumentation", data="trace", mode=TRACED_MODE)
    products.launch(kind)
    proton.finalize(session)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", default="8192,8192,8192", metavar="M,N,K")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--trace", metavar="NAME", help="write NAME.chrome_trace of a small product")
    options = parser.parse_args()
    m, n, k = map(int, options.shape.split(","))
    # Rings of 256 records keep the newest; older ones cost what they cost, and warnings say that they are gone.
    warnings.simplefilter("ignore")
    with TemporaryDirectory() as folder:
        times = compare(Products((m, n, k), "cuda"), Path(folder))
    plain = statistics.median(times["plain"])
    for kind, found in times.items():
        spread = f"{min(found):.1f}-{max(found):.1f}"
        print(f"{kind:<20} {statistics.median(found):9.1f} us ({spread})  {statistics.median(found) / plain:.3f}x")
    if options.out:
        options.out.write_text(json.dumps({"shape": [m, n, k], "us": times}, indent=1))
    if options.trace:
        write_trace(Products(TRACED_SHAPE, "cuda"), options.trace)


if __name__ == "__main__":
    main()
