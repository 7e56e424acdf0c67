"""docs/first-hour.md, run as a newcomer would: a new environment from a wheel, then every file and command of the page.

python benchmarks/first_hour.py --wheel FILE [--vllm PYTHON] [--out FILE]

The wall time of every step is printed and written. ``--vllm``: the Python of an environment that has vLLM, for the last
step, which is left out without it. Installing takes what the package index and its cache give.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "first-hour.md"
_BLOCK = re.compile(r"^```(?P<language>python|bash)(?: (?P<file>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
#: The step that needs vLLM.
VLLM_STEP = "load_in_vllm.py"


@dataclass(frozen=True)
class Step:
    """A file of the page with its text, or, where ``file`` is empty, commands."""

    file: str
    text: str


@dataclass(frozen=True)
class Ran:
    """A step that was run, its output, and its wall time in seconds."""

    text: str
    output: str
    seconds: float


def steps(page: Path = PAGE) -> Iterator[Step]:
    """The blocks of the page in order: Python with a file's name after the language, and commands."""
    for block in _BLOCK.finditer(page.read_text()):
        yield Step(block["file"] or "", block["text"])


def follow(
    folder: Path, environment: Mapping[str, str], *, vllm: str = "", reduced: Callable[[str], str] = str
) -> list[Ran]:
    """Write the files and run the commands of the page in ``folder``. ``vllm``: the Python of the last step.
    ``reduced`` makes smaller work of commands.

    Raises:
        RuntimeError: a command failed; the message has its output.
    """
    ran = []
    for step in steps():
        if step.file:
            (folder / step.file).write_text(step.text)
            continue
        if VLLM_STEP in step.text:
            if not vllm:
                continue
            command = step.text.replace("python ", f"{vllm} ", 1)
        else:
            command = reduced(step.text)
        began = time.perf_counter()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=dict(environment),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command}\n{done.stdout}")
        ran.append(Ran(step.text, done.stdout, time.perf_counter() - began))
    return ran


def main() -> int:
    """Install, follow the page, print and write the times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--vllm", default="", help="a Python that has vLLM")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="first-hour-"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DEUTERON_", "PYTHON"))}
    environment |= {
        "PATH": f"{folder / 'venv' / 'bin'}{os.pathsep}{environment['PATH']}",
        "DEUTERON_HOME": str(folder / "home"),
        "NO_COLOR": "1",
    }
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    subprocess.run(
        [folder / "venv/bin/pip", "install", "-q", options.wheel.resolve()], check=True, stderr=subprocess.DEVNULL
    )
    ran = [Ran("python3 -m venv venv; pip install deuteron", "", time.perf_counter() - began)]
    ran += follow(folder, environment, vllm=options.vllm)
    for step in ran:
        print(f"--- {step.seconds:.1f} s\n{step.text.strip()}\n\n{step.output}")
    total = sum(step.seconds for step in ran)
    print(f"{total:.1f} s in all")
    if options.out:
        document = {
            "cores": os.cpu_count(),
            "total_s": round(total, 1),
            "steps": [{"text": s.text, "seconds": round(s.seconds, 1), "output": s.output} for s in ran],
        }
        options.out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
