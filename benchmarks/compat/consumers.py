"""Files that ``deuteron cache export`` writes, loaded by the programs that they are for.

python benchmarks/compat/consumers.py [NAME ...] [--out FILE]

Made-up records are exported as the command does it; then the loading functions of vLLM, SGLang, Helion, Triton and
readers of T4 are called on the files, and what they load is compared with what was stored. Files of vLLM and SGLang,
those that they ship, and of Triton are read in the other direction, too, as ``deuteron tune --from`` does. No GPU is
needed: where a program asks which one there is, it is told a name. Each consumer runs in a process of its own. A name
whose packages are missing is left out; the loaders need little of what those packages want to have installed
(`pip install --no-deps vllm`, then what an import asks for). Fails where something was read differently.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Consumer:
    """``check``: the module beside this file and its function. ``needs``: import names of packages, all of them."""

    check: tuple[str, str]
    needs: tuple[str, ...]


CONSUMERS = {
    "vllm": Consumer(("consumer_experts", "check_vllm"), ("vllm", "torch")),
    "sglang": Consumer(("consumer_experts", "check_sglang"), ("sglang", "torch", "triton")),
    "triton": Consumer(("consumer_configs", "check_triton"), ("triton",)),
    "helion": Consumer(("consumer_configs", "check_helion"), ("helion", "torch", "triton")),
    "t4": Consumer(("consumer_configs", "check_t4"), ("kernel_tuner", "autotuning_methodology", "jsonschema")),
}
#: Children print their answer after this word; imported packages print, too.
_MARK = "COMPARED "


def main() -> int:
    """Compare the consumers that are installed, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CONSUMERS)}; all by default")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--child", choices=CONSUMERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(_MARK + json.dumps(compare(options.child)))
        return 0
    unknown = [name for name in options.names if name not in CONSUMERS]
    if unknown:
        parser.error(f"there is no consumer {unknown[0]!r}: {', '.join(CONSUMERS)}")
    results = {name: _in_a_process(name) for name in options.names or CONSUMERS}
    for name, result in results.items():
        print(f"{name:8} {_line(result)}")
        for what, number in result.get("counts", {}).items():
            print(f"{'':8} {number} {what}")
    if options.out:
        document = {
            "date": datetime.now(UTC).date().isoformat(),
            "python": sys.version.split()[0],
            "consumers": results,
        }
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if any(result.get("error") or result.get("differences") for result in results.values()) else 0


def missing(name: str) -> list[str]:
    """Packages that a consumer needs and that are not installed."""
    return [package for package in CONSUMERS[name].needs if find_spec(package) is None]


def compare(name: str) -> dict[str, Any]:
    """The comparison with one consumer, in this process: ``compared``, ``differences``, ``counts``, ``versions``."""
    module, function = CONSUMERS[name].check
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    found = getattr(__import__(module), function)()
    versions = {package: _version(package) for package in CONSUMERS[name].needs}
    return {
        "compared": found.compared,
        "different": len(found.differences),
        "differences": found.differences[:20],
        "counts": found.counts,
        "versions": versions,
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _in_a_process(name: str) -> dict[str, Any]:
    absent = missing(name)
    if absent:
        return {"missing": absent}
    words = [sys.executable, "-P", str(Path(__file__).resolve()), "--child", name]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"})
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode != 0 or not answers:
        return {"error": done.stderr[-2000:] or f"ended with {done.returncode}"}
    answer: dict[str, Any] = json.loads(answers[-1].removeprefix(_MARK))
    return answer


def _line(result: dict[str, Any]) -> str:
    if "missing" in result:
        return f"left out: {', '.join(result['missing'])} not installed"
    if "error" in result:
        return "failed: " + result["error"].strip().splitlines()[-1]
    versions = ", ".join(f"{package} {number}" for package, number in result["versions"].items())
    return f"{result['compared']} values loaded, {result['different']} other than stored   ({versions})"


if __name__ == "__main__":
    sys.exit(main())
