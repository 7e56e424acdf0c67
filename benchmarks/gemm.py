"""Matrix products of the example's plain-pointer kernel against cuBLAS, and against Triton with the same source.

python benchmarks/gemm.py [--peers] [--dtype bf16|f16|fp8] [--transposed] [--shapes M,N,K ...] [--configs FILE]
                          [--limit SECONDS] [--quick] [--out FILE] [--device cpu]

Every candidate is compiled ahead in parallel, checked on N(0, 1) inputs and a poisoned result against an f32 product,
and then timed in turns with cuBLAS (torch.mm; torch._scaled_mm for fp8), the L2 flushed before each launch: all
candidates briefly, then the best few at length. The table is of the last timing alone. A candidate that hangs, crashes
or is wrong is reported and costs only itself.

``--peers`` adds Triton: its best over the configurations of its matmul tutorial (and tiles for small M), and deuteron
with default schedule at that best configuration ("/same"). ``--configs`` replaces deuteron's candidates: JSON, a list
of objects with BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, num_warps, num_stages and ``schedule``, an object of further
schedule options; a list in place of a value stands for each of its members.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gemm_work import PEER, Bench, Candidate, Compiler, Problem
from isolated import Isolated, WorkFailed
from sources import environment
from timing import Timing, geomean

SHAPES = [(n, n, n) for n in (1024, 2048, 4096, 8192)]
SHAPES += [(8192, 8192, 512), (4096, 14336, 4096), (4096, 4096, 14336), (8192, 10240, 8192)]
SHAPES += [(128, 8192, 8192), (4096, 1024, 8192), (64, 8192, 8192), (16, 8192, 8192), (1, 8192, 8192)]
#: BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages of the CUDA configurations in Triton's matmul tutorial, ...
TUTORIAL = [(128, 256, 64, 8, 3), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4)]
TUTORIAL += [(128, 32, 32, 4, 4), (64, 32, 32, 2, 5), (32, 64, 32, 2, 5)]
TUTORIAL += [(128, 256, 128, 8, 3), (256, 128, 128, 8, 3), (256, 64, 128, 4, 4), (64, 256, 128, 4, 4)]
TUTORIAL += [(128, 128, 128, 4, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (128, 32, 64, 4, 4)]
#: ... and more: those that suit Hopper's tensor cores, and tiles for few rows.
MORE = [(256, 128, 64, 8, 3), (128, 256, 64, 8, 4), (128, 128, 64, 4, 4), (128, 128, 64, 8, 3), (64, 64, 64, 4, 5)]
FEW_ROWS = [(16, 64, 128, 4, 4), (16, 32, 256, 4, 4), (16, 128, 128, 4, 3), (64, 32, 128, 4, 4), (64, 64, 128, 4, 4)]
GROUP = 8
#: Seconds of silence after which a compilation, or a launch, is called a deadlock.
COMPILE_SECONDS, LAUNCH_SECONDS = 60.0, 12.0
SCREEN_ROUNDS, FINAL_ROUNDS, FINALISTS = 5, 40, 3


@dataclass
class Outcome:
    """What became of one candidate on one problem; times in microseconds."""

    candidate: Candidate
    compile_seconds: float | None = None
    error: float | None = None
    failure: str | None = None
    screened: Timing | None = None
    final: Timing | None = None

    @property
    def name(self) -> str:
        """As the measuring process knows it."""
        return f"{self.candidate.package} {self.candidate}"


@dataclass
class Result:
    """One problem: the peer's final timing, and every candidate's outcome."""

    problem: Problem
    peer: Timing | None = None
    outcomes: list[Outcome] = field(default_factory=list)

    def best(self, package: str) -> Outcome | None:
        """The fastest in the final timing."""
        timed = [o for o in self.outcomes if o.candidate.package == package and o.final]
        return min(timed, key=lambda o: o.final.us if o.final else 0.0, default=None)

    def twin(self, of: Outcome | None) -> Outcome | None:
        """deuteron with default schedule and the configuration of one of Triton's."""
        if of is None:
            return None
        c = of.candidate
        wanted = Candidate("deuteron", c.blocks, c.group, c.warps, c.stages)
        return next((o for o in self.outcomes if o.candidate == wanted), None)

    def teraflops(self, timing: Timing | None) -> float:
        """2 M N K over the time, in 10^12 a second; NaN without a time."""
        p = self.problem
        return 2.0 * p.m * p.n * p.k / timing.us / 1e6 if timing else float("nan")


