"""The runner of libraries' tests: the smallest cases of a pretended library, with deuteron under Triton's name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPAT = Path(__file__).resolve().parents[2] / "benchmarks/compat"
CONFTEST = "import triton  # as libraries do, before any test is collected\n"
LIBRARY = """
import triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 0})], ["n"])
@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK == 4)  # the second configuration would be timed, and dropped
    i = tl.program_id(0) * BLOCK + tl.arange(0, 4)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
"""
TESTS = """
import os
import numpy as np, pytest
from library import double

@pytest.mark.parametrize("shape", [(128, 5), (2, 3), (4, 4096), (3, 3)])
@pytest.mark.parametrize("scale", [2.0, 1000.5])
def test_double(shape, scale):
    x = np.arange(6, dtype=np.float32)
    double[lambda meta: (2,)](x, 6)
    np.testing.assert_array_equal(x, np.arange(6) * 2)
    assert shape == (2, 3) and double.best_config is double.configs[0] and not double.configs_timings

def test_ends():
    os._exit(3)

def test_wrong():
    assert False, "as it should"
"""


def suite(*options: object) -> subprocess.CompletedProcess[str]:
    """The runner, which finds its modules beside it also where Python is told not to look there."""
    paths = os.pathsep.join([str(COMPAT), *filter(None, [os.environ.get("PYTHONPATH")])])
    program = [sys.executable, str(COMPAT / "library_suite.py"), *map(str, options)]
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(program, capture_output=True, text=True, timeout=300, check=False, env=environment)


@pytest.fixture
def run(tmp_path: Path):
    checkout = tmp_path / "checkout"
    (checkout / "tests").mkdir(parents=True)
    (checkout / "library.py").write_text(LIBRARY)
    (checkout / "tests/conftest.py").write_text(CONFTEST)
    (checkout / "tests/test_some.py").write_text(TESTS)
    out = tmp_path / "out.json"
    folders = ["--checkout", checkout, "--tests", checkout / "tests", "--out", out]
    done = suite(*folders, "--sample", 2, "--smallest", "--first-config")
    assert done.returncode == 0, done.stderr
    return out


def test_the_smallest_cases_run_with_one_configuration(run):
    result = json.loads(run.read_text())
    (file,) = result["files"]
    outcomes = {case["name"]: case["outcome"] for case in file["cases"]}
    assert outcomes == {
        "test_some.py::test_double[2.0-shape1]": "passed", "test_some.py::test_double[1000.5-shape1]": "passed",
        "test_some.py::test_ends": "crashed", "test_some.py::test_wrong": "failed",
    }  # fmt: skip
    assert file["collected"]["test_some.py::test_double"] == 8 and result["smallest"] and not result["cuda_on_cpu"]
    empty = {"target": "cpu", "sample": 0, "seed": 0, "left_out": {}, "files": []}
    (run.parent / "suite.json").write_text(json.dumps(empty))
    page = [sys.executable, str(COMPAT / "tables.py"), str(run.parent / "suite.json"), str(run)]
    text = subprocess.run(page, capture_output=True, text=True, check=True).stdout
    assert "| checkout |" in text and "| 1 | 4 | 2 | 0 | 60 s |" in text


def test_a_folder_of_tests_that_is_missing_is_an_error(tmp_path):
    done = suite("--checkout", tmp_path, "--tests", tmp_path / "none", "--out", tmp_path / "out.json")
    assert done.returncode == 2 and "there is no folder" in done.stderr and "Traceback" not in done.stderr
