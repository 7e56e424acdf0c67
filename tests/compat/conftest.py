"""Programs under Triton's name run in processes of their own: the name stands for one package in a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[[str], str]


@pytest.fixture
def program(tmp_path: Path) -> Run:
    """Runs a program that imports triton, with deuteron in its place and a cache of its own; gives what it prints."""

    def run(text: str) -> str:
        script = tmp_path / "program.py"
        script.write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "deuteron.compat.triton", str(script)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**_environment(), "DEUTERON_HOME": str(tmp_path / "home"), "TRITON_HOME": str(tmp_path)},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def _environment() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "DEUTERON_"))}
