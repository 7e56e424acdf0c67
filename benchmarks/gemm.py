"""Matrix products of the example's plain-pointer kernel against cuBLAS, and against Triton with the same source.

python benchmarks/gemm.py [--peers [--tutorial]] [--dtype bf16|f16|fp8] [--transposed] [--shapes M,N,K ...]
                          [--configs FILE] [--compared FILE] [--limit SECONDS] [--quick] [--out FILE] [--device cpu]

Every candidate is compiled ahead in parallel, checked on N(0, 1) inputs and a poisoned result against an f32 product,
and then timed in turns with cuBLAS (torch.mm; torch._scaled_mm for fp8), the L2 flushed before each launch: all
candidates briefly, then the best few at length. The table is of the last timing alone. A candidate that hangs, crashes
or is wrong is reported and costs only itself.

``--peers`` adds Triton: its best over the configurations of its matmul tutorial and more that suit Hopper and small M
(``--tutorial``: over those of the tutorial alone), and deuteron with default schedule at that best configuration
("/same"). ``--configs`` replaces deuteron's candidates: JSON, a list
of objects with BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M, num_warps, num_stages and perhaps ``schedule``,
an object of further schedule options; a list in place of a value stands for each of its members. ``--compared`` names
further ones, such as a search has found, each for the shape that it has as ``shape``, [M, N, K]: these are timed once
more at the end, beside the fastest of all.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from candidates import Candidate, candidate_from, plain, read_configs, readable
from contest import Contest, add_options
from gemm_work import Compiler, Product, Products

SHAPES = [(n, n, n) for n in (1024, 2048, 4096, 8192)]
SHAPES += [(8192, 8192, 512), (4096, 14336, 4096), (4096, 4096, 14336), (8192, 10240, 8192)]
SHAPES += [(128, 8192, 8192), (4096, 1024, 8192), (64, 8192, 8192), (16, 8192, 8192), (1, 8192, 8192)]
NAMES = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
#: NAMES, num_warps, num_stages of the CUDA configurations in Triton's matmul tutorial, ...
TUTORIAL = [(128, 256, 64, 8, 8, 3), (64, 256, 32, 8, 4, 4), (128, 128, 32, 8, 4, 4), (128, 64, 32, 8, 4, 4)]
TUTORIAL += [(64, 128, 32, 8, 4, 4), (128, 32, 32, 8, 4, 4), (64, 32, 32, 8, 2, 5), (32, 64, 32, 8, 2, 5)]
TUTORIAL += [(128, 256, 128, 8, 8, 3), (256, 128, 128, 8, 8, 3), (256, 64, 128, 8, 4, 4), (64, 256, 128, 8, 4, 4)]
TUTORIAL += [(128, 128, 128, 8, 4, 4), (128, 64, 64, 8, 4, 4), (64, 128, 64, 8, 4, 4), (128, 32, 64, 8, 4, 4)]
#: ... and more: those that suit Hopper's tensor cores, and tiles for few rows.
MORE = [(256, 128, 64, 8, 8, 3), (128, 256, 64, 8, 8, 4), (128, 128, 64, 8, 4, 4), (128, 128, 64, 8, 8, 3)]
MORE += [(128, 256, 64, 16, 8, 3), (128, 256, 64, 16, 8, 4), (256, 128, 64, 4, 8, 4), (64, 128, 128, 8, 4, 4)]
FEW_ROWS = [(16, 64, 128, 8, 4, 4), (16, 32, 256, 8, 4, 4), (16, 128, 128, 8, 4, 3), (64, 32, 128, 8, 4, 4)]
FEW_ROWS += [(64, 64, 64, 8, 4, 5), (64, 64, 128, 8, 4, 4), (64, 64, 128, 8, 4, 6), (16, 64, 128, 8, 4, 5)]
#: Tiles of two warp groups for as many programs as there are SMs, one per SM, which deuteron has beside.
FEW_TILES = [(128, 64, 128, 8, 8, 4), (128, 64, 128, 8, 8, 6), (64, 128, 128, 8, 8, 4), (64, 128, 128, 8, 8, 6)]


def fits(candidate: Candidate, product: Product) -> bool:
    """Whether the tile's height suits M: no more rows than there are, beyond the 64 of one wgmma, and no fewer than 64
    where there are many."""
    rows = candidate.block("BLOCK_SIZE_M")
    return rows <= max(64, 1 << (product.m - 1).bit_length()) and (rows >= 64 or product.m < 512)


def read_compared(path: Path, products: list[Product]) -> dict[Product, list[Candidate]]:
    """The candidates of ``--compared``, by product; those of other shapes are left out.

    Raises:
        SystemExit: the file cannot be read as such.
    """
    with readable(path):
        entries = json.loads(path.read_text())
        shapes = [tuple(entry.pop("shape")) for entry in entries]
        found = [candidate_from(entry, NAMES) for entry in entries]
    pairs = list(zip(shapes, found, strict=True))
    return {p: [c for shape, c in pairs if shape == (p.m, p.n, p.k)] for p in products}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "f16", "f32", "fp8"))
    parser.add_argument("--tutorial", action="store_true", help="give Triton the configurations of its tutorial alone")
    parser.add_argument("--transposed", action="store_true", help="b is stored as [N, K]; for fp8 it always is")
    parser.add_argument("--shapes", nargs="+", metavar="M,N,K", help="instead of the thirteen")
    parser.add_argument("--compared", type=Path, metavar="FILE", help="JSON file of a candidate for each shape")
    add_options(
        parser,
        configs="JSON file of deuteron's candidates",
        quick="few candidates, few rounds",
        device="cuda:0, or cpu, where the peer is torch's library",
    )
    options = parser.parse_args()
    options.transposed = options.transposed or options.dtype == "fp8"
    try:
        shapes = [tuple(map(int, s.split(","))) for s in options.shapes] if options.shapes else SHAPES
        options.products = [Product(*s, options.dtype, options.transposed, options.device) for s in shapes]
    except (ValueError, TypeError):
        parser.error("--shapes takes three whole numbers each: 4096,4096,4096")
    return options


def main() -> None:
    """The contest of all shapes."""
    options = parse()
    rows = TUTORIAL + MORE + FEW_ROWS
    common = plain(NAMES, rows[:2] + rows[-2:] if options.quick else rows)
    own = [replace(c, extra=(("persistent", False),)) for c in plain(NAMES, [] if options.quick else FEW_TILES)]
    candidates = read_configs(options.configs, NAMES) if options.configs else common + own
    triton = plain(NAMES, TUTORIAL) if options.tutorial else common
    compared = read_compared(options.compared, options.products) if options.compared else {}
    contest = Contest.asked(options, options.products, candidates, triton, fits, Compiler, Products)
    replace(contest, compared=compared).show()


if __name__ == "__main__":
    main()
