"""Starting is cheap, and every way to end has its exit code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEAVY = (
    *("numpy", "llvmlite", "httpx", "fastapi", "sqlalchemy", "alembic", "dask", "distributed"),
    *("hatchet", "pandas", "plotly", "optuna"),
)


@pytest.mark.parametrize("arguments", [["--help"], ["tune", "--help"], ["cache", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]):
    code = (
        "import sys\nfrom deuteron.cli import main\n"
        f"code = main({arguments!r})\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], code, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[] 0"


@pytest.mark.parametrize("command", ["tune", "submit"])
def test_help_names_every_strategy_and_workload(run, command: str):
    """One that was added was not."""
    from deuteron.tuner import BUILTINS, STRATEGIES

    shown = " ".join(re.sub(r"[^\w:,.]", " ", run(command, "--help").out).split())
    assert ", ".join(STRATEGIES) in shown and ", ".join(BUILTINS) in shown


def test_help_lists_every_command_with_an_example(run):
    import typer

    from deuteron.cli.app import app
    from deuteron.cli.reference import walk

    shown = run("--help").out
    for path, command in walk(typer.main.get_command(app), ()):
        assert path[0] in shown
        text = " ".join((command.help or "").split())
        assert "Example: `deuteron " + " ".join(path) in text, f"no example: {' '.join(path)}"


def test_version(run):
    from importlib.metadata import version

    assert run("--version").out == f"deuteron {version('deuteron')}\n"


def test_unknown_command_and_option_are_usage_errors(run):
    for arguments in (["tunee"], ["tune", "--trails", "3", "softmax"], ["tune"]):
        ran = run(*arguments)
        assert ran.code == 2
        assert "Traceback" not in ran.err
    assert "tune" in run("tunee").err


def test_reader_that_goes_away_leaves_no_traceback(run_process, examples: Path):
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "deuteron", "compile"]
        + [f"{examples}/matmul.py:matmul_kernel", "--target", "cuda:90a", "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(60) == 141
    assert errors == ""


def test_interrupt_ends_with_130(home: Path, living_members):
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "deuteron", "tune", "matmul", "--seconds", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    seen = ""
    while "best so far" not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    # As a terminal does: the whole group gets the signal.
    os.killpg(process.pid, signal.SIGINT)
    errors = process.stderr.read()
    assert process.wait(30) == 130, errors
    assert "Traceback" not in errors
    deadline = time.monotonic() + 20
    while living_members(process.pid):
        assert time.monotonic() < deadline, living_members(process.pid)
        time.sleep(0.1)
    assert list(home.glob("tune/*/journal.jsonl")), "the trials so far are kept"
