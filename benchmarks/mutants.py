"""Do the tests catch mistakes? Seeds one mistake after the other and runs the tests of its area.

The mistakes ("mutants") are in ``benchmarks/mutants/*.toml``, a file for each area. Each is applied to a scratch copy
of the checkout, never to the checkout itself. A mutant is caught when a test fails, crashes or runs out of time, and
survives when all pass: then a test is missing, unless the mutant says why it changes nothing (``equivalent``).

    python benchmarks/mutants.py                    all of them; exit status 1 when one survives
    python benchmarks/mutants.py --only barrier     those whose name or area contains "barrier"
    python benchmarks/mutants.py --list             what there is, without running anything
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LISTS = Path(__file__).with_suffix("")
TIMEOUT_SECONDS = 180
#: What tests read beside the packages.
BESIDE = ("development", "tests", "benchmarks", "docs", "docker", "examples", ".typing")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


class StaleMutant(Exception):
    """A mutant whose text is not in the code exactly once."""


class BrokenRun(Exception):
    """Tests that do not pass unmodified, or that could not be run at all."""


@dataclass(frozen=True)
class Mutant:
    """One mistake: ``old`` becomes ``new`` in the file whose path ends with ``file``; ``tests`` should notice."""

    name: str
    area: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""


@dataclass(frozen=True)
class Verdict:
    """``by``: the first test that failed, or how the run ended otherwise; empty for a survivor."""

    name: str
    area: str
    by: str
    seconds: float
    equivalent: str = ""

    @property
    def caught(self) -> bool:
        return bool(self.by)


def read_mutants(folder: Path = LISTS) -> list[Mutant]:
    """All mutants of the lists in ``folder``; the tests of a list are the default for its mutants."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        content = tomllib.loads(path.read_text())
        for entry in content["mutant"]:
            tests = tuple(entry.pop("tests", content.get("tests", ())))
            found.append(Mutant(area=path.stem, tests=tests, **entry))
    return found


def package_folders(root: Path = ROOT) -> dict[str, Path]:
    """The folder of each package that pyproject.toml names, by import name."""
    setup = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    return {name: root / folder for name, folder in setup["package-dir"].items()}


def locate(mutant: Mutant, root: Path = ROOT) -> Path:
    """The file, relative to ``root``, that holds the mutant's text; where a file was renamed, any other that has it.

    Raises:
        StaleMutant: the text is there not at all, or more than once.
    """
    files = _modules(root)
    named = [path for path in files if path.as_posix().endswith("/" + mutant.file)]
    found = _count(mutant.old, named) or _count(mutant.old, files)
    if sum(found.values()) != 1:
        places = ", ".join(f"{path.relative_to(root)} ({count} times)" for path, count in found.items()) or "no file"
        raise StaleMutant(f"{mutant.area}/{mutant.name}: {mutant.old!r} is in {places}, not in one place")
    return next(iter(found)).relative_to(root)


@cache
def _modules(root: Path) -> list[Path]:
    return [path for folder in package_folders(root).values() for path in folder.rglob("*.py")]


def _count(text: str, files: Sequence[Path]) -> dict[Path, int]:
    return {path: count for path in files if (count := path.read_text().count(text))}


