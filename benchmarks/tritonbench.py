"""Public Triton operators (TritonBench-G) under Triton and under deuteron's alias of it: results and GPU time.

python benchmarks/tritonbench.py --source FOLDER [--out FILE] [--only NAME ...] [--part 1/2] [--jobs 24] [--no-timing]

FOLDER holds the operators, one Python file each (data/TritonBench_G_v1 of github.com/thunlp/TritonBench). A file tests
itself on the GPU and leaves what it computed in ``result_gold``. Each file runs in two processes, one for each
compiler; results are compared for fixed seeds and known contents of uninitialised memory. ``--jobs`` files run at the
same time; once all of them have, those with equal results are timed one after the other, in alternating windows and
with nothing else on the GPU: the time of the operator's own kernels as CUPTI records them. A file that autotunes does
so again before that, on the quiet GPU. ``speed`` is Triton's GPU time over ours. Where launches take
less than 2 us, three pairs of processes are timed, and the pair in the middle counts: where a process happens to place
a kernel of a microsecond is worth an eighth of its time, for as long as it lives and for the same machine code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import platform
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch
from tritonbench_compare import differences
from tritonbench_side import Outcome, Window, serve

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("triton", "deuteron")
#: Seconds for one answer of a process; a file with many configurations compiles for most of a minute under Triton.
PATIENCE = 150
#: Alternating windows per file and compiler, and seconds of each.
WINDOWS = 5
WINDOW_SECONDS = 0.05
#: Of one whose evaluations have taken so long in the first windows there are no more of them.
LEAST_WINDOWS, SLOW_MICROSECONDS = 2, 2e6
#: Below this GPU time of a launch, the mean of all, an operator is timed in so many pairs of processes.
BRIEF_MICROSECONDS, PAIRS = 2.0, 3
#: Errors of names that are not there, under either compiler.
MISSING = ("ImportError", "ModuleNotFoundError", "UnknownName")

AnswerT = TypeVar("AnswerT")
processes = multiprocessing.get_context("forkserver")


class Gone(Exception):
    """A process ended or did not answer in time."""


@dataclass
class Row:
    """What one operator came to. Times are microseconds of one evaluation of its tests, medians over the windows;
    ``spread`` is (largest - smallest) / median of ``speed`` over the pairs of windows. ``speeds`` has that of each pair
    of processes, where there were several."""

    name: str
    verdict: str = ""
    detail: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    gpu: dict[str, float] = field(default_factory=dict)
    wall: dict[str, float] = field(default_factory=dict)
    launches: dict[str, dict[str, float]] = field(default_factory=dict)
    spread: float | None = None
    speeds: list[float] = field(default_factory=list)

    @property
    def speed(self) -> float | None:
        """Triton's GPU time over ours; None where it was not measured."""
        ours, theirs = self.gpu.get("deuteron", 0.0), self.gpu.get("triton", 0.0)
        return theirs / ours if ours and theirs else None