# ---- candidates ----------------------------------------------------------------------------------------------------


def candidates(options: argparse.Namespace) -> list[Candidate]:
    """Everything that may be tried, before the shape is known."""
    plain = [(m, n, k, GROUP, w, s) for m, n, k, w, s in TUTORIAL + MORE + FEW_ROWS]
    if options.quick:
        plain = plain[:2] + plain[-2:]
    common = [Candidate("deuteron", (m, n, k), g, w, s) for m, n, k, g, w, s in plain]
    found = list(read_configs(options.configs)) if options.configs else common
    if options.peers:
        found += [Candidate("triton", c.blocks, c.group, c.warps, c.stages) for c in common]
        found += common
    return list(dict.fromkeys(found))


def read_configs(path: Path) -> Iterator[Candidate]:
    """The candidates of a file; see the top of this module."""
    try:
        for entry in json.loads(path.read_text()):
            schedule = entry.pop("schedule", {})
            names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages")
            if unknown := set(entry) - set(names):
                raise SystemExit(f"{path}: unknown {', '.join(sorted(unknown))}; known: {', '.join(names)}, schedule")
            values = [entry.get(name, GROUP) if name == "GROUP_M" else entry[name] for name in names]
            for m, n, k, group, warps, stages in itertools.product(*map(_choices, values)):
                for chosen in itertools.product(*map(_choices, schedule.values())):
                    extra = tuple(zip(schedule, chosen, strict=True))
                    yield Candidate("deuteron", (m, n, k), group, warps, stages, extra)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise SystemExit(f"{path}: {type(error).__name__}: {error}") from None


