"""Proton's own tests, with deuteron under Triton's name and PyTorch's arrays on the CPU or a GPU.

python benchmarks/compat/proton_suite.py --checkout FOLDER --out FILE.json [--target cpu|cuda] [--limit SECONDS]
                                         [FILE ...]

FOLDER is a checkout of github.com/triton-lang/triton-cpu, or what ``git archive`` gives of its python and
third_party/proton; FILE is a test file, left out: all that say something about programs. The commands ``proton`` and
``proton-viewer`` must be found, and be deuteron's. As in triton_suite.py each file runs in a process of its own.
What is left out, and why, is in proton_left_out.toml.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from library_suite import revision
from names import for_children
from report import write_report
from triton_suite import HERE, TARGETS, FileResult, run_file, summary

TESTS = "third_party/proton/test"
LEFT_OUT = HERE / "proton_left_out.toml"
FILES = ("test_api.py", "test_cmd.py", "test_instrumentation.py", "test_profile.py", "test_viewer.py")


def command(path: str, options: argparse.Namespace, journal: Path) -> tuple[list[str], dict[str, str], Path]:
    """What runs a file's tests, its environment and its folder."""
    arguments = [
        sys.executable, "-P", "-m", "pytest", "-q", "-p", "suite_plugin", "-p", "no:cacheprovider", "-p", "no:xdist",
        "--device", options.target, "--tb=short", "--no-header", "-W", "ignore", f"--suite-checkout={options.checkout}",
        f"--suite-folder={TESTS}", f"--suite-target={options.target}", f"--suite-journal={journal}",
        f"--suite-left-out={LEFT_OUT}", f"--suite-limit={options.limit}", str(options.checkout / TESTS / path),
    ]  # fmt: skip
    if options.target == "cpu":
        arguments.append("--suite-cuda-on-cpu")
    paths = os.pathsep.join([str(journal.parent), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return arguments, {**os.environ, **TARGETS[options.target], "PYTHONPATH": paths}, options.checkout / TESTS


def main() -> int:
    """Run the files, print a line for each, and write what became of every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a case")
    parser.add_argument("--file-limit", type=float, default=1800.0)
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_args()
    options.checkout = options.checkout.resolve()
    if not (options.checkout / TESTS).is_dir():
        print(f"error: {options.checkout} has no {TESTS}", file=sys.stderr)
        return 2
    results: list[FileResult] = []
    with tempfile.TemporaryDirectory() as folder:
        for_children(Path(folder), options.checkout)
        os.environ.setdefault("TRITON_CACHE_DIR", str(Path(folder) / "cache"))
        for path in options.files or FILES:
            results.append(run_file(path, options, Path(folder), command))
            print(summary(results[-1]), flush=True)
    document: dict[str, object] = {
        "suite": revision(options.checkout),
        "target": options.target,
        "revision": revision(HERE),
        "python": sys.version.partition(" ")[0],
        "files": [asdict(result) for result in results],
    }
    write_report(options.out, document, options.checkout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
