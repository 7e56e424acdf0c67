"""The page of the first hour, followed as it stands, with smaller sizes and less time."""

from __future__ import annotations

import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

from first_hour import PAGE, follow, steps


def smaller(command: str) -> str:
    """The same command with small shapes, two or three configurations and a few seconds."""
    command = (
        command.replace("M=4096", "M=1024").replace("--shape M=64,N=1000 ", "").replace("N=256,K=128", "N=64,K=32")
    )
    command = re.sub(
        r"--search (BLOCK_SIZE_\w=\d+)[\d,]*", r"--search \1", command.replace("ROWS=1,2,4,8,16,32", "ROWS=1,4")
    )
    return re.sub(r"--seconds \d+", "--seconds 2 --trials 2", command)


def test_the_page_of_the_first_hour(tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("DEUTERON_", "PYTHONSAFEPATH"))},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DEUTERON_HOME": str(tmp_path / "home"),
        "NO_COLOR": "1",
    }
    vllm = sys.executable if find_spec("vllm") is not None else ""
    first, tuned, launched, exported, *loaded = follow(tmp_path, environment, vllm=vllm, reduced=smaller)
    assert "largest error" in first.output
    assert "bundle   tuned/records.bundle" in tuned.output and "match   exact" in tuned.output
    # Another shape than the smaller one that was tuned.
    assert launched.output.startswith("nearest_shape {'ROWS'")
    assert "vllm-configs: E=8,N=64,device_name=" in exported.output
    (file,) = (tmp_path / "vllm-configs").iterdir()
    assert json.loads(file.read_text()).keys() == {"16", "64"}
    assert all("BLOCK_SIZE_M" in ran.output for ran in loaded)


def test_the_page_shows_all_that_it_needs() -> None:
    """Every file that a command runs is on the page, before it."""
    written: set[str] = set()
    for step in steps():
        if step.file:
            written.add(step.file)
        else:
            assert set(re.findall(r"\b\w+\.py\b", step.text)) <= written
    assert len(written) == 5 and "pip install PATH" in PAGE.read_text()
