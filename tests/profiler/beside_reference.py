"""Made-up profiles, and given files, through Proton's viewer and ours: the same lines, or a difference that is listed.

    python tests/profiler/beside_reference.py --reference PYTHON [--count 300] [--seed 0] [FILE ...]

PYTHON has Proton: ``pip install triton llnl-hatchet 'pandas<3'``. Its viewer runs in one process, told a command a
line. The suite compares with what Proton printed once (test_reference_viewer.py); this asks it anew, about more.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from deuteron.profiler.viewer.arguments import main as viewer_main

Node = dict[str, Any]

#: What runs in the reference's process.
REFERENCE = """
import contextlib, io, json, sys
import triton.profiler.viewer as viewer
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    sys.argv, out = ["proton-viewer", *json.loads(line)], io.StringIO()
    problem = ""
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            viewer.main()
    except BaseException as error:
        problem = type(error).__name__ + ": " + str(error)[:200]
    print(json.dumps([out.getvalue(), problem]), file=answers, flush=True)
"""

SCOPES = ["init", "step", "layer_0", "layer_1", "backward", "Ünïcode", "with space"]
PYTHON_FRAMES = ["/home/a/train.py:12@main", "/home/a/train.py:40@step", "model.py:7@forward"]
KERNELS = ["gemm", "add_1024", "softmax_kernel", "nvjet_sm90", "void at_foo<int>(float)", "memcpy32"]
DEVICES: dict[str, dict[str, dict[str, object]]] = {
    "CUDA": {
        "90": {"num_sms": 132, "clock_rate": 1_980_000, "memory_clock_rate": 3_201_000, "bus_width": 6144},
        "100": {"num_sms": 148, "clock_rate": 1_965_000, "memory_clock_rate": 3_996_000, "bus_width": 8192},
    },
    "HIP": {
        "gfx942": {"num_sms": 304, "clock_rate": 2_100_000, "memory_clock_rate": 1_300_000, "bus_width": 8192},
    },
}
COMMANDS: list[list[str]] = [
    ["-m", "time/ms"], ["-m", "time/us,count"], ["-m", "time,avg_time/us"], ["-m", "time/%,count/%"],
    ["-m", "time/s,time/ns"], ["-m", "bytes"], ["-m", "byte/s,gbyte/s,tbyte/s"], ["-m", "flop8/s,gflop16/s"],
    ["-m", "util,time/ms"], ["-m", "cpu_time/ms"], ["-m", "loss"], ["-m", "time/us", "-d", "2"],
    ["-m", "time/us", "-t", "20"], ["-m", "time", "-i", ".*gemm.*"], ["-m", "time", "-e", "(step|init).*"],
    ["-m", "time/us", "--print-sorted"], ["-m", "time/us", "-f", "function_line"],
    ["-m", "time/us", "-f", "file_function_line"],
]  # fmt: skip
CYCLES = [["-m", "cycles"], ["-m", "normalized_cycles,cycles"], ["-m", "cycles/%"], ["-m", "cycles", "-d", "3"]]
SAMPLES = [["-m", "num_samples,stalled_wait"], ["-m", "num_samples/%"], ["-m", "num_stalled_samples", "-i", ".*add.*"]]
PAIRED = [["-m", "time/us"], ["-m", "time/us,count"], ["-m", "gbyte/s"], ["-m", "count,time/%"]]


class Maker:
    """Makes one profile. ``old``: ROOT has the metrics of users, too, as older writers had it."""

    def __init__(self, draw: random.Random, kind: str, old: bool) -> None:
        self.draw, self.kind, self.old = draw, kind, old
        self.type = draw.choice(["CUDA", "CUDA", "HIP"])
        archs = list(DEVICES[self.type])
        self.devices = [draw.choice(archs) for _ in range(draw.choice([1, 1, 2]))]
        self.python = draw.random() < 0.3
        self.work = draw.random() < 0.8
        self.known: set[str] = set()

    def literal(self) -> list[object]:
        """The tree and its devices, as a file has them."""
        children = [self.scope(name, self.draw.randint(0, 4)) for name in self.names(self.draw.randint(1, 4))]
        zeros = {"times": {"count": 0, "time (ns)": 0}, "cycles": {"cycles": 0, "normalized_cycles": 0}}
        root: dict[str, object] = dict(zeros.get(self.kind, {"num_samples": 0, "num_stalled_samples": 0}))
        if self.kind == "samples":
            root["stalled_wait"] = 0
        if self.old:
            root |= {name: 0 for name in ("bytes", "flops8", "flops16") if name in self.known}
        devices = {str(at): {"arch": arch, **DEVICES[self.type][arch]} for at, arch in enumerate(self.devices)}
        return [self.node("ROOT", root, children), {self.type: devices}]

    def node(self, name: str, metrics: dict[str, object], children: Sequence[Node] = ()) -> Node:
        """A frame."""
        return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}

    def names(self, count: int) -> list[str]:
        """Names of siblings, which a recorder keeps apart."""
        return self.draw.sample(PYTHON_FRAMES if self.python else SCOPES, min(count, 3))

    def scope(self, name: str, depth: int) -> Node:
        """A scope with kernels, with scopes, or with both."""
        children = [self.scope(below, depth - 1) for below in self.names(self.draw.randint(1, 3))] if depth else []
        if not children or self.draw.random() < 0.6:
            children += [self.kernel(kernel) for kernel in self.draw.sample(KERNELS, self.draw.randint(1, 4))]
        metrics: dict[str, object] = {}
        if self.draw.random() < 0.3:
            metrics["cpu_time (ns)"] = self.draw.randint(1, 10**8)
        if self.draw.random() < 0.3:
            metrics["loss"] = self.draw.uniform(-5, 5)
        if self.draw.random() < 0.2:
            metrics["note"] = self.draw.choice(["warm", "cold"])
        return self.node(name, metrics, children)

    def kernel(self, name: str) -> Node:
        """A leaf, with what its kind of profile measures."""
        device = self.draw.randrange(len(self.devices))
        if self.kind == "cycles":
            cycles = self.draw.randint(1, 10**7)
            metrics = {"cycles": cycles, "normalized_cycles": cycles / 8, "device_id": str(device), "device_type": "1"}
            return self.node(name, metrics)
        if self.kind == "samples":
            return self.node(name, self.samples(device))
        metrics = {"count": self.draw.randint(1, 50), "time (ns)": self.draw.randint(100, 10**7)}
        metrics |= {"device_id": str(device), "device_type": self.type}
        if self.work:
            metrics |= {"bytes": self.draw.randint(1, 10**9), "flops8": self.draw.uniform(1, 1e12)}
            metrics["flops16"] = self.draw.choice([0.0, 1e9, self.draw.uniform(1, 1e13)])
            self.known |= {"bytes", "flops8", "flops16"}
        return self.node(name, metrics)

    def samples(self, device: int) -> dict[str, object]:
        """What sampling of program counters writes."""
        stalled = self.draw.randint(0, 500)
        own = {"device_id": str(device), "device_type": self.type, "num_stalled_samples": stalled}
        return {
            **own,
            "num_samples": stalled + self.draw.randint(1, 500),
            "stalled_wait": self.draw.randint(0, stalled),
        }


def made(draw: random.Random) -> tuple[str, list[object], list[object]]:
    """What two profiles are of (times, cycles or samples), and the two, by writers of one version."""
    kind, old = draw.choice(["times"] * 6 + ["cycles", "samples"]), draw.random() < 0.5
    return kind, Maker(draw, kind, old).literal(), Maker(draw, kind, old).literal()


class Reference:
    """Proton's viewer in a process of its own."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen([python, "-P", "-c", REFERENCE], stdin=-1, stdout=-1, text=True)

    def ask(self, arguments: list[str]) -> tuple[str, str]:
        """(what it printed, the exception it ended with)."""
        to, back = self._pipes()
        to.write(json.dumps(arguments) + "\n")
        to.flush()
        printed, problem = json.loads(back.readline())
        return printed, problem

    def close(self) -> None:
        """End the process."""
        self._pipes()[0].close()
        self._process.wait()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout


def ours(arguments: list[str]) -> tuple[str, str]:
    """As :meth:`Reference.ask`, of our viewer."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = viewer_main(arguments)
    return out.getvalue(), error.getvalue() if code else ""


def verdict(arguments: list[str], mine: tuple[str, str], theirs: tuple[str, str]) -> str:
    """ "equal", a listed difference, or "DIFFERENT" and where."""
    if theirs[1]:
        known = LISTED_FAILURES.get(theirs[1].partition(":")[0])
        said = f"{'both refuse' if mine[1] else 'only Proton refuses'}: {known}"
        return said if known else f"DIFFERENT: Proton fails with {theirs[1]}"
    if mine[1]:
        return f"DIFFERENT: we refuse: {mine[1]}"
    if mine[0] == theirs[0]:
        return "equal"
    a, b = mine[0].splitlines(), theirs[0].splitlines()
    if sorted(a) == sorted(b) and "--print-sorted" in arguments:
        return "equal but for the order of equal values in the sorted list"
    if len(a) != len(b):
        return f"DIFFERENT: {len(a)} lines, Proton has {len(b)}"
    reasons = [difference(metric, arguments) for metric in arguments[1].split(",")]
    used: set[str] = set()
    for row, other in zip(a, b, strict=True):
        if row != other and not explained(row, other, reasons, used):
            return f"DIFFERENT: {row!r}, Proton has {other!r}"
    return f"equal but for {' and '.join(sorted(used))}"


#: What Proton's viewer cannot do: the exceptions it ends with.
LISTED_FAILURES = {
    "EmptyFilter": "a filter that leaves nothing (Proton by a traceback)",
    "RuntimeError": "a metric that the file lacks (Proton by a traceback)",
    "KeyError": "util of a file without bytes or flops",
}
SUMS = "sums of flops and bytes over scopes, where Proton has nan"
PEAKS = "util on architectures whose peaks differ (docs/profiling.md)"
#: Architectures whose peaks are others here.
OTHER_PEAKS = re.compile(r'"arch": ?"(80|89|gfx90a)"')


def difference(metric: str, arguments: list[str]) -> str | None:
    """How a column may differ, if at all."""
    if metric == "util" and OTHER_PEAKS.search(Path(arguments[-1]).read_text()):
        return PEAKS
    return SUMS if re.search("flop|byte", metric) else None


def explained(mine: str, theirs: str, reasons: list[str | None], used: set[str]) -> bool:
    """Do two rows differ only in numbers, and each for its column's reason?"""
    row = rf"(\W*?)((?:-?(?:[\d.]+|nan|inf) ){{{len(reasons)}}})(.*)"
    a, b = re.fullmatch(row, mine), re.fullmatch(row, theirs)
    if a is None or b is None or (a[1], a[3]) != (b[1], b[3]):
        return False
    for x, y, reason in zip(a[2].split(), b[2].split(), reasons, strict=True):
        if x == y:
            continue
        if reason is None or (reason == SUMS and y != "nan"):
            return False
        used.add(reason)
    return True