class Process:
    """A process that runs one operator under one compiler."""

    def __init__(self, compiler: str, path: Path, scratch: Path) -> None:
        self.compiler, self.path = compiler, path
        self._log = scratch / f"{path.stem}.{compiler}.log"
        self._pipe, theirs = processes.Pipe()
        self._process = processes.Process(target=serve, args=(theirs, compiler, path, scratch), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, *request: object) -> None:
        """Send a request: a method of :class:`tritonbench_side.Side` and its arguments."""
        try:
            self._pipe.send(request)
        except OSError:
            raise Gone(f"the process ended: {self._last_line()}") from None

    def answer(self) -> object:
        """Wait for the answer; raises Gone, after which the process is no more."""
        if not self._pipe.poll(PATIENCE):
            self.end()
            raise Gone(f"no answer in {PATIENCE} s")
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            raise Gone(f"exit code {self._process.exitcode}: {self._last_line()}") from None

    def wanted(self, kind: type[AnswerT], *request: object) -> AnswerT:
        """Ask, and wait for an answer of this type."""
        self.ask(*request)
        answer = self.answer()
        assert isinstance(answer, kind)
        return answer

    def end(self) -> None:
        """Stop the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        return next((line for line in reversed(lines) if line.strip()), "")[:300]


@dataclass
class Operator:
    """One file: its processes while it is judged, and what it came to."""

    path: Path
    pair: dict[str, Process]
    row: Row
    #: Evaluations in a window, and wall microseconds of an evaluation in each window, by compiler.
    times: dict[str, int] = field(default_factory=dict)
    walls: dict[str, list[float]] = field(default_factory=dict)


def tunes(path: Path) -> bool:
    """Whether results and times of an operator depend on the configurations that autotuning chooses."""
    return "autotune" in path.read_text()


def judged(paths: list[Path], scratch: Path, timing: bool) -> Iterator[Row]:
    """Run and compare these operators at the same time, then time them one after the other."""
    with ThreadPoolExecutor(len(paths)) as pool:
        with processes_of([Row(path.stem) for path in paths], paths, scratch) as operators:
            list(pool.map(lambda operator: judge(operator, scratch), operators))
            if timing:
                measure([operator for operator in operators if operator.row.verdict == "equal"], pool)
        measure_again([operator for operator in operators if is_brief(operator.row)], scratch, pool)
    yield from (operator.row for operator in operators)


@contextmanager
def processes_of(rows: list[Row], paths: list[Path], scratch: Path) -> Iterator[list[Operator]]:
    """Operators with a process for each compiler, which end with the block."""
    operators: list[Operator] = []
    try:
        for row, path in zip(rows, paths, strict=True):
            pair = {compiler: Process(compiler, path, scratch) for compiler in SIDES}
            operators.append(Operator(path, pair, row))
        yield operators
    finally:
        for operator in operators:
            for process in operator.pair.values():
                process.end()


def judge(operator: Operator, scratch: Path) -> None:
    """Run the operator in both processes and compare what they found."""
    row = operator.row
    keep = {compiler: scratch / f"{row.name}.{compiler}.pt" for compiler in SIDES}
    found = outcomes(operator.pair, keep)
    row.seconds = {compiler: round(outcome.seconds, 2) for compiler, outcome in found.items()}
    row.verdict, row.detail = verdict(found, keep)
    if row.verdict == "wrong result" and tunes(operator.path):
        excuse(row, operator.pair["triton"])
    for file in keep.values():
        file.unlink(missing_ok=True)


def outcomes(pair: dict[str, Process], keep: dict[str, Path]) -> dict[str, Outcome]:
    """Run the operator in both processes at the same time."""
    found: dict[str, Outcome] = {}
    for compiler, process in pair.items():
        try:
            process.ask("run", keep[compiler])
        except Gone as gone:
            found[compiler] = Outcome("crash", str(gone))
    for compiler, process in pair.items():
        if compiler in found:
            continue
        try:
            answer = process.answer()
            assert isinstance(answer, Outcome)
            found[compiler] = answer
        except Gone as gone:
            found[compiler] = Outcome("time-out" if "no answer" in str(gone) else "crash", str(gone))
    return found


def verdict(found: dict[str, Outcome], keep: dict[str, Path]) -> tuple[str, str]:
    """One word or two on what the operator came to, and the reason."""
    theirs, ours = found["triton"], found["deuteron"]
    if theirs.error:
        return "fails under Triton", f"{theirs.error}: {theirs.message}"
    if ours.error:
        return _kind(ours), f"{ours.error}: {ours.message}"
    results = [torch.load(keep[compiler], weights_only=True) for compiler in ("deuteron", "triton")]
    apart = sorted(differences(*results), key=lambda d: d.error, reverse=True)
    if not apart:
        return "equal", theirs.unsteady and f"{theirs.unsteady} under Triton"
    reason = f"{apart[0].place}: {apart[0].what} ({len(apart)} places)"
    if theirs.unsteady:
        return "unsteady by itself", f"{theirs.unsteady} under Triton; {reason}"
    return "wrong result", f"{ours.unsteady + '; ' if ours.unsteady else ''}{reason}"


def excuse(row: Row, theirs: Process) -> None:
    """A result that changes under Triton with the configuration chosen says nothing about another compiler's."""
    try:
        theirs.ask("depends_on_choice")
        if theirs.answer():
            row.verdict = "unsteady by itself"
            row.detail = f"depends on the configuration chosen under Triton; {row.detail}"
    except Gone as gone:
        row.detail = f"{row.detail}; its configurations: {gone}"


