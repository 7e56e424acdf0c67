"""How long proton-viewer takes for large profiles: a fresh process for each command, the best of several.

    python benchmarks/viewer.py [--runs 3]

Profiles are made up: a tree of 100,000 frames (ten below each), 20,000 siblings, and two files of 50,000 siblings whose
difference is taken. Seconds are those of the process's CPU time, which neighbours on the machine change less than the
clock's; both are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path

DEVICE = {"arch": "90", "bus_width": 5120, "clock_rate": 1755000, "memory_clock_rate": 2619000, "num_sms": 132}
COMMAND = "import sys; from deuteron.profiler.viewer.arguments import main; sys.exit(main())"


def frame(name: str, **metrics: object) -> dict[str, object]:
    """A frame of a .hatchet file, without children."""
    return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": []}


def kernel(name: str, number: int) -> dict[str, object]:
    """A kernel that ran once, for a time that depends on its number."""
    metrics = {"count": 1, "time (ns)": 1000 + number % 977, "device_id": "0", "device_type": "CUDA"}
    return frame(name, **metrics, bytes=4096 * (number % 13), flops16=1e6 * (number % 7))


def siblings(count: int, first: int = 0) -> list[object]:
    """A profile of ``count`` kernels below ROOT."""
    root = frame("ROOT", **{"count": 0, "time (ns)": 0})
    root["children"] = [kernel(f"kernel_{index}", index + first) for index in range(count)]
    return [root, {"CUDA": {"0": DEVICE}}]


def tree(count: int) -> list[object]:
    """A profile of ``count`` frames, ten below each; the last nine tenths are kernels."""
    root = frame("ROOT", **{"count": 0, "time (ns)": 0})
    pending, made = deque([root]), 1
    while made < count:
        parent = pending.popleft()
        for place in range(min(10, count - made)):
            name = f"scope_{made % 53}_{place}"
            child = kernel(name, made) if made > count // 10 else frame(name)
            parent["children"].append(child)  # type: ignore[attr-defined]
            pending.append(child)
            made += 1
    return [root, {"CUDA": {"0": DEVICE}}]


def measure(arguments: list[str], runs: int) -> tuple[float, float]:
    """(CPU seconds, seconds) of the command, the least of ``runs`` fresh processes."""
    best = (float("inf"), float("inf"))
    for _ in range(runs):
        before = os.times()
        subprocess.run([sys.executable, "-P", "-c", COMMAND, *arguments], stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        best = min(best[0], cpu), min(best[1], after.elapsed - before.elapsed)
    return best


def main() -> None:
    """Make the profiles, run the commands and print a line for each."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=3)
    runs = options.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        files = {
            "tree": tree(100_000),
            "many": siblings(20_000),
            "left": siblings(50_000),
            "right": siblings(50_000, 5),
        }
        paths = {name: str(Path(folder) / f"{name}.hatchet") for name in files}
        for name, literal in files.items():
            Path(paths[name]).write_text(json.dumps(literal))
        commands = {
            "100,000 frames": ["-m", "time/ms", paths["tree"]],
            "20,000 siblings": ["-m", "time/ms", paths["many"]],
            "difference of 50,000 siblings": ["-m", "time/ms", "-diff", paths["right"], paths["left"]],
        }
        for title, arguments in commands.items():
            cpu, seconds = measure(arguments, runs)
            print(f"{title:32} {cpu:6.2f} s CPU  {seconds:6.2f} s")


if __name__ == "__main__":
    main()
