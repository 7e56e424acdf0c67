"""Times of the same configurations at many shapes, from which predictions are learnt and checked.

python benchmarks/gpu_table.py --out table.json [--only matmul|softmax|attention ...] [--limit 200] [--rounds 7]

The built-in matmul (bf16) and softmax (f32), and attention of examples/attention.py (bf16, forward): at least 60 shapes
each, and up to 40 configurations a shape. Everything is compiled ahead in parallel, each configuration is checked at
each shape against torch in f32 on poisoned outputs and timed in turns with the others, the L2 flushed before each
launch. What is done is written after each shape: one file as ``GET /v1/searches`` answers, which ``deuteron learn`` and
benchmarks/prediction.py read. --limit: seconds after which no further shape is begun, compiling included; each kernel
has its share.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from candidates import Candidate
from contest import Outcome, Result, Service, compile_ahead, failures, measure
from isolated import Isolated
from sources import environment
from table_work import Compiler, Launches, candidate_of, config_of, make_attention_bench, make_bench

from deuteron.tuner.experience import KnownConfig, SearchLog
from deuteron.tuner.inference.devices import device_of
from deuteron.tuner.workloads import builtin_workload

ROWS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 256, 512, 1024, 2048, 4096, 8192)
#: N, K of projections and of the two products of a feed-forward layer, and of smaller ones.
PLANES = ((4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096), (8192, 8192), (1024, 8192), (2048, 2048))
PLANES += ((1024, 1024), (10240, 8192))
#: BLOCK_M, BLOCK_N and BLOCK_K, and with them GROUP_M, num_warps, num_stages and persistent.
SCHEDULES = {
    (16, 64, 64): ((8, 4, 3, 0), (8, 4, 5, 0)),
    (16, 64, 128): ((8, 4, 4, 0), (8, 4, 6, 0)),
    (16, 128, 64): ((8, 4, 4, 0),),
    (16, 128, 128): ((8, 4, 3, 0), (8, 4, 5, 0)),
    (16, 256, 64): ((8, 4, 4, 0),),
    (32, 64, 64): ((8, 4, 3, 0), (8, 4, 5, 0)),
    (32, 64, 128): ((8, 4, 4, 0), (8, 4, 6, 0)),
    (32, 128, 64): ((8, 4, 4, 0),),
    (32, 128, 128): ((8, 4, 3, 0),),
    (32, 256, 64): ((8, 8, 3, 0), (8, 4, 4, 0)),
    (64, 64, 64): ((8, 4, 3, 0), (8, 4, 5, 0), (8, 4, 4, 0), (8, 8, 4, 0)),
    (64, 64, 128): ((8, 4, 4, 0), (8, 4, 6, 0), (8, 4, 3, 0)),
    (64, 64, 32): ((8, 4, 4, 0),),
    (64, 128, 32): ((8, 4, 4, 0),),
    (64, 128, 64): ((8, 4, 3, 0), (8, 8, 4, 0), (8, 4, 4, 0), (8, 4, 6, 0)),
    (64, 128, 128): ((8, 4, 4, 0), (8, 4, 3, 0), (8, 8, 4, 0)),
    (64, 256, 32): ((8, 4, 4, 0),),
    (64, 256, 64): ((8, 4, 3, 0), (8, 4, 4, 0), (8, 8, 4, 0)),
    (128, 64, 64): ((8, 4, 4, 0), (8, 8, 4, 0)),
    (128, 64, 128): ((8, 4, 3, 0), (8, 8, 4, 0)),
    (128, 128, 32): ((8, 4, 4, 0),),
    (128, 128, 64): ((8, 4, 4, 0), (8, 8, 3, 0), (8, 8, 5, 0), (8, 8, 4, 1), (8, 4, 4, 1)),
    (128, 128, 128): ((8, 8, 3, 0),),
    (128, 256, 64): ((8, 8, 3, 0), (8, 8, 4, 0), (4, 8, 4, 0), (8, 8, 3, 1)),
    (256, 64, 64): ((8, 8, 4, 0),),
    (256, 128, 64): ((8, 8, 3, 0), (8, 8, 4, 0), (4, 8, 4, 0), (8, 8, 3, 1)),
}
TILES = [(*tile, *schedule) for tile, schedules in SCHEDULES.items() for schedule in schedules]
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
#: Of softmax's configurations no more than this are taken at a shape.
MOST = 24
HEADS = ((1, 16), (1, 32), (4, 16), (2, 64))
LENGTHS = (256, 512, 1000, 2048, 4096, 8192)


@dataclass(frozen=True)
class Plan:
    """One kernel's part of the table. ``config``: a candidate as the configuration that is written; ``compiler`` and
    ``bench`` make the services of the child processes (contest.py)."""

    kernel: str
    kernel_hash: str
    dtype: str
    problems: tuple[Any, ...]
    candidates: Mapping[Any, Sequence[Candidate]]
    shape: Callable[[Any], dict[str, int]]
    config: Callable[[Candidate, Any], Mapping[str, Any]]
    compiler: Service
    bench: Service
    #: Candidates of a problem that are timed once more beside the fastest of all.
    compared: Mapping[Any, Sequence[Candidate]] = field(default_factory=dict)


def matmul_shapes() -> list[dict[str, int]]:
    """Of each plane every second number of rows, in turns; those of decoding (up to 64) of the large ones all."""
    found = []
    for number, (n, k) in enumerate(PLANES):
        rows = [m for place, m in enumerate(ROWS) if place % 2 == number % 2 or (number < 2 and m <= 64)]
        found += [{"M": m, "N": n, "K": k} for m in rows if m * n * k <= 8192 * 8192 * 8192]
    return found


def softmax_shapes() -> list[dict[str, int]]:
    """Rows of 128 to 16384 elements, whole powers of two and not."""
    columns = (128, 256, 384, 500, 512, 781, 1024, 2000, 2048, 4096, 5000, 8192, 12288, 16384)
    return [{"M": m, "N": n} for n in columns for m in (500, 1823, 4096, 16384, 65536) if m * n <= 1 << 27]


def matmul_candidates() -> list[Candidate]:
    """TILES."""
    return [
        Candidate("deuteron", tuple(zip(NAMES, row, strict=False)), row[4], row[5], (("persistent", bool(row[6])),))
        for row in TILES
    ]


def legal(candidates: Sequence[Candidate], launches: Launches, device: str) -> list[Candidate]:
    """Those that the workload's space has at a shape."""
    problem = launches.problem
    space = problem.full_space(device_of(device)[0])
    return [c for c in candidates if space.contains(config_of(c, problem))]