def _kind(ours: Outcome) -> str:
    """The class of an error under deuteron."""
    if ours.error in MISSING or (ours.error == "AttributeError" and "module 'deuteron" in ours.message):
        return "missing name"
    if ours.error in ("crash", "time-out", "no result"):
        return ours.error
    return "error"


def measure(operators: list[Operator], pool: ThreadPoolExecutor) -> None:
    """Fill in the times. On the quiet GPU one operator runs after the other, its two processes in alternating windows;
    CUPTI takes a second to start and another to stop, so before and after that all processes wait for it together."""
    warmed = [operator for operator in operators if worked(warm, operator)]
    watched = [o for o, done in zip(warmed, pool.map(lambda o: worked(watch, o), warmed), strict=True) if done]
    timed = [operator for operator in watched if worked(run_windows, operator)]
    list(pool.map(lambda operator: worked(fill_in_times, operator), timed))


def is_brief(row: Row) -> bool:
    """Whether one pair of processes says little about how fast an operator is."""
    if row.speed is None:
        return False
    return min(row.gpu[c] / sum(row.launches[c].values()) for c in SIDES) < BRIEF_MICROSECONDS


def measure_again(operators: list[Operator], scratch: Path, pool: ThreadPoolExecutor) -> None:
    """Time operators in further pairs of processes, and keep the pair whose speed is in the middle."""
    found = {operator.row.name: [operator.row] for operator in operators}
    for _ in range(PAIRS - 1):
        fresh = [replace(operator.row, gpu={}) for operator in operators]
        with processes_of(fresh, [operator.path for operator in operators], scratch) as again:
            ran = pool.map(lambda o: outcomes(o.pair, {c: scratch / f"{o.row.name}.{c}.pt" for c in SIDES}), again)
            succeeded = [not any(outcome.error for outcome in each.values()) for each in ran]
            measure([operator for operator, fine in zip(again, succeeded, strict=True) if fine], pool)
        for row in fresh:
            if row.speed is not None:
                found[row.name].append(row)
    for operator in operators:
        rows = sorted(found[operator.row.name], key=lambda row: row.speed or 0.0)
        middle = rows[(len(rows) - 1) // 2]
        operator.row = replace(middle, speeds=[round(row.speed or 0.0, 4) for row in rows])


def worked(step: Callable[[Operator], None], operator: Operator) -> bool:
    """Do a step of measuring; False, and the reason in the row, where a process is gone."""
    try:
        step(operator)
    except Gone as gone:
        operator.row.detail = f"not timed: {gone}"
        return False
    return True


def warm(operator: Operator) -> None:
    """Find how many evaluations a window of each compiler has, once its autotuners have chosen."""
    for compiler, process in operator.pair.items():
        if tunes(operator.path):
            process.wanted(type(None), "forget_choices")
        operator.times[compiler] = process.wanted(int, "warm", WINDOW_SECONDS)


def watch(operator: Operator) -> None:
    """Begin to record the kernels of both processes."""
    for process in operator.pair.values():
        process.ask("watch")
    for process in operator.pair.values():
        process.answer()


def run_windows(operator: Operator) -> None:
    """Alternate between the two processes."""
    walls = operator.walls
    for count in range(WINDOWS):
        if count == LEAST_WINDOWS and sum(map(sum, walls.values())) > SLOW_MICROSECONDS:
            return
        for compiler, process in operator.pair.items():
            walls.setdefault(compiler, []).append(process.wanted(float, "window", operator.times[compiler]))


def fill_in_times(operator: Operator) -> None:
    """Read what ran on the GPU in the windows."""
    row = operator.row
    row.wall = {compiler: statistics.median(found) for compiler, found in operator.walls.items()}
    for compiler, process in operator.pair.items():
        process.ask("kernels", len(operator.walls[compiler]), operator.times[compiler])
    windows: dict[str, list[Window]] = {}
    for compiler, process in operator.pair.items():
        answer = process.answer()
        assert isinstance(answer, list)
        windows[compiler] = answer
    if not all(windows.values()):
        row.detail = "not timed: its kernels are not the same at every evaluation, or not those of the file"
        return
    row.gpu = {c: statistics.median(w.gpu for w in found) for c, found in windows.items()}
    row.launches = {c: found[-1].launches for c, found in windows.items()}
    if row.launches["triton"] != row.launches["deuteron"]:
        row.detail = f"launches differ: {row.launches}"
    ratios = [t.gpu / o.gpu for t, o in zip(windows["triton"], windows["deuteron"], strict=True)]
    row.spread = (max(ratios) - min(ratios)) / statistics.median(ratios)


def table(rows: list[Row]) -> str:
    """Counts, what is not equal, and the slowest, one line each; the figures last."""
    lines = [f"{row.verdict:20}{row.name:32}{row.detail[:120]}" for row in rows if row.verdict != "equal" or row.detail]
    timed = [(speed, row) for row in rows if (speed := row.speed) is not None]
    timed.sort(key=lambda pair: pair[0])
    lines.append(f"{'slowest':32}{'us':>10}{'Triton us':>12}{'speed':>8}{'spread':>8}")
    for speed, row in timed[:15]:
        ours, theirs = row.gpu["deuteron"], row.gpu["triton"]
        lines.append(f"{row.name:32}{ours:>10.1f}{theirs:>12.1f}{speed:>8.2f}{row.spread:>8.2f}")
    counts = Counter(row.verdict for row in rows)
    lines.append(", ".join(f"{count} {what}" for what, count in counts.most_common()) + f", of {len(rows)}")
    if timed:
        mean = statistics.geometric_mean(speed for speed, _ in timed)
        below = sum(speed < 0.9 for speed, _ in timed)
        lines.append(f"{len(timed)} timed: geometric mean of speed {mean:.3f}, {below} below 0.90")
    return "\n".join(lines)


def environment(files: list[Path], commit: str) -> dict[str, str]:
    """What the figures depend on; ``operators`` is a digest of the operators' text."""
    text = b"".join(path.read_bytes() for path in files)
    return {
        "commit": commit or _said(["git", "-C", str(ROOT), "rev-parse", "HEAD"]),
        "gpu": _said(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]),
        "torch": torch.__version__,
        "triton": _said([sys.executable, "-c", "import triton; print(triton.__version__)"]),
        "cuda": str(torch.version.cuda),
        "python": platform.python_version(),
        "operators": f"{len(files)} files, sha256 {hashlib.sha256(text).hexdigest()[:16]}",
    }


