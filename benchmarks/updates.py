"""Additions to memory by atomics: products whose inner dimension is split, gradients of embeddings, histograms, sums.

python benchmarks/updates.py [--rounds 40] [--out FILE]

The kernels of update_kernels.py under deuteron and under Triton, same source and options, on a GPU. Each result is
checked against PyTorch's, from zeroed memory, then both are timed in turns with a cold L2 ("ratio": Triton's time over
ours). acq_rel is what a program gets that says nothing.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from sources import environment, load_kernels
from timing import Call, geomean, race, relative_error

ROOT = Path(__file__).parent
PACKAGES = ("triton", "deuteron")
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
#: M, N, K, blocks, parts, num_warps, num_stages.
PRODUCTS = [(128, 4096, 8192, 128, 128, 64, 8, 4, 4), (16, 4096, 14336, 16, 64, 128, 8, 4, 4)]
PRODUCTS += [(512, 2048, 16384, 128, 128, 64, 4, 8, 3)]
#: Additions of parts in any order, in the type of the result.
TOLERANCE = 2e-2


@dataclass(frozen=True)
class Case:
    """One kernel on one set of arrays: ``result`` is to be ``wanted``."""

    name: str
    calls: dict[str, Call]
    result: torch.Tensor
    wanted: torch.Tensor
    tolerance: float = TOLERANCE


@functools.cache
def kernels(package: str) -> ModuleType:
    """The kernels under one compiler."""
    return load_kernels("update_kernels", package, ROOT)


def calls(kernel: str, grid: tuple[int, ...], *arguments: object, **options: object) -> dict[str, Call]:
    """The same launch under both compilers."""
    return {
        package: functools.partial(getattr(kernels(package), kernel)[grid], *arguments, **options)
        for package in PACKAGES
    }


def products(dtype: str, sem: str) -> Iterator[Case]:
    """Parts of products, added in the type of the result."""
    for m, n, k, bm, bn, bk, split, warps, stages in PRODUCTS:
        a, b = (torch.randn(shape, device="cuda").to(torch.bfloat16) for shape in ((m, k), (k, n)))
        c = torch.zeros(m, n, device="cuda", dtype=DTYPES[dtype])
        options = {"BM": bm, "BN": bn, "BK": bk, "SPLIT": split, "SEM": sem, "num_warps": warps, "num_stages": stages}
        made = calls("split_k", (m // bm * (n // bn), split), a, b, c, m, n, k, **options)
        yield Case(f"split_k {dtype} {sem} {m}x{n}x{k}", made, c, a.float() @ b.float())


def embeddings(dtype: str, sem: str) -> Iterator[Case]:
    """Rows of 4096 numbers, added to those of a table of 32,000."""
    tokens, rows, dims = 8192, 32000, 4096
    index = torch.randint(0, rows, (tokens,), device="cuda")
    gradient = torch.randn(tokens, dims, device="cuda").to(DTYPES[dtype])
    table = torch.zeros(rows, dims, device="cuda", dtype=DTYPES[dtype])
    made = calls("embedding_gradient", (tokens,), index, gradient, table, dims, BLOCK=dims, SEM=sem, num_warps=8)
    wanted = torch.zeros(rows, dims, device="cuda").index_add_(0, index, gradient.float())
    yield Case(f"embedding {dtype} {sem}", made, table, wanted)


def sums() -> Iterator[Case]:
    """One number a column, and one a bin, from each program."""
    x, total = torch.randn(8192, 4096, device="cuda"), torch.zeros(4096, device="cuda")
    yield Case("column sums f32", calls("column_sums", (128, 32), x, total, 4096, BM=64, BN=128), total, x.sum(0))
    numbers = torch.randint(0, 256, (1 << 24,), device="cuda", dtype=torch.int32)
    counts = torch.zeros(256, device="cuda", dtype=torch.int32)
    made = calls("histogram", (len(numbers) // 4096,), numbers, counts, BINS=256, BLOCK=4096)
    yield Case("histogram", made, counts, torch.bincount(numbers, minlength=256), 0.0)


def cases() -> Iterator[Case]:
    """All of them, one after the other."""
    for dtype in DTYPES:
        for sem in ("acq_rel", "relaxed"):
            yield from products(dtype, sem)
            yield from embeddings(dtype, sem)
    yield from sums()


def measure(case: Case, rounds: int) -> dict[str, float | str]:
    """Check both, then time them; microseconds.

    Raises:
        SystemExit: a result is wrong.
    """
    for package, call in case.calls.items():
        case.result.zero_()
        call()
        torch.cuda.synchronize()
        error = relative_error(case.result, case.wanted)
        if not error <= case.tolerance:
            raise SystemExit(f"{case.name}: {package} is wrong by {error:.2g}")
    times = {package: timing.us for package, timing in race(case.calls, "cuda", rounds, lambda _: None).items()}
    return {"name": case.name, **times, "ratio": times["triton"] / times["deuteron"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40, help="timings of each")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for case in cases():
        row = measure(case, options.rounds)
        rows.append(row)
        print(f"{row['name']:36}{row['triton']:9.1f}{row['deuteron']:9.1f}{row['ratio']:7.2f}", flush=True)
        if options.out:
            options.out.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")
    print(f"geomean of Triton's time over ours: {geomean([float(row['ratio']) for row in rows]):.3f}")


if __name__ == "__main__":
    main()
