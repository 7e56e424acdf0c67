"""The runner of Triton's tutorials: programs that print as those do, with deuteron under Triton's name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tutorials import Run, ratios, tables

COMPAT = Path(__file__).resolve().parents[2] / "benchmarks/compat"
PRINTED = """Running
matmul-performance-fp16:
         M        N  cuBLAS  Triton  Naive (GB/s)
0    256.0    256.0     2.0     4.0            nan
..     ...      ...     ...     ...            ...
1    512.0    512.0     8.0     2.0            1.0
done
└─ 50.000 2.000 ROOT
   ├─ 25.000 1.000 kernel [M=8192, N=8192]
"""
PROGRAM = """
import triton
print("✅ " + triton.jit.__module__.split(".")[0])
print("size  speed")
print("0  1.0  2.0")
"""


def test_tables_are_read_as_printed():
    benchmark, profile = tables(PRINTED)
    assert benchmark.columns == ["M", "N", "cuBLAS", "Triton", "Naive"]
    assert benchmark.column("Triton") == [4.0, 2.0]
    assert profile.columns == ["ROOT", "kernel [M=8192, N=8192]"]
    assert profile.rows == [[50.0, 25.0]]


def test_ratios_are_geometric_means_of_ours_over_theirs():
    ours = Run(0, 1.0, tables(PRINTED), [], "")
    theirs = Run(0, 1.0, tables(PRINTED.replace("     4.0", "     1.0").replace("25.000", "10.000")), [], "")
    assert ratios(ours, theirs) == [{"Triton": 2.0}, {"kernel [M=8192, N=8192]": 2.5}]


def test_a_tutorial_runs_as_it_is(tmp_path):
    (tmp_path / "01-first.py").write_text(PROGRAM)
    (tmp_path / "12-later.py").write_text("raise SystemExit(3)")
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, COMPAT / "tutorials.py", tmp_path, "--out", out, "--sides", "deuteron"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(out.read_text())
    assert list(document) == ["01-first.py"]
    result = document["01-first.py"]["deuteron"]
    assert result["marks"] == ["✅ deuteron"]
    assert result["tables"] == [{"columns": ["size", "speed"], "rows": [[1.0, 2.0]]}]
