"""A library's own tests, with deuteron under Triton's name and PyTorch's arrays on the CPU.

python benchmarks/compat/library_suite.py --checkout FOLDER --tests FOLDER/tests/ops --out FILE.json
    [--sample N] [--smallest] [--cuda-on-cpu] [--inductor] [--seed S] [--limit SECONDS] [--file-limit SECONDS]
    [--first-config | --random-config] [--simulate ARCH ...] [--on-gpu] [--record FOLDER] [--jobs N] [FILE ...]

FOLDER is a checkout of the library; FILE is a test file below the folder of tests, left out: all that pytest takes for
tests by their names, ``test_*.py`` and ``*_test.py``. As in triton_suite.py each file runs in a process of its own, one
test at a time, and a case that ends the process is written down as such. ``--simulate cuda:90a``: every variant that a
test launches is simulated on a GPU, too, and compared (simulated_launches.py). ``--on-gpu --record FOLDER``: on a
machine with a GPU, and with launches written down for launch_times.py.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

import simulated_launches
from report import write_report
from triton_suite import HERE, FileResult, run_file, summary

#: Options that are handed on to the plugin.
FLAGS = ("smallest", "cuda_on_cpu", "first_config", "random_config", "inductor", "on_gpu")


def command(path: str, options: argparse.Namespace, journal: Path) -> tuple[list[str], dict[str, str], Path]:
    """What runs a file's tests, its environment and its folder."""
    arguments = [
        sys.executable, "-P", "-m", "pytest", "-q", "-p", "library_plugin", "-p", "no:cacheprovider", "-p", "no:xdist",
        "--tb=long", "--no-header", "-W", "ignore", f"--suite-tests={options.tests}", f"--suite-journal={journal}",
        f"--suite-sample={options.sample}", f"--suite-seed={options.seed}", f"--suite-limit={options.limit}",
        *(f"--suite-{flag.replace('_', '-')}" for flag in FLAGS if getattr(options, flag)),
        *([f"--suite-helpers-from={options.helpers_from}"] if options.helpers_from else []),
        *([f"--suite-record={options.record.resolve()}"] if options.record else []),
        *simulated_launches.handed_on(options), str(options.tests / path),
    ]  # fmt: skip
    given = filter(None, [os.environ.get("PYTHONPATH")])
    paths = os.pathsep.join([str(HERE), str(options.checkout), *given])
    hidden = {} if options.on_gpu else {"CUDA_VISIBLE_DEVICES": ""}
    return arguments, {**os.environ, **hidden, "PYTHONPATH": paths}, options.checkout


def main() -> int:
    """Run the files and write the result after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--tests", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--smallest", action="store_true")
    parser.add_argument("--cuda-on-cpu", action="store_true", help="arrays of device cuda are made on the CPU")
    parser.add_argument("--first-config", action="store_true", help="autotuned kernels have one configuration")
    parser.add_argument("--random-config", action="store_true", help="the same, chosen by the seed")
    parser.add_argument("--inductor", action="store_true", help="torch.compile writes Triton kernels for the CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--file-limit", type=float, default=3600.0)
    parser.add_argument("--on-gpu", action="store_true", help="the tests run on this machine's GPU")
    parser.add_argument("--record", type=Path, help="folder that launches are written to, for launch_times.py")
    parser.add_argument("--jobs", type=int, default=1, help="files at once")
    parser.add_argument("--helpers-from", type=Path, help="a checkout of Triton, for tests that use its tests' helpers")
    simulated_launches.add_options(parser, "--")
    parser.add_argument("--scratch", type=Path, help="keep the journals and the tests' output here")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    options.checkout, options.tests = options.checkout.resolve(), options.tests.resolve()
    if not options.tests.is_dir():
        print(f"error: there is no folder {options.tests}", file=sys.stderr)
        return 2
    paths = options.files or test_files(options.tests)
    results: list[FileResult] = []
    with tempfile.TemporaryDirectory() as temporary:
        scratch = options.scratch or Path(temporary)
        scratch.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("TRITON_CACHE_DIR", str(Path(temporary) / "cache"))
        with ThreadPoolExecutor(options.jobs) as pool:
            runs = [pool.submit(run_file, path, options, scratch, command) for path in paths]
            for run in as_completed(runs):
                results.append(run.result())
                print(summary(results[-1]), flush=True)
                ordered = sorted(results, key=lambda result: result.path)
                write_report(options.out, document(ordered, options), options.checkout)
    return 0


def test_files(folder: Path) -> list[str]:
    """The files below a folder that pytest takes for tests."""
    found = {path for pattern in ("test_*.py", "*_test.py") for path in folder.rglob(pattern)}
    return sorted(str(path.relative_to(folder)) for path in found)


def document(results: list[FileResult], options: argparse.Namespace) -> dict[str, object]:
    """What is written: the run, and the files that ran."""
    return {
        "library": options.checkout.name,
        "library_revision": revision(options.checkout),
        "target": "cuda" if options.on_gpu else "cpu",
        "sample": options.sample,
        **{flag: getattr(options, flag) for flag in FLAGS},
        "seed": options.seed,
        "limit_s": options.limit,
        "simulate": options.simulate,
        "revision": revision(HERE),
        "python": sys.version.partition(" ")[0],
        "files": [asdict(result) for result in results],
    }


def revision(folder: Path) -> str:
    """The commit of a checkout."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
    return asked.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
