"""Commands in the documents exist with the options that they are shown with, and the quick start's Python runs."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from deuteron.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@cache
def all_commands() -> Any:
    """The tree of commands."""
    return typer.main.get_command(app)


def shown_commands(page: Path) -> Iterator[list[str]]:
    """``deuteron`` command lines in code blocks and in backquotes, as words."""
    text = page.read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [li for block in blocks for li in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`(deuteron [^`]+)`", text)
    for line in lines:
        found = re.search(r"(?:^|docker compose run --rm \w+ |\$ )(deuteron .*)", line.strip())
        if found:
            words = shlex.split(found[1].partition(" #")[0].partition(" | ")[0])
            yield words[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_exist_with_their_options(page: Path):
    for words in shown_commands(page):
        command = all_commands()
        rest = list(words)
        while rest and getattr(command, "commands", None) is not None and rest[0][0] != "-":
            name = rest.pop(0)
            assert name in command.commands, f"{page.name}: deuteron {' '.join(words)}"
            command = command.commands[name]
        known = {o for p in command.params if p.param_type_name == "option" for o in p.opts}
        if not command.context_settings.get(
            "allow_interspersed_args", True
        ):  # what follows the first argument is of the script that it names
            rest = list(itertools.takewhile(lambda word: word.startswith("-"), rest))
        for word in rest:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in known | {"--help"}, f"{page.name}: {words}"


def test_the_quick_start_has_commands_at_all():
    assert len(list(shown_commands(ROOT / "docs" / "quick-start.md"))) > 10


def test_the_launch_of_the_quick_start_runs(bundle: Path, tmp_path: Path):
    text = (ROOT / "docs" / "quick-start.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    shutil.copy(bundle, tmp_path / "configs.bundle")
    (tmp_path / "launch.py").write_text(block)
    done = subprocess.run([sys.executable, "launch.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # The bundle of this test has another kernel.
    assert done.stdout.startswith("default no record of the kernel")
