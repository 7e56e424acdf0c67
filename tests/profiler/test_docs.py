"""The commands and programs in docs/profiling.md run and print what the page shows (but for the times)."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import deuteron.profiler.viewer as proton_viewer
from deuteron.profiler.cli import proton_main
from deuteron.profiler.viewer.arguments import main as viewer_main
from deuteron.profiler.viewer.arguments import parser

PAGE = Path(__file__).parents[2] / "docs" / "profiling.md"


def test_the_page_works(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    text = PAGE.read_text()
    program, _, functions = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    console, _ = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    (tmp_path / "profile_add.py").write_text(program)
    subprocess.run([sys.executable, "profile_add.py"], cwd=tmp_path, check=True, timeout=120)
    command, *shown = console.splitlines()[1:]
    assert command.startswith("$ proton-viewer ")
    assert viewer_main(command.split()[2:]) == 0
    printed = capsys.readouterr().out.strip().splitlines()
    assert [without_times(line) for line in printed] == [without_times(line) for line in shown]
    exec(compile(functions, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.strip() == proton_viewer.render("add.hatchet", ["time/ms", "gbyte/s"]).strip()
    assert proton_main(["-n", "again", "profile_add.py"]) == 0
    assert "add" in proton_viewer.render("again.hatchet", ["count"])


def test_the_example_of_scopes_inside_a_kernel_works(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    text = PAGE.read_text()
    _, program, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    _, console = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    (tmp_path / "profile_inside.py").write_text(program)
    runpy.run_path("profile_inside.py")
    command, *shown = console.splitlines()[1:]
    assert viewer_main(command.split()[2:]) == 0
    printed = capsys.readouterr().out.strip().splitlines()
    assert [re.sub(r"\d+\.\d+", "T", line) for line in printed] == [re.sub(r"\d+\.\d+", "T", line) for line in shown]


def without_times(line: str) -> str:
    """The line with its first value and any rate blotted out; counts and names stay."""
    values = line.split(" ")
    return " ".join("T" if re.fullmatch(r"\d+\.\d+", v) and v != "3.000" else v for v in values)


def test_every_viewer_option_is_on_the_page() -> None:
    text = PAGE.read_text()
    for action in parser()._actions:
        if action.option_strings and "-h" not in action.option_strings:
            assert any(f"`{option}" in text for option in action.option_strings), action.option_strings