class Copy:
    """A scratch copy of the checkout, in which the packages are imported from the copy."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        ignored = shutil.ignore_patterns("__pycache__", ".git", ".venv", ".hypothesis")
        packages = package_folders()
        for source in {path.relative_to(ROOT) for path in packages.values()} | set(map(Path, BESIDE)):
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, self.root / source, ignore=ignored, symlinks=True)
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy2(path, self.root)
        # With links to its sub-packages the folder deuteron/ is a whole package, in the working directory and on the
        # path; both come before the editable install, which only answers names that nobody else finds.
        for name, path in packages.items():
            if "." in name:
                self.root.joinpath(*name.split(".")).symlink_to(self.root / path.relative_to(ROOT))
        self.imports = folder / "imports"
        self.imports.mkdir()
        (self.imports / "deuteron").symlink_to(self.root / "deuteron")
        self.check()

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.imports), "DEUTERON_TEST_PROFILE": "mutants"}

    def check(self) -> None:
        """Raises BrokenRun unless ``deuteron`` is imported from this copy."""
        script = "import deuteron, deuteron.compiler as c; print(deuteron.__file__, c.__file__)"
        ran = subprocess.run(
            [sys.executable, "-c", script], cwd=self.root, env=self.environment, capture_output=True, text=True
        )
        places = [Path(place).resolve() for place in ran.stdout.split()]
        if len(places) != 2 or not all(place.is_relative_to(self.root.resolve()) for place in places):
            raise BrokenRun(f"the scratch copy is not what gets imported: {ran.stdout}{ran.stderr}")

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """The copy with the mistake in it, for the length of the block. The checkout may have changed since."""
        path = self.root / locate(mutant, self.root)
        text = path.read_text()
        compiled = Path(importlib.util.cache_from_source(str(path)))
        try:
            # Compiled files are checked by second and size only, which two mutants may share.
            compiled.unlink(missing_ok=True)
            path.write_text(text.replace(mutant.old, mutant.new))
            yield
        finally:
            path.write_text(text)
            compiled.unlink(missing_ok=True)

    def run(self, tests: Sequence[str], seconds: float) -> tuple[int | None, str]:
        """(exit status, output) of pytest up to the first failure; the status is None when time ran out."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=line", "-p", "no:cacheprovider"]
        # One database is enough to see a mistake, and the other takes half a minute to start.
        command += ["-m", "not postgres and not gpu", *tests]
        with subprocess.Popen(
            command,
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return None, process.communicate()[0]
            return process.returncode, output


def judge(mutant: Mutant, copy: Copy, seconds: float = TIMEOUT_SECONDS) -> Verdict:
    """Run the mutant's tests on it.

    Raises:
        BrokenRun: pytest did not run a test.
    """
    start = time.monotonic()
    with copy.mutated(mutant):
        status, output = copy.run(mutant.tests, seconds)
    if status is None:
        by = f"time-out of {seconds:.0f} s"
    elif status == 0:
        by = ""
    elif status < 0:
        by = f"crash: {signal.Signals(-status).name}"
    elif match := _FAILED.search(output):
        by = match[1]
    else:
        raise BrokenRun(f"{mutant.area}/{mutant.name}: pytest ended with {status}\n{output[-2000:]}")
    return Verdict(mutant.name, mutant.area, by, time.monotonic() - start, mutant.equivalent)


def check_unmodified(copy: Copy, mutants: Sequence[Mutant]) -> None:
    """Raises BrokenRun unless the tests of all ``mutants`` pass without a mistake in the code."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    status, output = copy.run(tests, seconds=3600)
    if status != 0:
        raise BrokenRun(f"the tests fail without any mutant (status {status}):\n{output[-4000:]}")


def run_all(mutants: Sequence[Mutant], jobs: int, seconds: float) -> Iterator[Verdict]:
    """The verdicts in the order of ``mutants``, after a run of the unmodified tests."""
    with tempfile.TemporaryDirectory(prefix="deuteron-mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies: queue.Queue[Copy] = queue.Queue()
        for number in range(min(jobs, len(mutants))):
            copies.put(Copy(Path(folder) / str(number)))
        first = copies.get()
        check_unmodified(first, mutants)
        copies.put(first)

        def one(mutant: Mutant) -> Verdict:
            copy = copies.get()
            try:
                return judge(mutant, copy, seconds)
            finally:
                copies.put(copy)

        yield from pool.map(one, mutants)


def _line(verdict: Verdict) -> str:
    by = verdict.by or (f"SURVIVED, equivalent: {verdict.equivalent}" if verdict.equivalent else "SURVIVED")
    return f"{verdict.area:<12} {verdict.name:<52} {verdict.seconds:6.1f} s  {by}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", default="", help="mutants whose area/name contains TEXT")
    parser.add_argument("--list", action="store_true", help="print the mutants and where they are")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default 2)")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_SECONDS, help="seconds for one mutant's tests")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts to FILE too")
    options = parser.parse_args()
    mutants = [m for m in read_mutants() if options.only in f"{m.area}/{m.name}"]
    try:
        if not mutants:
            raise StaleMutant(f"no mutant's name contains {options.only!r}")
        places = [locate(mutant) for mutant in mutants]
        if options.list:
            for mutant, place in zip(mutants, places, strict=True):
                print(f"{mutant.area:<12} {mutant.name:<52} {place}")
            return 0
        verdicts = []
        for verdict in run_all(mutants, options.jobs, options.timeout):
            verdicts.append(verdict)
            print(_line(verdict), flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps([asdict(v) for v in verdicts], indent=1) + "\n")
    except (StaleMutant, BrokenRun) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    survivors = [v for v in verdicts if not v.caught]
    print(f"{len(verdicts) - len(survivors)} of {len(verdicts)} caught")
    return int(any(not v.equivalent for v in survivors))


if __name__ == "__main__":
    sys.exit(main())