def commands(seed: str, folder: Path, each: int) -> Iterator[list[str]]:
    """Commands on the profiles of a seed."""
    draw = random.Random(seed)
    kind, *literals = made(draw)
    path, second = folder / "a.hatchet", folder / "b.hatchet"
    for file, literal in zip((path, second), literals, strict=True):
        file.write_text(json.dumps(literal))
    known = {"times": COMMANDS, "cycles": CYCLES, "samples": SAMPLES}[kind]
    for options in draw.sample(known, min(each, len(known))):
        yield [*options, str(path)]
    if kind == "times":
        for options in draw.sample(PAIRED, 2):
            yield [*options, "-diff", str(second), str(path)]


def main() -> int:
    """Compare and report; the exit code is 1 if there is a difference that is not listed."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--reference", required=True, metavar="PYTHON")
    options.add_argument("--count", type=int, default=300)
    options.add_argument("--each", type=int, default=8, help="commands on each profile")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("files", nargs="*", metavar="FILE")
    given = options.parse_args()
    reference, found = Reference(given.reference), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        on_files = ([*command, file] for file in given.files for command in COMMANDS)
        made_up = (c for at in range(given.count) for c in commands(f"{given.seed}:{at}", Path(folder), given.each))
        for arguments in itertools.chain(on_files, made_up):
            said = verdict(arguments, ours(arguments), reference.ask(arguments))
            found[said if not said.startswith("DIFFERENT") else "DIFFERENT"] += 1
            if said.startswith("DIFFERENT"):
                print(f"{' '.join(arguments)}\n  {said}", flush=True)
    reference.close()
    for said, times in found.most_common():
        print(f"{times:6} {said}")
    return 1 if found["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
