"""How many cores a process may use, and where a thread beside this one runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deuteron.compiler import cores


@pytest.mark.parametrize(
    ("text", "share"),
    [("200000 100000\n", 2), ("150000 100000\n", 2), ("5000 100000\n", 1), ("max 100000\n", None), ("", None)],
)
def test_the_share_of_a_container(tmp_path: Path, text: str, share: int | None) -> None:
    path = tmp_path / "cpu.max"
    path.write_text(text)
    assert cores.share_of_cores(path) == share
    assert cores.share_of_cores(tmp_path / "no such file") is None


def test_usable_cores_are_those_of_the_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cpu.max"
    path.write_text("100000 100000")
    monkeypatch.setattr(cores, "_SHARE", path)
    assert cores.usable_cores() == 1
    monkeypatch.setattr(cores, "_SHARE", tmp_path / "none")
    if hasattr(os, "sched_getaffinity"):
        assert cores.usable_cores() == len(os.sched_getaffinity(0))


def test_cores_beside_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: {0, 1, 5}, raising=False)
    monkeypatch.setattr(cores, "_core_asked", lambda: lambda: 1)
    assert cores.cores_beside() == cores.Cores({0, 1, 5}, {0, 5})
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: {1}, raising=False)
    assert cores.cores_beside() is None
    monkeypatch.setattr(cores, "_core_asked", lambda: None)
    assert cores.cores_beside() is None
