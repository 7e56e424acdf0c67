"""Triton's tutorials as they are, under Triton's name with deuteron behind it, and under Triton itself.

python benchmarks/compat/tutorials.py FOLDER --out FILE.json [--sides deuteron triton] [--limit SECONDS]
    [--only FILE ...]

FOLDER holds the tutorials (python/tutorials of a checkout of Triton), of which 01 to 11 run. Each
runs in a process and a folder of its own, first here, then under Triton, alone on the GPU. What it prints is kept, and
of each column of each table the geometric mean of our numbers over Triton's: those of the tutorial's kernels compare
the two, those of PyTorch say how alike two runs are.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from report import write_report

#: Beginnings of the programs' files.
NUMBERED = tuple(f"{number:02}-" for number in range(1, 12))

#: How a program is started on each side.
SIDES = {"deuteron": ["-m", "deuteron.compat.triton"], "triton": []}

#: A line of a table that pandas prints: numbers, the first one perhaps the row's.
ROW = re.compile(r"^[\d.]+(\s+(-?[\d.]+(e[+-]?\d+)?|nan|inf))+$", re.IGNORECASE)

#: A frame of proton-viewer's tree: its rate, its time, its name.
FRAME = re.compile(r"^[├└│─ ]*([\d.]+) ([\d.]+) (.+)$")


@dataclass
class Table:
    """A table as printed: a list of numbers for each column."""

    columns: list[str]
    rows: list[list[float]]

    def column(self, name: str) -> list[float]:
        """The numbers of a column."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows if len(row) > place]


@dataclass
class Run:
    """What became of one program on one side."""

    #: Its exit code; None: it was ended for its time.
    exit: int | None
    seconds: float
    tables: list[Table]
    #: Lines with a mark for a right or a wrong result.
    marks: list[str]
    #: The end of what it printed.
    output: str


def run(tutorial: Path, side: str, limit: float) -> Run:
    """Run one program; pictures are drawn into files, since there is no screen."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MPLBACKEND": "Agg", "TRITON_CACHE_DIR": f"{folder}/cache", "PYTHONSAFEPATH": "1"}
        environment["DEUTERON_CACHE_DIR"] = f"{folder}/own"
        begin = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, *SIDES[side], str(tutorial)],
                cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit,
                check=False,
            )  # fmt: skip
            exit_code, text = done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            exit_code, text = None, (error.stdout or b"").decode(errors="replace")
    text = text.rsplit("\r", 1)[-1] if text.count("\r") > 1_000 else text.replace("\r", "\n")
    marks = [line.strip() for line in text.splitlines() if re.search("[✅❌⭕]", line)]
    return Run(exit_code, round(time.monotonic() - begin, 1), tables(text), marks, text[-6000:])


def tables(text: str) -> list[Table]:
    """The tables that a program printed, those of profiles as one row: a column a frame with its rate."""
    lines = [line for line in text.splitlines() if line.strip(" .")]
    found: list[Table] = []
    for number, line in enumerate(lines):
        if not ROW.match(line.strip()):
            continue
        if number == 0 or not ROW.match(lines[number - 1].strip()):
            # Names of columns may have single spaces in them, and the unit behind them.
            names = re.split(r"\s{2,}", lines[max(number - 1, 0)].strip())
            found.append(Table([re.sub(r" \(\S+\)$", "", name) for name in names], []))
        found[-1].rows.append([float(cell) for cell in line.split()][-len(found[-1].columns) :])
    frames = [match for line in lines if (match := FRAME.match(line.strip()))]
    if frames:
        found.append(Table([frame[3].strip() for frame in frames], [[float(frame[1]) for frame in frames]]))
    return found


def ratios(ours: Run, theirs: Run) -> list[dict[str, float]]:
    """Of each table that both printed the geometric means of their columns, ours over theirs."""
    compared = []
    for own, other in zip(ours.tables, theirs.tables, strict=False):
        shared = [name for name in own.columns if name in other.columns]
        means = {name: mean_ratio(own.column(name), other.column(name)) for name in shared}
        compared.append({name: round(value, 3) for name, value in means.items() if value is not None})
    return compared


def mean_ratio(first: list[float], second: list[float]) -> float | None:
    """The geometric mean of the numbers' ratios; None for what was varied and what has none."""
    pairs = [(a, b) for a, b in zip(first, second, strict=False) if a > 0 and b > 0 and math.isfinite(a / b)]
    if all(a == b for a, b in pairs):
        return None
    return math.exp(sum(math.log(a / b) for a, b in pairs) / len(pairs))


def main() -> int:
    """Run the programs on both sides and write the result after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--only", nargs="+", metavar="FILE", help="of the folder's programs these")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one program on one side")
    options = parser.parse_args()
    folder = options.folder.resolve()
    files = options.only or sorted(path.name for path in folder.glob("*.py") if path.name.startswith(NUMBERED))
    if not files:
        print(f"error: {folder} holds no tutorials, such as 01-vector-add.py", file=sys.stderr)
        return 2
    document: dict[str, object] = {}
    failed = False
    for name in files:
        sides = {side: run(folder / name, side, options.limit) for side in options.sides}
        entry: dict[str, object] = {side: asdict(result) for side, result in sides.items()}
        if len(sides) == len(SIDES):
            entry["ratios"] = ratios(sides["deuteron"], sides["triton"])
        document[name] = entry
        write_report(options.out, document, folder)
        failed |= any(result.exit != 0 for result in sides.values())
        said = ", ".join(f"{side} exit {result.exit} in {result.seconds:.0f} s" for side, result in sides.items())
        print(f"{name}: {said} {entry.get('ratios', '')}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
