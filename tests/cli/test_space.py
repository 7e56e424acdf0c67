"""``deuteron space``: tables, JSON, workloads for tune, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deuteron.tuner.workloads import Problem, workload_from_json

Run = Callable[..., Any]
KERNEL = """@triton.jit
def double(x_ptr, y_ptr, n, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""


def test_the_table_has_a_reason_for_everything(run: Run, examples: Path) -> None:
    ran = run("space", f"{examples}/matmul.py:matmul_kernel", "--device", "h200")
    assert ran.code == 0
    for part in (
        "BLOCK_SIZE_M",
        "rows of tl.dot",
        "num_stages",
        "maxnreg",
        "shared_bytes",
        "the author's 9 among them",
    ):
        assert part in ran.out


def test_json_and_workload(run: Run, kernel_file: Callable[[str], Path], tmp_path: Path) -> None:
    path = f"{kernel_file(KERNEL)}:double"
    told = json.loads(run("space", path, "--shape", "n=1000", "--json", "--dtype", "f32").out)
    (width,) = (p for p in told["parameters"] if p["name"] == "WIDTH")
    assert width["role"] == "tile" and width["choices"] == [64, 128, 256, 512, 1024]
    assert told["valid"] == 5
    saved = tmp_path / "double.json"
    assert run("space", path, "--shape", "n=1000", "--save-workload", saved).code == 0
    problem = Problem(workload_from_json(json.loads(saved.read_text())), {"n": 100}, "f32")
    assert problem.spec.spaces["cpu"].names == ("WIDTH",)
    assert problem.spec.shapes == ({"n": 1000},)
    assert run("tune", path, "--shape", "n=1000", "--infer-space", "--save-workload", tmp_path / "tune.json").code == 0
    assert json.loads((tmp_path / "tune.json").read_text()) == json.loads(saved.read_text())


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["space", "missing.py:k"], ["no file missing.py"]),
        (["space", "{file}", "--device", "h300"], ["h300", "h200"]),
        (["space", "{file}", "--device", "sm_12"], ["unknown target"]),
        (["space", "{file}", "--save-workload", "x.json"], ["needs a shape"]),
        (["space", "{file}", "--shape", "n=1000", "--constexpr", "WIDE=3"], ["WIDE"]),
        (["space", "{broken}"], ["no 'lod'", "^"]),
    ],
)
def test_refusals(run: Run, kernel_file: Callable[..., Path], arguments: list[str], parts: list[str]) -> None:
    file = kernel_file(KERNEL)
    broken = kernel_file(KERNEL.replace("tl.load", "tl.lod"), "broken.py")
    ran = run(*(a.format(file=f"{file}:double", broken=f"{broken}:double") for a in arguments))
    assert ran.code == 2 and "Traceback" not in ran.err
    assert all(part in ran.err for part in parts), ran.err
