"""Triton's own language and runtime tests, with deuteron under Triton's name.

python benchmarks/compat/triton_suite.py --checkout FOLDER --target cpu|interpreter|cuda --out FILE.json
    [--sample N] [--seed S] [--limit SECONDS] [--file-limit SECONDS] [--jobs N] [--simulate ARCH ...] [FILE ...]

FOLDER is a checkout of github.com/triton-lang/triton-cpu, or what ``git archive`` gives of it. FILE is a test file
below python/test/unit; left out: all. Each file runs in a process of its own, ``--jobs`` files at once, with one test
at a time. A case that ends the process, or that nothing in Python can stop, is written down as such, and another
process goes on behind it. ``--sample`` takes so many cases of each test function, chosen by the seed; the JSON says how
many there are. ``--simulate cuda:90a``, on the CPU: every variant that a test launches is simulated on a GPU, too, and
compared (simulated_launches.py).

What is left out, and why, is in left_out.toml; tables.py makes docs/compatibility.md of the JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import simulated_launches
from names import for_children
from report import write_report
from suite_plugin import left_out

HERE = Path(__file__).resolve().parent
LEFT_OUT = HERE / "left_out.toml"
#: Environment of the tests by target.
TARGETS = {
    "cpu": {"CUDA_VISIBLE_DEVICES": ""},
    "interpreter": {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
    "cuda": {},
}
#: Seconds beyond its limit after which a case counts as stuck outside Python.
GRACE = 30.0


@dataclass
class Case:
    """What became of one case: passed, failed, skipped, timed out or crashed. ``marks``: where Triton runs it itself,
    on its CPU backend (cpu) or in its interpreter."""

    name: str
    outcome: str
    error: str = ""
    message: str = ""
    seconds: float = 0.0
    marks: list[str] = field(default_factory=list)


@dataclass
class FileResult:
    """What became of one test file. ``collected`` has the number of cases of each function that is not left out,
    ``left_out`` the reasons of the others; ``import_error`` is why nothing was collected;
    ``simulated`` counts variants by what came of their simulation, ``not_good`` has those that were wrong or failed."""

    path: str
    cases: list[Case] = field(default_factory=list)
    collected: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    import_error: str = ""
    stand_ins: list[str] = field(default_factory=list)
    out_of_time: bool = False
    seconds: float = 0.0
    simulated: dict[str, int] = field(default_factory=dict)
    not_good: list[dict[str, Any]] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        """Cases by outcome."""
        return Counter(case.outcome for case in self.cases)


#: What runs a file's tests: arguments, environment and working folder.
Command = Callable[[str, argparse.Namespace, Path], tuple[list[str], dict[str, str], Path]]


def run_file(path: str, options: argparse.Namespace, scratch: Path, command: Command) -> FileResult:
    """Run one file to its end, in as many processes as it takes."""
    journal = scratch / f"{path.replace('/', '-')}.jsonl"
    for file in (journal, journal.with_suffix(".launches")):
        file.unlink(missing_ok=True)
    start = time.monotonic()
    while True:
        left = options.file_limit - (time.monotonic() - start)
        unfinished, ended = run_process(command(path, options, journal), options.limit, journal, left)
        if unfinished is not None:
            with journal.open("a") as file:
                file.write(json.dumps({"event": "outcome", "case": unfinished, **ended}) + "\n")
        if unfinished is None or time.monotonic() - start > options.file_limit:
            break
    result = read(path, journal)
    if not result.cases and not result.left_out and not result.import_error:
        lines = journal.with_suffix(".log").read_text(errors="replace").split("\n")
        result.import_error = next((line for line in reversed(lines) if line.strip()), "the process ended")
    result.seconds = round(time.monotonic() - start, 1)
    result.out_of_time = time.monotonic() - start > options.file_limit
    return result


def suite_command(path: str, options: argparse.Namespace, journal: Path) -> tuple[list[str], dict[str, str], Path]:
    """What runs a file of Triton's tests, its environment and its folder."""
    arguments = [
        sys.executable, "-P", "-m", "pytest", "-q", "-p", "suite_plugin", "-p", "no:cacheprovider", "-p", "no:xdist",
        "--import-mode=prepend",  # test files import each other; a pytest.ini above the checkout may say otherwise
        "--device", "cuda" if options.target == "cuda" else "cpu", "--tb=short", "--no-header", "-W", "ignore",
        f"--suite-checkout={options.checkout}", f"--suite-journal={journal}", f"--suite-left-out={LEFT_OUT}",
        f"--suite-target={options.target}", f"--suite-sample={options.sample}", f"--suite-seed={options.seed}",
        f"--suite-limit={options.limit}", *simulated_launches.handed_on(options),
        str(options.checkout / "python/test/unit" / path),
    ]  # fmt: skip
    paths = os.pathsep.join([str(journal.parent), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **TARGETS[options.target], "PYTHONPATH": paths}
    return arguments, environment, options.checkout / "python/test"


def run_process(
    command: tuple[list[str], dict[str, str], Path], limit: float, journal: Path, seconds: float
) -> tuple[str | None, dict[str, object]]:
    """Run pytest on what is left of the file: the case that was not finished, if any, and what it came to."""
    arguments, environment, folder = command
    with journal.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen(arguments, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        end = time.monotonic() + seconds
        stuck = False
        while process.poll() is None:
            time.sleep(0.5)
            stuck = overdue(journal, limit + GRACE)
            if stuck or time.monotonic() > end:
                process.kill()
                process.wait()
    unfinished = open_case(journal)
    if stuck:
        return unfinished, {"outcome": "timed out", "error": "", "message": "stuck outside Python", "seconds": 0}
    return unfinished, {
        "outcome": "crashed", "error": "", "message": f"exit code {process.returncode}", "seconds": 0
    }  # fmt: skip


def events(journal: Path) -> list[dict[str, Any]]:
    """All whole lines of the journal."""
    if not journal.exists():
        return []
    return [json.loads(line) for line in journal.read_text().split("\n")[:-1]]


def open_case(journal: Path) -> str | None:
    """The case that was begun last and has no outcome."""
    begun: str | None = None
    for event in events(journal):
        if event["event"] == "begun":
            begun = str(event["case"])
        elif event["event"] == "outcome" and event["case"] == begun:
            begun = None
    return begun


def overdue(journal: Path, seconds: float) -> bool:
    """Whether the open case was begun longer ago than this."""
    if not journal.exists() or time.time() - journal.stat().st_mtime < seconds:
        return False
    return open_case(journal) is not None


def read(path: str, journal: Path) -> FileResult:
    """The journal as a result. A case that fails in more than one of its stages failed."""
    result = FileResult(path)
    cases: dict[str, Case] = {}
    marks: dict[str, list[str]] = {}
    for event in events(journal):
        match event["event"]:
            case "begin":
                result.stand_ins = sorted({*result.stand_ins, *event["stand_ins"]})
            case "collected" if event["left_out"] is None:
                result.collected[str(event["function"])] = int(event["cases"])
            case "collected":
                result.left_out[str(event["function"])] = str(event["left_out"])
            case "import":
                result.import_error = str(event["error"])
            case "begun":
                marks[event["case"]] = event["marks"]
            case "outcome":
                name = str(event.pop("case"))
                event.pop("event")
                if name not in cases or cases[name].outcome == "passed":
                    cases[name] = Case(name, **event, marks=marks.get(name, []))
    result.cases = list(cases.values())
    launches = events(journal.with_suffix(".launches"))
    result.simulated = dict(Counter(launch["outcome"] for launch in launches))
    result.not_good = [launch for launch in launches if launch["outcome"] in ("wrong", "failed", "crashed")]
    return result


def main() -> int:
    """Run the files and write the result after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--target", choices=TARGETS, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--file-limit", type=float, default=3600.0)
    parser.add_argument("--jobs", type=int, default=1, help="files at once")
    simulated_launches.add_options(parser, "--")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    options.checkout = options.checkout.resolve()
    tests = options.checkout / "python/test/unit"
    if not tests.is_dir():
        print(f"error: there is no folder {tests}", file=sys.stderr)
        return 2
    found = sorted(str(path.relative_to(tests)) for path in tests.rglob("test_*.py"))
    paths = options.files or [path for path in found if path not in left_out(LEFT_OUT, options.target)]
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TRITON_CACHE_DIR"] = str(Path(scratch) / "cache")
        for_children(Path(scratch), options.checkout)
        with ThreadPoolExecutor(options.jobs) as pool:
            runs = [pool.submit(run_file, path, options, Path(scratch), suite_command) for path in paths]
            for run in as_completed(runs):
                results.append(run.result())
                print(summary(results[-1]), flush=True)
                write_report(
                    options.out, document(sorted(results, key=lambda result: result.path), options), options.checkout
                )
    return 0


def document(results: list[FileResult], options: argparse.Namespace) -> dict[str, object]:
    """What is written: the run, what is left out, and the files that ran."""
    revision = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "suite": "triton-lang/triton-cpu python/test/unit",
        "target": options.target,
        "sample": options.sample,
        "seed": options.seed,
        "limit_s": options.limit,
        "simulate": options.simulate,
        "revision": revision,
        "python": platform.python_version(),
        "left_out": left_out(LEFT_OUT, options.target),
        "files": [asdict(result) for result in results],
    }


def summary(result: FileResult) -> str:
    """One line on a file."""
    counts = result.counts
    decided = sum(counts.values()) - counts["skipped"]
    rest = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if outcome != "passed")
    error = f"; {result.import_error}" if result.import_error else ""
    late = "; out of time" if result.out_of_time else ""
    simulated = ", ".join(f"{count} {outcome}" for outcome, count in result.simulated.items())
    simulated = f"; simulated: {simulated}" if simulated else ""
    passed = f"{counts['passed']} of {decided} pass"
    return f"{result.path}: {passed}; {rest} ({result.seconds:.0f} s){simulated}{late}{error}"


if __name__ == "__main__":
    sys.exit(main())
