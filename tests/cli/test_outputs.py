"""A file that a command writes is whole: where the disk is full the earlier one stays."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deuteron.tuner import write_bundle

from .test_cover import TIMES, write_journal

Run = Callable[..., Any]
ROOT = Path(__file__).parents[2]
ADD = ROOT / "examples/vector_add.py"
SPACE = ROOT / "tests/tuner/data/convolution-A4000-sample.json"


@pytest.mark.parametrize(
    "command",
    [
        ["compile", f"{ADD}:add_kernel", "-o"],
        ["explain", f"{ADD}:add_kernel", "-o"],
        ["cover", "vector_add_kernel", "--from", "{folder}", "--format", "json", "-o"],
        ["replay", SPACE, "--strategy", "random", "--budget", "3", "--seeds", "1", "--json"],
        ["replay", SPACE, "--strategy", "random", "--budget", "3", "--seeds", "1", "--plot"],
        ["space", "vector_add", "--save-workload"],
        ["cache", "export", "{folder}/empty.bundle", "-o"],
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_a_full_disk_leaves_the_earlier_file(
    run: Run, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(tmp_path / "empty.bundle", [])
    write_journal(tmp_path, TIMES)
    (tmp_path / "out").mkdir()
    output = tmp_path / "out/file"
    output.write_text("earlier")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    ran = run(*(str(part).format(folder=tmp_path) for part in command), output)
    assert ran.code == 2 and f"cannot write {output}: No space left on device" in ran.err
    assert output.read_text() == "earlier" and os.listdir(output.parent) == ["file"]