def _choices(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def fits(candidate: Candidate, problem: Problem) -> bool:
    """Whether the tile's height suits M: no more rows than there are, beyond the 64 of one wgmma, and no fewer than 64
    where there are many."""
    rows = candidate.blocks[0]
    return rows <= max(64, 1 << (problem.m - 1).bit_length()) and (rows >= 64 or problem.m < 512)


# ---- compiling ahead -----------------------------------------------------------------------------------------------


def compile_ahead(pairs: list[tuple[Candidate, Problem]], workers: int) -> dict[tuple[object, ...], float | str]:
    """Seconds, or why not, of each candidate for each kind of problem, compiled into the disk caches by processes that
    a bad candidate may bring down."""
    mine = threading.local()
    made: list[Isolated] = []

    def build(pair: tuple[Candidate, Problem]) -> float | str:
        if not hasattr(mine, "compiler"):
            mine.compiler = Isolated(Compiler)
            made.append(mine.compiler)
        try:
            seconds: float = mine.compiler.ask("build", *pair, patience=COMPILE_SECONDS)
        except WorkFailed as failure:
            return str(failure)
        return seconds

    wanted = {(c, p.specialised): (c, p) for c, p in pairs}
    with ThreadPoolExecutor(workers) as pool:
        found = dict(zip(wanted, pool.map(build, wanted.values()), strict=True))
    for compiler in made:
        compiler.close()
    return found


# ---- measuring -----------------------------------------------------------------------------------------------------


def measure(bench: Isolated, result: Result, deadline: float, rounds: tuple[int, int]) -> None:
    """Check all candidates that compiled, screen those that are right, and time the best of them at length."""
    live = [o for o in result.outcomes if o.failure is None]
    for outcome in live:
        if time.monotonic() > deadline:
            outcome.failure = "not tried: out of time"
            continue
        _check(bench, result.problem, outcome)
    names = {o.name: o for o in live if o.failure is None}
    for name, timing in _race(bench, result.problem, names, rounds[0]).items():
        if name in names:
            names[name].screened = timing
    chosen = finalists(result)
    for name, timing in _race(bench, result.problem, chosen, rounds[1]).items():
        if name == PEER:
            result.peer = timing
        else:
            chosen[name].final = timing


def finalists(result: Result) -> dict[str, Outcome]:
    """The fastest few of each compiler, and deuteron's twin of Triton's fastest."""
    chosen: list[Outcome] = []
    for package, count in (("deuteron", FINALISTS), ("triton", 1)):
        timed = [o for o in result.outcomes if o.candidate.package == package and o.screened]
        chosen += sorted(timed, key=lambda o: o.screened.us if o.screened else 0.0)[:count]
    if chosen and chosen[-1].candidate.package == "triton":
        twin = result.twin(chosen[-1])
        chosen += [twin] if twin and twin.screened else []
    return {o.name: o for o in chosen}


def _check(bench: Isolated, problem: Problem, outcome: Outcome) -> None:
    try:
        _ready(bench, problem)
        outcome.error = bench.ask("check", outcome.candidate, patience=LAUNCH_SECONDS)
    except WorkFailed as failure:
        outcome.failure = str(failure)


def _ready(bench: Isolated, problem: Problem) -> None:
    """Give a new child the problem's arrays."""
    if not bench.alive:
        bench.ask("prepare", problem, patience=5 * LAUNCH_SECONDS)


def _race(bench: Isolated, problem: Problem, among: dict[str, Outcome], rounds: int) -> dict[str, Timing]:
    """Time candidates beside the peer; one that hangs is left out, and the others begin again."""
    while among:
        try:
            if not bench.alive:
                _ready(bench, problem)
                for outcome in among.values():
                    bench.ask("check", outcome.candidate, patience=LAUNCH_SECONDS)
            names = bench.ask("admitted", patience=LAUNCH_SECONDS)
            timings: dict[str, Timing] = bench.ask(
                "race", [n for n in names if n in among or n == PEER], rounds, patience=LAUNCH_SECONDS
            )
            return timings
        except WorkFailed as failure:
            guilty = among.pop(failure.last, None)
            if guilty is None:
                print(f"{problem}: {failure}", file=sys.stderr)
                return {}
            guilty.failure = f"while it was timed: {failure}"
    return {}


# ---- what is printed -----------------------------------------------------------------------------------------------


def table(results: list[Result]) -> str:
    """Rates in TFLOP/s and their ratios: the best against cuBLAS and Triton's best, and deuteron with default schedule
    against Triton at Triton's best configuration."""
    lines = [f"{'M x N x K':18}{'TFLOP/s':>9}{'cuBLAS':>9}{'/cuBLAS':>9}{'/Triton':>9}{'/same':>7}  configuration"]
    columns: list[list[float]] = [[], [], []]
    for result in results:
        ours, triton = result.best("deuteron"), result.best("triton")
        twin = result.twin(triton)
        mine = result.teraflops(ours.final if ours else None)
        theirs, peer = result.teraflops(triton.final if triton else None), result.teraflops(result.peer)
        same = result.teraflops(twin.final if twin else None)
        ratios = (mine / peer, mine / theirs, same / theirs)
        for column, ratio in zip(columns, ratios, strict=True):
            column += [ratio] if ratio == ratio else []
        shown = "".join(
            f"{r:>{w}.2f}" if r == r else " " * (w - 1) + "-" for r, w in zip(ratios, (9, 9, 7), strict=True)
        )
        lines.append(f"{result.problem!s:18}{mine:>9.1f}{peer:>9.1f}{shown}  {ours.candidate if ours else 'none ran'}")
    means = "".join(f"{geomean(c):>{w}.3f}" if c else " " * w for c, w in zip(columns, (9, 9, 7), strict=True))
    least = "".join(f"{min(c):>{w}.3f}" if c else " " * w for c, w in zip(columns, (9, 9, 7), strict=True))
    return "\n".join([*lines, f"{'geomean':36}{means}", f"{'least':36}{least}"])


def failures(results: list[Result]) -> str:
    """Candidates that did not get as far as a time, most frequent reason first, by their first words."""
    reasons: dict[str, list[str]] = {}
    for result in results:
        for outcome in result.outcomes:
            if outcome.failure:
                reasons.setdefault(outcome.failure.splitlines()[0][:90], []).append(f"{result.problem} {outcome.name}")
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return "\n".join(f"{len(where)} failed: {why}; first: {where[0]}" for why, where in ordered)


def record(results: list[Result], options: argparse.Namespace) -> str:
    """All figures as JSON."""
    settings = {"dtype": options.dtype, "transposed": options.transposed, "flush_bytes_before_each_launch": True}
    return json.dumps({"environment": environment(), **settings, "results": [asdict(r) for r in results]}, indent=1)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", action="store_true", help="measure Triton beside it")
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "f16", "f32", "fp8"))
    parser.add_argument("--transposed", action="store_true", help="b is stored as [N, K]; so it is for fp8 always")
    parser.add_argument("--shapes", nargs="+", metavar="M,N,K", help="instead of the thirteen")
    parser.add_argument("--configs", type=Path, help="JSON file of deuteron's candidates")
    parser.add_argument(
        "--limit", type=float, default=float("inf"), metavar="SECONDS", help="begin no shape after this"
    )
    parser.add_argument("--quick", action="store_true", help="few candidates, few rounds")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="compiling processes")
    parser.add_argument("--device", default="cuda:0", help="cuda:0, or cpu, where the peer is torch's library")
    parser.add_argument("--out", type=Path, help="write all figures as JSON")
    options = parser.parse_args()
    options.transposed = options.transposed or options.dtype == "fp8"
    try:
        options.shapes = [tuple(map(int, s.split(","))) for s in options.shapes] if options.shapes else SHAPES
        options.problems = [Problem(*s, options.dtype, options.transposed, options.device) for s in options.shapes]
    except (ValueError, TypeError):
        parser.error("--shapes takes three whole numbers each: 4096,4096,4096")
    return options


