"""What makes the picture in README.md, on a command that prints little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEVELOPMENT = Path(__file__).parents[2] / "development"
PRINTS = """
import os, sys
print("out <b>", os.environ["COLUMNS"])
print("\\x1b[1mbold\\x1b[0m", file=sys.stderr, flush=True)
"""


def draw(path: Path, *command: str) -> int:
    tool = [sys.executable, str(DEVELOPMENT / "picture.py"), "--columns", "50", str(path)]
    return subprocess.run([*tool, *command], capture_output=True, timeout=60, check=False).returncode


def test_both_outputs_of_a_command_are_drawn_as_text(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PRINTS)
    assert draw(tmp_path / "p.svg", sys.executable, str(tmp_path / "program.py")) == 0
    drawn = (tmp_path / "p.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    assert drawn.startswith("<svg") and "out &lt;b&gt; 50" in drawn and ">bold<" in drawn and "[1m" not in drawn


def test_a_command_that_fails_leaves_no_picture(tmp_path: Path) -> None:
    assert draw(tmp_path / "p.svg", sys.executable, "-c", "raise SystemExit(3)") == 3
    assert not (tmp_path / "p.svg").exists()
