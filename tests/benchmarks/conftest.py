"""Benchmarks are scripts: their modules find each other by the folder, in child processes too."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
BENCHMARKS = HERE.parents[1] / "benchmarks"
sys.path[:0] = [str(HERE), str(BENCHMARKS), str(BENCHMARKS / "compat")]
