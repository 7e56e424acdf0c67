"""Products of a mixture of experts, whose tiles gather rows of tokens, against Triton with the same source.

python benchmarks/experts.py [--peers] [--problems E,TOP_K,N,K ...] [--tokens T ...] [--configs FILE] [--limit SECONDS]
                             [--quick] [--out FILE] [--device cpu]

The kernel of examples/experts.py in bf16, checked and timed as gemm.py does it; tokens choose their experts at random,
and the tables are made beforehand. The library is a loop of torch's products, one for each expert, gathering included.
"""

from __future__ import annotations

import argparse

from candidates import Candidate, plain, read_configs
from contest import Contest, add_options
from experts_work import Compiler, Experts, ExpertsBench

#: Experts, chosen ones, N, K: both products of a layer of Mixtral 8x7B, and one of many small experts.
PROBLEMS = [(8, 2, 14336, 4096), (8, 2, 4096, 14336), (64, 8, 2048, 2048)]
TOKENS = [1, 16, 64, 256, 1024, 4096]
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
#: NAMES, num_warps, num_stages: what suits few tokens an expert and many.
ROWS = [(16, 64, 128, 8, 4, 4), (16, 128, 64, 8, 4, 4), (16, 128, 128, 8, 4, 3), (32, 128, 64, 8, 4, 4)]
ROWS += [(64, 64, 64, 8, 4, 4), (64, 128, 64, 8, 4, 3), (64, 128, 64, 8, 4, 4), (64, 128, 128, 8, 4, 3)]
ROWS += [(64, 256, 64, 8, 8, 3), (128, 128, 64, 8, 8, 3), (128, 256, 64, 8, 8, 3), (128, 256, 64, 8, 8, 4)]


def fits(candidate: Candidate, problem: Experts) -> bool:
    """Whether tiles are not much higher than what an expert has, and not much lower."""
    rows, each = candidate.block("BLOCK_M"), problem.tokens * problem.top_k / problem.experts
    return rows <= max(64, 2 * each) and (rows >= 64 or each <= 512)


def main() -> None:
    """The contest of all problems."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", nargs="+", metavar="E,TOP_K,N,K", help="instead of the three")
    parser.add_argument("--tokens", nargs="+", type=int, default=TOKENS)
    add_options(
        parser,
        configs="JSON file of deuteron's candidates",
        quick="few candidates, few rounds, three numbers of tokens",
        device="cuda:0, or cpu",
    )
    options = parser.parse_args()
    try:
        shapes = [tuple(map(int, s.split(","))) for s in options.problems] if options.problems else PROBLEMS
        tokens = options.tokens[::2] if options.quick else options.tokens
        problems = [Experts(t, *shape, options.device) for shape in shapes for t in tokens]
    except (ValueError, TypeError):
        parser.error("--problems takes four whole numbers each: 8,2,14336,4096")
    common = plain(NAMES, ROWS[1::4] if options.quick else ROWS)
    candidates = read_configs(options.configs, NAMES) if options.configs else common
    Contest.asked(options, problems, candidates, common, fits, Compiler, ExpertsBench).show()


if __name__ == "__main__":
    main()
