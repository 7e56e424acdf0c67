"""The same files through Proton's own viewer and ours: identical rows.

What Proton printed is recorded in data/proton-viewer.json. Where Proton is installed it is asked again, and also about
profiles of launches. It comes with Triton: `pip install triton llnl-hatchet 'pandas<3'`; DEUTERON_TEST_REFERENCE_PYTHON
names a Python that has it, otherwise that of the tests is tried. DEUTERON_TEST_RECORD=1 records anew.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
import deuteron.profiler as proton
from deuteron.profiler import Profile
from deuteron.profiler.viewer.arguments import main as viewer_main

RECORDED = Path(__file__).parent / "data" / "proton-viewer.json"


@functools.cache
def reference_python() -> str | None:
    python = os.environ.get("DEUTERON_TEST_REFERENCE_PYTHON", sys.executable)
    code = "import triton.profiler.viewer as v; v.main"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else python


@pytest.fixture
def reference() -> Callable[..., str]:
    """Runs Proton's viewer; returns what it prints."""
    python = reference_python()
    if python is None:
        pytest.skip(
            "needs Triton's Proton: pip install triton llnl-hatchet 'pandas<3' here, or where "
            "DEUTERON_TEST_REFERENCE_PYTHON points to"
        )

    def view(*arguments: str) -> str:
        done = subprocess.run(
            [python, "-c", "import triton.profiler.viewer as v; v.main()", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
        )
        if "buffer source array is read-only" in done.stderr:
            pytest.skip("needs pandas before 3 beside Proton, whose -diff fails with it: pip install 'pandas<3'")
        assert done.returncode == 0, done.stderr
        return done.stdout

    return view


@pytest.fixture
def ours(capsys: pytest.CaptureFixture) -> Callable[..., str]:
    def view(*arguments: str) -> str:
        assert viewer_main(list(arguments)) == 0
        return capsys.readouterr().out

    return view


def generated(seed: int) -> Profile:
    """A tree with everything a file can have: two devices, rates, hidden frames, frames without metrics."""
    draw = random.Random(seed)
    profile = Profile()
    for index in range(2):
        arch = draw.choice(["80", "89", "90", "100"])
        # Proton has constants for 80 and 89; with these records ours are the same.
        count, clock = {"80": (108, 1_410_590), "89": (64, 2_520_000)}.get(arch, (132, 1_755_000))
        memory = {"bus_width": 5120, "memory_clock_rate": 2_619_000}
        profile.device("CUDA", index, arch=arch, num_sms=count, clock_rate=clock, **memory)
    for _ in range(40):
        path = tuple(draw.choice("abcdef") + str(draw.randint(0, 2)) for _ in range(draw.randint(0, 4)))
        node = profile.node((*path, draw.choice(["kern", "gemm", "void at::foo<int>(float)", 'q"'])))
        profile.add_launches(
            node,
            count=draw.randint(1, 5),
            time_ns=draw.randint(100, 100_000),
            device_type="CUDA",
            device_id=draw.randrange(2),
        )
        metrics: dict[str, object] = {
            "flops": 1.0,
            "flops8": draw.random(),
            "flops16": draw.random() * 1e9,
        }
        if draw.random() < 0.7:
            metrics["bytes"] = draw.randint(1, 10**8)
        profile.add_to(node, metrics)
        profile.add((*path, "timed"), {"cpu_time (ns)(exc)": draw.randint(1, 10**7)})
        if draw.random() < 0.3:
            profile.add((*path, "__proton_launch_metadata", "helper"), {"count": 1, "time (ns)": 55})
        profile.node((*path, "empty"))
    return profile


ARGUMENTS = [
    ("-m", "time/ms,flop16/s"),
    ("-m", "time/us,count"),
    ("-m", "tflop16/s,gbyte/s,byte/s,tbyte/s"),
    ("-m", "util"),
    ("-m", "time/%,count/%,bytes/%"),
    ("-m", "time,avg_time/us,cpu_time/ms,bytes"),
    ("-m", "time/us", "-d", "2"),
    ("-m", "time/us", "-t", "3"),
    ("-m", "util", "-t", "0.0001"),
    ("-m", "time/us", "--print-sorted"),
    ("-m", "time", "-i", ".*(kern|add).*"),
    ("-m", "time", "-e", "(c|a).*"),
]


DIFFERENCES = ["time/us", "util", "count,time/%"]
ROWS = [(*arguments, file) for arguments in ARGUMENTS for file in ("h200.hatchet", "1.hatchet")]
CHANGES = [("-m", metrics, "-diff", "3.hatchet", "2.hatchet") for metrics in DIFFERENCES]


@pytest.fixture
def files(h200_profile: Path) -> None:
    """What the commands above name, in the current folder."""
    shutil.copy(h200_profile, "h200.hatchet")
    for seed in (1, 2, 3):
        generated(seed).write(f"{seed}.hatchet")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("arguments", ROWS + CHANGES, ids=" ".join)
def test_rows_are_identical(arguments: tuple[str, ...], ours: Callable) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert ties_by_name(ours(*arguments).splitlines()) == ties_by_name(recorded[" ".join(arguments)])


def ties_by_name(lines: list[str]) -> list[str]:
    """The lines with equal values of the sorted list in the order of names: Proton's are in the order of numpy's
    unstable sort, which differs between processors; ours are in that of the tree."""
    start = next((at for at, line in enumerate(lines, 1) if line.startswith("Sorted kernels by ")), len(lines))
    groups = itertools.groupby(lines[start:], key=lambda line: line.split(" ")[-1])
    return lines[:start] + [line for _, group in groups for line in sorted(group)]


@pytest.mark.slow
@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("commands", [ROWS, CHANGES], ids=["rows", "differences"])
def test_what_is_recorded_is_what_proton_prints(commands: list[tuple[str, ...]], reference: Callable) -> None:
    printed = {" ".join(arguments): reference(*arguments).splitlines() for arguments in commands}
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    if os.environ.get("DEUTERON_TEST_RECORD"):
        recorded |= printed
        RECORDED.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert recorded == recorded | printed


def metadata(grid: object, kernel: object, arguments: dict) -> dict:
    n = arguments["n"]
    return {"name": f"add_{n}", "flops": float(n), "flops32": float(n), "bytes": 12 * n}


@triton.jit(launch_metadata=metadata)
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@pytest.fixture
def cpu_profile() -> Path:
    """A profile of real launches on the CPU target."""
    proton.start("cpu", hook="triton", backend="cpu")
    with proton.scope("step"), proton.cpu_timed_scope("inner"):
        for n in (1000, 5000, 1000):
            x = np.arange(n, dtype=np.float32)
            out = np.empty_like(x)
            add[(triton.cdiv(n, 1024),)](x, x, out, n, BLOCK=1024)
            assert np.array_equal(out, 2 * x)
    proton.finalize()
    return Path("cpu.hatchet")


def test_launches_on_the_cpu_target_are_recorded(cpu_profile: Path) -> None:
    profile = Profile.read(cpu_profile)
    node = profile.node(("step", "inner", "add_1000"))
    assert node.metrics["count"] == 2
    assert node.metrics["bytes"] == 24_000
    assert node.metrics["flops"] == 2000.0
    assert node.metrics["device_type"] == "CPU"
    assert 0 < node.metrics["time (ns)"] < 10**10
    assert profile.node(("step", "inner", "add_5000")).metrics["count"] == 1


@pytest.mark.parametrize(
    "metrics",
    ["time/ms,flop/s", "time/us,count", "gflop32/s,gbyte/s", "util", "time/%,cpu_time/us"],
)
def test_reference_reads_cpu_profiles(metrics: str, reference: Callable, ours: Callable, cpu_profile: Path) -> None:
    text = reference("-m", metrics, str(cpu_profile))
    assert "add_1000" in text
    assert ours("-m", metrics, str(cpu_profile)).splitlines() == text.splitlines()
