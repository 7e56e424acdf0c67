"""How good a configuration the search finds in how much time: one shape cold, the next ones from what it learnt.

python benchmarks/gpu_search.py --out FOLDER [--kernel matmul|softmax|attention] [--seconds 60] [--next-seconds 6]
                                [--first JOURNAL] [--ablation]

``deuteron tune`` searches on cuda:0: the first shape alone, then the others in one job that starts from the first one's
journal. Kernels: the built-in bf16 product and f32 softmax, and forward attention of examples/attention.py (bf16, heads
of 128), whose space is inferred from its IR (``--infer-space``). What was found is then timed in turns with all
configurations that gemm.py has and with cuBLAS, with all of softmax's space, or with those of gpu_table.py, and the
fastest of them all once more beside the search's: "of best" is the time of the faster one of the two over that of the
search's.

``--ablation`` searches the others twice more, in the same seconds: each in a job of its own that knows nothing
("alone"), and all of them by random proposals ("random").
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from search_found import Found, products, read_journal, tables
from sources import EXAMPLES, environment


@dataclass(frozen=True)
class Kernel:
    """What ``deuteron tune`` is told of a kernel, and the shapes: the first one is searched from nothing."""

    arguments: Sequence[str]
    shapes: Sequence[Mapping[str, int]]


def _shapes(names: Sequence[str], sizes: Sequence[tuple[int, ...]]) -> list[dict[str, int]]:
    return [dict(zip(names, size, strict=True)) for size in sizes]


PRODUCTS = [(4096, 4096, 4096), (8192, 8192, 8192), (2048, 2048, 2048), (1024, 1024, 1024), (8192, 8192, 512)]
PRODUCTS += [(4096, 14336, 4096), (4096, 4096, 14336), (4096, 1024, 8192), (128, 8192, 8192), (16, 8192, 8192)]
ROWS = [(4096, 4096), (4096, 1024), (16384, 256), (65536, 512), (1823, 781), (4096, 16384), (8192, 2000)]
ROWS += [(500, 12288), (65536, 128), (16384, 8192)]
HEADS = [(128, 4096), (32, 1024), (64, 2048), (16, 512), (32, 8192), (16, 2048), (128, 1000), (8, 4096), (4, 256)]
HEADS += [(256, 2048)]
TENSORS = ("Q=H,N,128", "K=H,N,128", "V=H,N,128", "Out=H,N,128:output", "Lse=H,N:output:f32")
ATTENTION = [f"{EXAMPLES / 'attention.py'}:attention_forward", "--dtype", "bf16", "--grid", "cdiv(N, BLOCK_M); H"]
ATTENTION += [part for tensor in TENSORS for part in ("--tensor", tensor)]
ATTENTION += [
    "--infer-space",
    "--scalar",
    "N=N",
    "--scalar",
    "scale=0.1275",
    "--constexpr",
    "HEAD=128",
    "--constexpr",
    "CAUSAL=False",
]
KERNELS = {
    "matmul": Kernel(["matmul", "--dtype", "bf16"], _shapes("MNK", PRODUCTS)),
    "softmax": Kernel(["softmax", "--dtype", "f32"], _shapes("MN", ROWS)),
    "attention": Kernel(ATTENTION, _shapes("HN", HEADS)),
}


def tune(
    kernel: Kernel,
    folder: Path,
    shapes: Sequence[Mapping[str, int]],
    seconds: float,
    known: Sequence[Path],
    *more: str,
    device: str = "cuda:0",
) -> list[Found]:
    """Runs ``deuteron tune`` and reads its journal."""
    command = [sys.executable, "-P", "-m", "deuteron", "tune", *kernel.arguments, "--device", device]
    command += ["--seconds", str(seconds), "--trials", "1000", "--out", str(folder), *more]
    for shape in shapes:
        command += ["--shape", ",".join(f"{name}={size}" for name, size in shape.items())]
    for path in known:
        command += ["--from", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=False)
    if done.returncode:
        raise SystemExit(f"the search failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return read_journal(folder / "journal.jsonl")


def called(how: str, found: Sequence[Found]) -> list[Found]:
    """The same, with how they were searched."""
    return [replace(one, how=how) for one in found]


def search(kernel: Kernel, options: argparse.Namespace) -> list[Found]:
    """All searches of the command line."""
    out: Path = options.out
    journal = options.first or out / "first" / "journal.jsonl"
    first, others = kernel.shapes[:1], kernel.shapes[1:]
    found = [] if options.first else tune(kernel, out / "first", first, options.seconds, [])
    seconds = options.next_seconds
    found += called("next", tune(kernel, out / "next", others, seconds * len(others), [journal]))
    if options.ablation:
        for number, shape in enumerate(others):
            found += called("alone", tune(kernel, out / f"alone-{number}", [shape], seconds, []))
        randomly = ("--strategy", "random")
        found += called("random", tune(kernel, out / "random", others, seconds * len(others), [], *randomly))
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each record; one is behind where it is slower than the best beyond the 95 % intervals of both."""
    lines = [f"{'shape':>20} {'searched':>8} {'seconds':>8} {'trials':>6} {'us':>9} {'of best':>8} {'of library':>10}"]
    for row in rows:
        us, best, library = row["us"], row["best_us"], row["library_us"]
        shares = [f"{peer / us:.3f}" if us and peer else "-" for peer in (best, library)]
        name = "x".join(str(size) for size in row["shape"].values())
        lines.append(
            f"{name:>20} {row['how']:>8} {row['seconds']:8.1f} {row['trials']:6d} {us or 0:9.1f} {shares[0]:>8}"
            f" {shares[1]:>10}{' behind' if row['behind'] else ''}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--kernel", choices=KERNELS, default="matmul")
    parser.add_argument("--seconds", type=float, default=60, help="for the first shape")
    parser.add_argument("--next-seconds", type=float, default=6, help="for each of the others")
    parser.add_argument("--limit", type=float, default=200, help="seconds for the contest")
    parser.add_argument("--first", type=Path, metavar="JOURNAL", help="of the first shape, searched before")
    parser.add_argument("--ablation", action="store_true", help="also search without what is known")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found = search(KERNELS[options.kernel], options)
    (options.out / "found.json").write_text(json.dumps([asdict(f) for f in found], indent=1))
    rows = (
        products(options.out, found, options.limit)
        if options.kernel == "matmul"
        else tables(options.kernel, found, options.limit)
    )
    document = {"environment": environment(), "kernel": options.kernel, "rows": rows}
    (options.out / "search.json").write_text(json.dumps(document, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