def main() -> None:
    """Compile everything, then measure shape by shape; what is done is written after each."""
    options = parse()
    begin = time.monotonic()
    deadline = begin + options.limit
    pool = candidates(options)
    pairs = [(c, p) for p in options.problems for c in pool if fits(c, p)]
    compiled = compile_ahead(pairs, options.workers)
    print(f"{len(compiled)} variants compiled in {time.monotonic() - begin:.0f} s", flush=True)
    bench = Isolated(Bench)
    rounds = (2, 8) if options.quick else (SCREEN_ROUNDS, FINAL_ROUNDS)
    results: list[Result] = []
    for problem in options.problems:
        if time.monotonic() > deadline:
            print(f"{problem} and those after it: not begun in {options.limit:.0f} s")
            break
        result = Result(problem)
        for candidate in (c for c, p in pairs if p == problem):
            built = compiled[candidate, problem.specialised]
            outcome = Outcome(candidate, failure=built) if isinstance(built, str) else Outcome(candidate, built)
            result.outcomes.append(outcome)
        try:
            bench.ask("prepare", problem, patience=60.0)
        except WorkFailed as failure:
            raise SystemExit(f"{problem}: {failure}") from None
        measure(bench, result, deadline, rounds)
        results.append(result)
        print(f"{problem}: {time.monotonic() - begin:.0f} s", flush=True)
        if options.out:
            options.out.write_text(record(results, options) + "\n")
    bench.close()
    if why := failures(results):
        print(why)
    print(table(results))


if __name__ == "__main__":
    main()
