"""Made-up programs of tasks, threads, generators, forks and several sessions: every tree is the one that it must be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).with_name("nested_programs.py")


def test_trees_of_made_up_programs(tmp_path: Path) -> None:
    """In a process of their own: they fork, and change the folder."""
    command = [sys.executable, "-P", "-W", "ignore", str(TOOL), "0", "25", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "25 programs, 0 wrong"
