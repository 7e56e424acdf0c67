"""The runner of Triton's tests, on a suite of a few cases that pass, fail, end the process and never end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMPAT = Path(__file__).resolve().parents[2] / "benchmarks/compat"
CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--device", default="cuda")
"""
TESTS = """
import os, time
import pytest
import triton
import triton.language as tl

@pytest.mark.cpu
@pytest.mark.parametrize("n", range(5))
def test_many(n):
    assert triton.jit.__module__.startswith("deuteron") and tl.float32.bits == 32

def test_wrong():
    raise ValueError(f"as it should in {__file__}")

@pytest.mark.skip(reason="not here")
def test_skipped():
    pass

def test_ends():
    os._exit(7)

def test_late():
    time.sleep(60)

def test_left():
    raise AssertionError("it is left out")

@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_left_on_one_target(where):
    assert where == "elsewhere"
"""

LEFT_OUT = """
[[group]]
reason = "not wanted"
tests = ["test_some.py::test_left"]

[[group]]
reason = "not on this target"
targets = ["cpu"]
tests = ["test_some.py::test_left_on_one_target[here]"]

[[group]]
reason = "not on another target"
targets = ["cuda"]
tests = ["test_some.py::test_left_on_one_target[elsewhere]"]
"""

#: Where the tests lie, without what is before the checkout.
SOME = "python/test/unit/test_some.py"


@pytest.fixture
def result(tmp_path: Path) -> dict:
    unit = tmp_path / "checkout/python/test/unit"
    unit.mkdir(parents=True)
    (unit.parent / "conftest.py").write_text(CONFTEST)
    (unit / "test_some.py").write_text(TESTS)
    (unit / "test_none.py").write_text("import there_is_no_such_module\n")
    # As the left-out file of the repository, with an entry of this suite.
    out, program = tmp_path / "out.json", tmp_path / "run.py"
    (tmp_path / "left_out.toml").write_text(LEFT_OUT)
    program.write_text(
        f"import sys; sys.path.insert(0, {str(COMPAT)!r})\n"
        "import triton_suite\nfrom pathlib import Path\n"
        f"triton_suite.LEFT_OUT = Path({str(tmp_path / 'left_out.toml')!r})\n"
        "sys.exit(triton_suite.main())\n"
    )
    options = [
        "--checkout",
        str(unit.parents[2]),
        "--target",
        "cpu",
        "--out",
        str(out),
        "--sample",
        "3",
        "--limit",
        "2",
    ]
    done = subprocess.run(
        [sys.executable, str(program), *options], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())


def test_every_case_has_its_outcome(result, tmp_path):
    none, some = result["files"]
    assert (none["path"], none["import_error"].partition(":")[0]) == ("test_none.py", "ModuleNotFoundError")
    outcomes = {case["name"].partition("::")[2]: case["outcome"] for case in some["cases"]}
    picked = {name for name in outcomes if name.startswith("test_many")}
    assert len(picked) == 3 and {outcomes.pop(name) for name in picked} == {"passed"}
    assert outcomes == {
        "test_wrong": "failed", "test_skipped": "skipped", "test_ends": "crashed", "test_late": "timed out",
        "test_left_on_one_target[elsewhere]": "passed",
    }  # fmt: skip
    assert some["left_out"] == {"test_some.py::test_left": "not wanted"}
    text = (tmp_path / "out.json").read_text()
    assert str(tmp_path) not in text
    left = json.loads(text)["left_out"]
    assert left.get("test_some.py::test_left_on_one_target[here]") == "not on this target" and len(left) == 2
    assert some["collected"]["test_some.py::test_many"] == 5
    marks = {case["name"].partition("[")[0]: case["marks"] for case in some["cases"]}
    assert marks["test_some.py::test_many"] == ["cpu"] and marks["test_some.py::test_wrong"] == []
    wrong = next(case for case in some["cases"] if case["name"].endswith("test_wrong"))
    assert (wrong["error"], wrong["message"]) == ("ValueError", f"as it should in {SOME}")

    page = subprocess.run(
        [sys.executable, str(COMPAT / "tables.py"), str(tmp_path / "out.json")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    # 4 of 7 decided cases pass; by function the three picked ones stand for five, and one for two: 7 of 10.
    assert "| cpu | 7 | 57.1 % | 70.0 % | 100.0 % of 3 | 3 a function | 0 |" in page
    assert "| ValueError: as it should in " in page and " | 1 | test_wrong |" in page
    assert "**not wanted**: `test_some.py::test_left`" in page
