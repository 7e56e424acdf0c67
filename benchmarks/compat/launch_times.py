"""Launches of libraries on a GPU, compared and timed under deuteron and under Triton, each variant as it was launched.

python benchmarks/compat/launch_times.py FOLDER --out FILE.json [--path FOLDER ...] [--jobs N] [--seconds S]
    [--rounds N]

FOLDER has what ``library_suite.py --on-gpu --record FOLDER`` wrote: kernels with their arguments, compile-time values
and numbers of warps and stages, which both compilers get alike. Kernels are imported from their modules (``--path``:
where these are). First they are compiled on both sides by N processes; then one process a side runs them in turns: the
results are compared, and launches timed one by one with a cold L2. What differs may still be right: kernels whose
atomics come in any order, and such as read what nobody wrote.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import selectors
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

from report import write_report  # noqa: E402
from timing import differs, geomean, race  # noqa: E402

SIDES = ("deuteron", "triton")
#: Seconds for one answer of a process; a kernel that waits for others for ever needs the process ended.
PATIENCE = 60.0
#: Of the norm of the difference of two results beside that of one of them: what other orders of summation may make.
CLOSE = 0.02


@dataclass
class Launch:
    """One variant: microseconds under each compiler (0 where it did not run), and why it did not, or how results
    differ."""

    record: str
    kernel: str = ""
    grid: list[int] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    test: str = ""
    deuteron_us: float = 0.0
    triton_us: float = 0.0
    error: str = ""
    difference: str = ""

    @property
    def ratio(self) -> float:
        """Triton's time over ours; 0 where one of them is missing."""
        return self.triton_us / self.deuteron_us if self.deuteron_us else 0.0


# ---- a process of one side -----------------------------------------------------------------------------------------


def serve(side: str) -> None:
    """Answer requests, a line of JSON each: ``[method, arguments]``."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    if side == "deuteron":
        from deuteron.compat.triton import install

        install()
    runner = Runner()
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        try:
            answer = {"answer": getattr(runner, method)(*arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}".split("\n")[0][:300]}
        print(json.dumps(answer), file=answers, flush=True)


class Runner:
    """Runs recorded launches in this process, the last one again without reading it anew."""

    def __init__(self) -> None:
        self._path = ""
        self._launch: Any = None
        self._arrays: dict[str, Any] = {}

    def prepare(self, path: str) -> dict[str, Any]:
        """Read a launch, and run it once: all but its arguments."""
        import torch
        import triton
        import triton.language as tl

        self._path = ""
        record = torch.load(path, map_location="cuda", weights_only=True)
        found = getattr(imported(record["module"], record["file"]), record["kernel"])
        while not isinstance(found, triton.JITFunction):
            found = found.fn
        constants = {n: tl.dtype(v["dtype"]) if isinstance(v, dict) else v for n, v in record["constants"].items()}
        options = {n: v for n, v in record["options"].items() if v is not None and n not in constants}
        arguments, grid = record["arguments"], tuple(record["grid"])
        self._arrays = {n: v for n, v in arguments.items() if isinstance(v, torch.Tensor)}
        self._launch = lambda: found[grid](**arguments, **constants, **options)
        self._launch()
        torch.cuda.synchronize()
        self._path = path
        return {name: record[name] for name in ("kernel", "grid", "constants", "options", "test")}

    def keep(self, file: str) -> None:
        """Write what the launch of :meth:`prepare` left."""
        import torch

        torch.save(self._arrays, file)

    def compare(self, file: str) -> str:
        """How what this side's launch left differs from what is in ``file``; empty where it does not."""
        import torch

        theirs = torch.load(file, map_location="cuda", weights_only=True)
        found = {name: differs(mine, theirs[name], CLOSE) for name, mine in self._arrays.items()}
        return "; ".join(f"{name}: {text}" for name, text in found.items() if text)

    def time(self, rounds: int) -> float:
        """Median microseconds of the launch of :meth:`prepare`."""
        return race({"launch": self._launch}, "cuda", rounds, lambda name: None)["launch"].us


