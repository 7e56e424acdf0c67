"""Attention of examples/attention.py, forward and backward, beside cuDNN, FlashAttention-2 and Triton (same source).

python benchmarks/attention.py [--shapes B,H,N,D ...] [--dtype bf16|f16|fp8] [--only forward|backward] [--peers]
                               [--configs FILE] [--limit SECONDS] [--quick] [--out FILE] [--device cpu]

cuDNN and FlashAttention-2 are the backends of torch's scaled_dot_product_attention (for fp8, on the same numbers in
bf16); for gradients they run through autograd. All results are checked against f32 arithmetic, those of candidates on
poisoned outputs, and timed in turns with a cold L2. 4 B H N^2 D operations forward, 2.5 times that backward, half of it
if causal. deuteron and, with ``--peers``, Triton each take their best of the same configurations; ``--configs``
replaces deuteron's: JSON, a list of objects with BLOCK_M and BLOCK_N (or with KEYS, QUERIES and STEP, for the backward
pass), num_warps, num_stages and perhaps ``schedule``, an object of further options; lists are choices.
"""

from __future__ import annotations

import argparse

from attention_work import Attention, Attentions, Compiler
from candidates import Candidate, plain, read_configs
from contest import Contest, add_options

SHAPES = [(4, 32, 4096, 128), (4, 32, 4096, 64), (16, 32, 1024, 128), (1, 32, 16384, 128)]
FORWARD = ("BLOCK_M", "BLOCK_N")
#: BLOCK_M, BLOCK_N, num_warps, num_stages.
FORWARDS = [(128, 128, 8, 2), (128, 128, 8, 3), (128, 64, 4, 3), (128, 64, 8, 3), (64, 128, 4, 3), (64, 64, 4, 3)]
BACKWARD = ("KEYS", "QUERIES", "STEP")
#: Keys that dk and dv hold, queries that dq holds, the step of both, num_warps, num_stages.
BACKWARDS = [(128, 128, 64, 8, 2), (128, 128, 32, 4, 4), (64, 128, 64, 4, 2), (64, 64, 64, 4, 3), (128, 128, 32, 8, 3)]


def fits(candidate: Candidate, problem: Attention) -> bool:
    """Whether the candidate is of the pass that the problem asks for."""
    return ("STEP" in dict(candidate.blocks)) == problem.backward


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "f16", "fp8"))
    parser.add_argument("--only", choices=("forward", "backward"), help="one pass instead of both")
    parser.add_argument("--shapes", nargs="+", metavar="B,H,N,D", help="instead of four usual ones")
    add_options(
        parser,
        configs="JSON file of deuteron's candidates, for the pass of --only",
        quick="two candidates of each pass, few rounds, the first shape",
        device="cuda:0, or cpu to try the machinery",
    )
    options = parser.parse_args()
    if options.configs and not options.only:
        parser.error("--configs needs --only forward or --only backward")
    passes = [b for b, name in ((False, "forward"), (True, "backward")) if options.only in (None, name)]
    try:
        shapes = [tuple(map(int, s.split(","))) for s in options.shapes] if options.shapes else SHAPES
        options.problems = [
            Attention(*shape, causal, backward, options.dtype, options.device)
            for shape in (shapes[:1] if options.quick and not options.shapes else shapes)
            for backward in passes
            for causal in (False, True)
            if not (backward and options.dtype == "fp8")
        ]
    except (ValueError, TypeError):
        parser.error("--shapes takes four whole numbers each: 4,32,4096,128")
    return options


def main() -> None:
    """The contest of all shapes and passes."""
    options = parse()
    common = plain(FORWARD, FORWARDS[: 2 if options.quick else None])
    common += plain(BACKWARD, BACKWARDS[: 2 if options.quick else None])
    candidates = common
    if options.configs:
        candidates = read_configs(options.configs, BACKWARD if options.only == "backward" else FORWARD)
    Contest.asked(options, options.problems, candidates, common, fits, Compiler, Attentions).show()


if __name__ == "__main__":
    main()
