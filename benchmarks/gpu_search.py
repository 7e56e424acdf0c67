"""How good a configuration the search finds in how much time: one shape cold, the next ones from what it learnt.

python benchmarks/gpu_search.py --out FOLDER [--seconds 60] [--next-seconds 6] [--first JOURNAL] [--ablation]

``deuteron tune`` searches bf16 products on cuda:0: the first shape alone, then the others in one job that starts from
the first one's journal. What it found is then timed by gemm.py, in turns with cuBLAS and with all configurations that
benchmark has: "of best" is the time of the fastest of them all over that of the search's.

``--ablation`` searches the others twice more, in the same seconds: each in a job of its own that knows nothing
("alone"), and all of them by random proposals ("random").
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gemm import FEW_ROWS, FEW_TILES, MORE, NAMES, TUTORIAL
from sources import environment

SHAPES = [(4096, 4096, 4096), (8192, 8192, 8192), (2048, 2048, 2048), (1024, 1024, 1024), (8192, 8192, 512)]
SHAPES += [(4096, 14336, 4096), (4096, 4096, 14336), (4096, 1024, 8192), (128, 8192, 8192), (16, 8192, 8192)]
PARAMETERS = {
    "BLOCK_M": "BLOCK_SIZE_M",
    "BLOCK_N": "BLOCK_SIZE_N",
    "BLOCK_K": "BLOCK_SIZE_K",
    "GROUP_M": "GROUP_SIZE_M",
}


@dataclass
class Found:
    """What a search came to: ``seconds`` from the shape's begin to its record, ``how`` it was searched."""

    shape: tuple[int, int, int]
    config: dict[str, object]
    seconds: float
    trials: int
    verdict: str
    how: str = "cold"

    @property
    def entry(self) -> dict[str, object]:
        """As gemm.py reads it."""
        given = {PARAMETERS.get(name, name): value for name, value in self.config.items()}
        plain = {name: given.pop(name) for name in (*NAMES, "num_warps", "num_stages")}
        return {**plain, "schedule": given} if given else plain


def tune(
    folder: Path, shapes: list[tuple[int, int, int]], seconds: float, known: Sequence[Path], *more: str
) -> list[Found]:
    """Runs ``deuteron tune`` and reads its journal."""
    command = [sys.executable, "-P", "-m", "deuteron.cli", "tune", "matmul", "--dtype", "bf16", "--device", "cuda:0"]
    command += ["--seconds", str(seconds), "--trials", "1000", "--out", str(folder), *more]
    for m, n, k in shapes:
        command += ["--shape", f"M={m},N={n},K={k}"]
    for path in known:
        command += ["--from", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=False)
    if done.returncode:
        raise SystemExit(f"the search failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return list(read_journal(folder / "journal.jsonl"))


def read_journal(path: Path) -> list[Found]:
    """The records of a journal, with the time that each took."""
    from datetime import datetime

    found: list[Found] = []
    before: datetime | None = None
    for line in path.read_text().splitlines():
        event = json.loads(line)
        at = datetime.fromisoformat(event["at"]) if "at" in event else before
        before = before or at
        if event.get("kind") == "shape_finished" and at is not None and before is not None:
            record = event["record"]
            m, n, k = (record["shape"][name] for name in "MNK")
            seconds = (at - before).total_seconds()
            found.append(Found((m, n, k), record["config"], seconds, record["trials"], record["verdict"]))
            before = at
    return found


def contest(folder: Path, found: list[Found], limit: float) -> list[dict[str, object]]:
    """Times everything with gemm.py; a row for each shape."""
    rows = [*TUTORIAL, *MORE, *FEW_ROWS, *FEW_TILES]
    known = [dict(zip((*NAMES, "num_warps", "num_stages"), row, strict=True)) for row in rows]
    entries = {json.dumps(entry, sort_keys=True): entry for entry in (*known, *(f.entry for f in found))}
    at_shape = {f.shape: f for f in found}
    configs = folder / "configs.json"
    configs.write_text(json.dumps(list(entries.values())))
    shapes = [",".join(map(str, shape)) for shape in at_shape]
    command = [sys.executable, str(Path(__file__).with_name("gemm.py")), "--configs", str(configs), "--shapes", *shapes]
    command += ["--limit", str(limit), "--out", str(folder / "contest.json")]
    subprocess.run(command, timeout=limit + 120, check=True)
    results = json.loads((folder / "contest.json").read_text())["results"]
    measured = dict(zip(at_shape, results, strict=False))
    return [compare(f, measured[f.shape]) for f in found if f.shape in measured]


def compare(found: Found, result: dict) -> dict[str, object]:  # type: ignore[type-arg]
    """The search's configuration beside the best of the contest and cuBLAS, by their final times."""
    times = {}
    wanted = None
    for outcome in result["outcomes"]:
        timing, candidate = outcome["final"] or outcome["screened"], outcome["candidate"]
        if timing is None:
            continue
        made = {**dict(candidate["blocks"]), "num_warps": candidate["warps"], "num_stages": candidate["stages"]}
        made |= {"schedule": dict(candidate["extra"])} if candidate["extra"] else {}
        times[json.dumps(made, sort_keys=True)] = timing["us"]
        if made == found.entry:
            wanted = timing["us"]
    best = min(times.values())
    torch = result["libraries"].get("torch", {}).get("us")
    return {**asdict(found), "us": wanted, "best_us": best, "torch_us": torch}


def called(how: str, found: list[Found]) -> list[Found]:
    """The same, with how they were searched."""
    return [replace(one, how=how) for one in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=60, help="for the first shape")
    parser.add_argument("--next-seconds", type=float, default=6, help="for each of the others")
    parser.add_argument("--limit", type=float, default=200, help="seconds for the contest")
    parser.add_argument("--first", type=Path, metavar="JOURNAL", help="of the first shape, searched before")
    parser.add_argument("--ablation", action="store_true", help="also search without what is known")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    journal = options.first or options.out / "first" / "journal.jsonl"
    found = [] if options.first else tune(options.out / "first", SHAPES[:1], options.seconds, [])
    others, seconds = SHAPES[1:], options.next_seconds
    found += called("next", tune(options.out / "next", others, seconds * len(others), [journal]))
    if options.ablation:
        for number, shape in enumerate(others):
            found += called("alone", tune(options.out / f"alone-{number}", [shape], seconds, []))
        found += called(
            "random", tune(options.out / "random", others, seconds * len(others), [], "--strategy", "random")
        )
    (options.out / "found.json").write_text(json.dumps([asdict(f) for f in found], indent=1))
    rows = contest(options.out, found, options.limit)
    (options.out / "search.json").write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1))
    print(f"{'shape':>20} {'searched':>8} {'seconds':>8} {'trials':>6} {'us':>9} {'of best':>8} {'of cuBLAS':>9}")
    for row in rows:
        us, best, torch = row["us"], row["best_us"], row["torch_us"]
        shares = [f"{peer / us:9.3f}" if us and peer else "        -" for peer in (best, torch)]
        name = "x".join(map(str, row["shape"]))
        print(
            f"{name:>20} {row['how']:>8} {row['seconds']:8.1f} {row['trials']:6d} {us or 0:9.1f}{shares[0]}{shares[1]}"
        )


if __name__ == "__main__":
    main()
