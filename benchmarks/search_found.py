"""What a search came to, and all configurations it is compared with, timed in one contest on the GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timing import Timing

if TYPE_CHECKING:
    from gpu_table import Plan

#: The built-in product's parameters by the names of the example's, which gemm.py times.
PARAMETERS = {
    "BLOCK_M": "BLOCK_SIZE_M",
    "BLOCK_N": "BLOCK_SIZE_N",
    "BLOCK_K": "BLOCK_SIZE_K",
    "GROUP_M": "GROUP_SIZE_M",
}
NAMES = tuple(PARAMETERS.values())
ROUNDS = 25


@dataclass(frozen=True)
class Found:
    """A record of a search. ``seconds`` from the shape's begin to it; ``how``: what the search knew."""

    shape: Mapping[str, int]
    config: Mapping[str, Any]
    seconds: float
    trials: int
    verdict: str
    how: str = "cold"

    @property
    def size(self) -> tuple[int, ...]:
        """The shape as a key."""
        return tuple(self.shape.values())


def read_journal(path: Path) -> list[Found]:
    """The records of a journal, with the time that each took."""
    found: list[Found] = []
    before: datetime | None = None
    for line in path.read_text().splitlines():
        event = json.loads(line)
        at = datetime.fromisoformat(event["at"]) if "at" in event else before
        before = before or at
        if event.get("kind") == "shape_finished" and at is not None and before is not None:
            record = event["record"]
            seconds = (at - before).total_seconds()
            found.append(Found(record["shape"], record["config"], seconds, record["trials"], record["verdict"]))
            before = at
    return found


# ---- products: gemm.py, beside cuBLAS -------------------------------------------------------------------------------


def products(folder: Path, found: Sequence[Found], limit: float) -> list[dict[str, Any]]:
    """Times the found products and all that gemm.py has with that program; a row for each."""
    from gemm import FEW_ROWS, FEW_TILES, MORE, TUTORIAL  # lazy: it needs torch

    rows = [*TUTORIAL, *MORE, *FEW_ROWS, *FEW_TILES]
    known = [dict(zip((*NAMES, "num_warps", "num_stages"), row, strict=True)) for row in rows]
    entries = {json.dumps(entry, sort_keys=True): entry for entry in (*known, *map(_entry, found))}
    at_shape = {f.size: tuple(f.shape[name] for name in "MNK") for f in found}
    configs = folder / "configs.json"
    configs.write_text(json.dumps(list(entries.values())))
    compared = folder / "compared.json"
    compared.write_text(json.dumps([{**_entry(f), "shape": at_shape[f.size]} for f in found]))
    shapes = [",".join(map(str, shape)) for shape in at_shape.values()]
    command = [sys.executable, str(Path(__file__).with_name("gemm.py")), "--configs", str(configs), "--shapes", *shapes]
    command += ["--compared", str(compared), "--limit", str(limit), "--out", str(folder / "contest.json")]
    subprocess.run(command, timeout=limit + 120, check=True)
    results = json.loads((folder / "contest.json").read_text())["results"]
    measured = dict(zip(at_shape, results, strict=False))
    return [_compare_product(f, measured[f.size]) for f in found if f.size in measured]


def _entry(found: Found) -> dict[str, Any]:
    """As gemm.py reads it."""
    given = {PARAMETERS.get(name, name): value for name, value in found.config.items()}
    plain = {name: given.pop(name) for name in (*NAMES, "num_warps", "num_stages")}
    return {**plain, "schedule": given} if given else plain


def _compare_product(found: Found, result: Mapping[str, Any]) -> dict[str, Any]:
    times: dict[str, Timing] = {}
    for outcome in result["outcomes"]:
        timing, candidate = outcome["run_off"], outcome["candidate"]
        if timing is None:
            continue
        made = {**dict(candidate["blocks"]), "num_warps": candidate["warps"], "num_stages": candidate["stages"]}
        made |= {"schedule": dict(candidate["extra"])} if candidate["extra"] else {}
        times[json.dumps(made, sort_keys=True)] = Timing(**timing)
    mine = times.get(json.dumps(_entry(found), sort_keys=True))
    known = sum(outcome["screened"] is not None for outcome in result["outcomes"])
    library = result["libraries"].get("torch", {}).get("us")
    return {**asdict(found), **_beside_best(mine, times.values()), "known": known, "library_us": library}


def _beside_best(mine: Timing | None, timed: Iterable[Timing]) -> dict[str, Any]:
    """``behind``: whether what was found is slower than the best beyond what chance makes of the fastest of several."""
    best = min(timed, key=lambda timing: timing.us, default=None)
    behind = None if mine is None or best is None else mine.is_slower_than(best)
    return {"us": mine and mine.us, "best_us": best and best.us, "behind": behind}


# ---- other kernels: those of the table of times ----------------------------------------------------------------------


def tables(kernel: str, found: Sequence[Found], limit: float, device: str = "cuda:0") -> list[dict[str, Any]]:
    """Times what was found and all configurations of the kernel's space (softmax) or of gpu_table.py (attention), by
    that program; a row for each."""
    import gpu_table
    from table_work import candidate_of

    at_shape = {f.size: f.shape for f in found}
    shapes = list(at_shape.values())
    plan = _softmax(shapes, device) if kernel == "softmax" else _attention(shapes, device)
    problems = dict(zip(at_shape, plan.problems, strict=True))
    mine = {p: [candidate_of(f.config) for f in found if problems[f.size] == p] for p in plan.problems}
    candidates = {p: list(dict.fromkeys([*mine[p], *plan.candidates[p]])) for p in plan.problems}
    plan = replace(plan, candidates=candidates, compared=mine)
    timed = {r.problem: r.outcomes for r in gpu_table.collect(plan, ROUNDS, time.monotonic() + limit)}
    rows = []
    for f in found:
        outcomes = timed.get(problems[f.size], [])
        times = {o.candidate: o.run_off for o in outcomes if o.run_off is not None}
        if times:
            beside = _beside_best(times.get(candidate_of(f.config)), times.values())
            known = sum(o.screened is not None for o in outcomes)
            rows.append({**asdict(f), **beside, "known": known, "library_us": None})
    return rows


def _softmax(shapes: Sequence[Mapping[str, int]], device: str) -> Plan:
    import gpu_table

    plan = gpu_table.workload_plan("softmax", "f32", device, device, shapes)
    return replace(plan, candidates={p: gpu_table.whole_space(p, device) for p in plan.problems})


def _attention(shapes: Sequence[Mapping[str, int]], device: str) -> Plan:
    import gpu_table
    from attention_work import Attention

    asked = [Attention(1, shape["H"], shape["N"], 128, False, False, "bf16", device) for shape in shapes]
    return gpu_table.attention_plan(device, asked)