def whole_space(launches: Launches, device: str) -> list[Candidate]:
    """All configurations of the workload's space at a shape."""
    return [candidate_of(config) for config in launches.problem.full_space(device_of(device)[0]).configurations()]


def softmax_candidates(launches: Launches, device: str) -> list[Candidate]:
    """MOST of the configurations of the workload's space, the same ones at all shapes as far as they are legal."""
    return sorted(whole_space(launches, device), key=lambda c: hashlib.sha256(str(c).encode()).digest())[:MOST]


def workload_plan(
    name: str, dtype: str, device: str, model: str, shapes: Sequence[Mapping[str, int]] | None = None
) -> Plan:
    """The plan of a built-in workload; ``model``: whose limits say what is legal, as ``deuteron space --device``."""
    if shapes is None:
        shapes = matmul_shapes() if name == "matmul" else softmax_shapes()
    problems = tuple(Launches(name, tuple(shape.items()), dtype, device) for shape in shapes)
    tiles = matmul_candidates()
    candidates = {p: legal(tiles, p, model) if name == "matmul" else softmax_candidates(p, model) for p in problems}
    spec = builtin_workload(name)
    return Plan(
        spec.kernel.name,
        problems[0].problem.source.hash,
        dtype,
        problems,
        candidates,
        lambda p: p.shape,
        lambda candidate, p: config_of(candidate, p.problem),
        Compiler,
        make_bench,
    )