def imported(name: str, file: str) -> Any:
    """A module by its name, or from its file."""
    if name and not name.startswith("__"):
        try:
            module = importlib.import_module(name)
            if module.__file__ == file:
                return module
        except ImportError:
            pass
    spec = importlib.util.spec_from_file_location(f"recorded_{abs(hash(file))}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- the process that asks -----------------------------------------------------------------------------------------


class Side:
    """A process of one compiler, begun again after it was ended."""

    def __init__(self, side: str, paths: Sequence[Path]) -> None:
        self.side = side
        given = [*map(str, paths), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(given)}
        self._process: subprocess.Popen[str] | None = None

    def ask(self, method: str, *arguments: object) -> Any:
        """The answer; raises RuntimeError with what went wrong, also where none came in time."""
        if self._process is None:
            command = [sys.executable, str(Path(__file__).resolve()), "--serve", self.side]
            self._process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True
            )  # fmt: skip
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None and pipe_out is not None
        print(json.dumps([method, *arguments]), file=pipe_in, flush=True)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe_out, selectors.EVENT_READ)
            line = pipe_out.readline() if selector.select(PATIENCE) else ""
        if not line:
            self.end()
            raise RuntimeError("the process ended, or did not answer in time")
        answer = json.loads(line)
        if "error" in answer:
            if "CUDA" in answer["error"]:
                self.end()  # the context may be lost
            raise RuntimeError(answer["error"])
        return answer["answer"]

    def end(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def in_turns(records: Iterable[Path]) -> list[Path]:
    """The first launch of every kernel, then the second ones: what there is no time for is more of the same."""
    of_kernel: dict[str, int] = defaultdict(int)
    turns: list[tuple[int, Path]] = []
    for record in sorted(records):
        kernel = record.stem.rpartition("-")[0]
        turns.append((of_kernel[kernel], record))
        of_kernel[kernel] += 1
    return [record for _, record in sorted(turns)]


def compile_all(records: Sequence[Path], options: argparse.Namespace, until: float) -> None:
    """Run every launch once on both sides, several at a time, so that the caches have what is timed later."""

    def work(share: Sequence[tuple[str, Path]]) -> None:
        sides = {name: Side(name, options.path) for name in SIDES}
        for name, record in share:
            if time.monotonic() < until:
                try:
                    sides[name].ask("prepare", str(record))
                except RuntimeError:
                    continue  # it is said when it is timed
        for side in sides.values():
            side.end()

    both = [(name, record) for record in records for name in SIDES]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, [both[start :: options.jobs] for start in range(options.jobs)]))


def measured(record: Path, sides: dict[str, Side], options: argparse.Namespace, scratch: Path) -> Launch:
    """One launch on both sides."""
    launch = Launch(record.stem)
    try:
        for name, side in sides.items():
            for field_name, value in side.ask("prepare", str(record)).items():
                setattr(launch, field_name, value)
            if name == "deuteron":
                side.ask("keep", str(scratch))
            else:
                launch.difference = side.ask("compare", str(scratch))
        times = {name: [] for name in SIDES}  # type: dict[str, list[float]]
        for _ in range(2):
            for name, side in sides.items():
                times[name].append(side.ask("time", options.rounds))
        launch.deuteron_us, launch.triton_us = (min(times[name]) for name in SIDES)
    except RuntimeError as error:
        launch.error = f"{name}: {error}"
    return launch


def main() -> int:
    """Compile, compare, time and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--serve", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--path", type=Path, action="append", default=[], help="where modules of kernels are")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=480.0, help="for all, two thirds of it for compiling")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    records = in_turns(options.folder.glob("*.pt")) if options.folder else []
    if not records or not options.out:
        print(f"error: give a folder with records of launches, and --out; {options.folder} has none", file=sys.stderr)
        return 2
    begun = time.monotonic()
    compile_all(records, options, begun + options.seconds * 2 / 3)
    print(f"compiled in {time.monotonic() - begun:.0f} s", flush=True)
    sides = {name: Side(name, options.path) for name in SIDES}
    launches: list[Launch] = []
    for record in records:
        if time.monotonic() - begun < options.seconds:
            launches.append(measured(record, sides, options, options.folder / "left"))
    for side in sides.values():
        side.end()
    report(launches, len(records), options)
    return 0


def report(launches: Sequence[Launch], recorded: int, options: argparse.Namespace) -> None:
    """Write the file, and print what is slow, differs or fails."""
    timed = sorted((launch for launch in launches if launch.ratio), key=lambda launch: launch.ratio)
    document = {
        "recorded": recorded,
        "timed": len(timed),
        "geomean": round(geomean([launch.ratio for launch in timed]), 4) if timed else None,
        "least": round(timed[0].ratio, 4) if timed else None,
        "launches": [{**asdict(launch), "ratio": round(launch.ratio, 4)} for launch in launches],
    }
    write_report(options.out, document, HERE)
    print(f"{recorded} launches, {len(timed)} timed; Triton's time over ours: geomean {document['geomean']}")
    for launch in [*timed[:25], *(launch for launch in launches if launch.error or launch.difference)]:
        said = launch.error or launch.difference
        times = f"{launch.ratio:6.2f} {launch.deuteron_us:9.1f} {launch.triton_us:9.1f} us"
        print(f"{times}  {launch.record} {launch.grid} {said}"[:200])


if __name__ == "__main__":
    sys.exit(main())