def _said(command: list[str]) -> str:
    """What a command prints; "unknown" where it is not there or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def chosen(options: argparse.Namespace) -> list[Path]:
    """The files to run, those that autotune last: they compile for minutes, and a run that its limit ends shall have
    all the others. The parts of a ``--part`` deal them out one by one, so that each has its share of slow ones."""
    files = sorted(options.source.glob("*.py"), key=lambda path: (tunes(path), path))
    if options.only:
        files = [path for path in files if path.stem in options.only]
    part, _, parts = options.part.partition("/")
    files = files[int(part) - 1 :: int(parts)]
    if not files:
        raise SystemExit(f"error: no operators to run in {options.source}")
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True, help="folder of the operators")
    parser.add_argument("--only", nargs="*", help="names of operators, without .py")
    parser.add_argument("--part", default="1/1", help="I/N: the I-th of N parts of the list")
    parser.add_argument("--jobs", type=int, default=24, help="operators run at the same time, two processes each")
    parser.add_argument("--no-timing", action="store_true", help="results only")
    parser.add_argument("--commit", default="", help="commit of this checkout, where it is not a repository")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    files = chosen(options)
    processes.set_forkserver_preload(["torch"])
    rows: list[Row] = []
    record = {"environment": environment(files, options.commit)}
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, len(files), options.jobs):
            together = files[first : first + options.jobs]
            for row in judged(together, Path(folder), not options.no_timing):
                rows.append(row)
                print(f"{row.name:32}{row.verdict:20}{row.speed or ''}", flush=True)
                if options.out:  # after each row: a run that is stopped leaves what it has
                    found = [{**asdict(r), "speed": r.speed} for r in rows]
                    options.out.write_text(json.dumps({**record, "rows": found}, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
