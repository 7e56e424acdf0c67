"""Python that starts in the folder of a checkout, where ``deuteron/`` is found before the package that is installed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = "from deuteron import cli, compiler, language, migrations, profiler, server, tools, tuner"


def in_checkout(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What Python does there where this checkout is not installed: -S reads no .pth file, so no editable install is
    seen, and packages come from PYTHONPATH, behind the working directory."""
    paths = [path for path in sys.path if path and Path(path).name in ("site-packages", "dist-packages")]
    environment = {"PYTHONPATH": ":".join(paths) or sysconfig.get_paths()["purelib"], "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-S", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-m", "deuteron", "--version"], "deuteron "),
        (["-m", "deuteron.compat.triton", "examples/vector_add.py"], ""),
        (["-c", f"{ROOMS}; print(compiler.__file__)"], str(ROOT / "compiler")),
    ],
    ids=["command", "alias", "rooms"],
)
def test_it_runs_without_an_editable_install(arguments: list[str], said: str):
    ran = in_checkout(*arguments)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(said)