def attention_plan(device: str, asked: Sequence[Any] | None = None) -> Plan:
    """The plan of the example, of all problems or those ``asked`` for: heads of all batches, rows, dims of a head;
    ``pass`` is 1, or 2 where it is causal."""
    import attention_work
    from sources import load_kernels

    problems = tuple(asked or ()) or tuple(
        attention_work.Attention(batch, heads, length, dims, causal, False, "bf16", device)
        for batch, heads in HEADS
        for length in LENGTHS
        for dims in (64, 128)
        for causal in (False, True)
        if batch * heads * length <= 1 << 17
    )
    tiles = [(m, n, w, s) for m in (64, 128) for n in (32, 64, 128) for w in (4, 8) for s in (2, 3, 4)]
    made = [Candidate("deuteron", (("BLOCK_M", m), ("BLOCK_N", n)), w, s) for m, n, w, s in tiles if m > 64 or w < 8]
    return Plan(
        "attention_forward",
        load_kernels("attention", "deuteron").attention_forward.source.hash,
        "bf16",
        problems,
        dict.fromkeys(problems, made),
        lambda p: {"heads": p.batch * p.heads, "N": p.length, "D": p.dims, "pass": 1 + p.causal},
        lambda candidate, p: {**dict(candidate.blocks), "num_warps": candidate.warps, "num_stages": candidate.stages},
        attention_work.Compiler,
        make_attention_bench,
    )


def collect(plan: Plan, rounds: int, deadline: float, clock: Callable[[], float] = time.monotonic) -> Iterator[Result]:
    """Compile everything of a plan, then measure shape by shape until the deadline."""
    begin = clock()
    compiled = compile_ahead(plan.compiler, [(c, p) for p in plan.problems for c in plan.candidates[p]])
    failed = sum(isinstance(built, str) for built in compiled.values())
    print(f"{plan.kernel}: {len(compiled)} variants in {clock() - begin:.0f} s, {failed} failed", flush=True)
    bench = Isolated(plan.bench)
    try:
        for number, problem in enumerate(plan.problems, start=1):
            if clock() > deadline:
                print(f"{plan.kernel}: {len(plan.problems) - number + 1} shapes are left out: out of time", flush=True)
                return
            result = Result(problem, [])
            for candidate in plan.candidates[problem]:
                built = compiled[candidate, problem.specialised]
                why = built if isinstance(built, str) else None
                result.outcomes.append(Outcome(candidate, None if why else built, failure=why))
            measure(bench, result, deadline, (rounds, 1), plan.compared.get(problem, ()))
            yield result
            timed = sum(outcome.screened is not None for outcome in result.outcomes)
            print(f"{number}/{len(plan.problems)} {problem}: {timed} timed, {clock() - begin:.0f} s", flush=True)
    finally:
        bench.close()


def search_of(plan: Plan, result: Result, device: str, toolchain: Mapping[str, str]) -> SearchLog | None:
    """What was timed at a shape, fastest first, times in ns; None where nothing was."""
    known = [
        KnownConfig(dict(plan.config(outcome.candidate, result.problem)), outcome.screened.us * 1e3)
        for outcome in result.outcomes
        if outcome.screened is not None
    ]
    if not known:
        return None
    known.sort(key=lambda one: one.time_ns or 0.0)
    shape = plan.shape(result.problem)
    return SearchLog(plan.kernel, plan.kernel_hash, device, shape, plan.dtype, tuple(known), dict(toolchain))


def write(path: Path, searches: Sequence[SearchLog]) -> None:
    """The table, whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    text = {"searches": [search.to_json() for search in searches], "environment": environment()}
    part.write_text(json.dumps(text, indent=1) + "\n")
    part.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--only", nargs="+", choices=("matmul", "softmax", "attention"), default=None)
    parser.add_argument("--limit", type=float, default=200, metavar="SECONDS", help="begin no shape after this")
    parser.add_argument("--rounds", type=int, default=7, help="timings of each configuration")
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()

    from deuteron.compiler import get_device
    from deuteron.tuner.records import DeviceFingerprint, current_toolchain

    device = get_device(options.device)
    key, toolchain = DeviceFingerprint.of(device.properties).key, current_toolchain(device)
    make = {
        "matmul": lambda: workload_plan("matmul", "bf16", options.device, options.device),
        "softmax": lambda: workload_plan("softmax", "f32", options.device, options.device),
        "attention": lambda: attention_plan(options.device),
    }
    names = options.only or list(make)
    begin, searches = time.monotonic(), []
    for place, name in enumerate(names):
        left = options.limit - (time.monotonic() - begin)
        deadline = time.monotonic() + left / (len(names) - place)
        results = []
        plan = make[name]()
        for result in collect(plan, options.rounds, deadline):
            results.append(result)
            search = search_of(plan, result, key, toolchain)
            searches += [search] if search else []
            write(options.out, searches)
        if why := failures(results):
            print(why)
    print(f"{options.out}: {len(searches)} shapes, {sum(len(s.known) for s in searches)} times")


if __name__ == "__main__":
    main()
