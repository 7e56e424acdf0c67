"""Names in bundles, kernels, devices and keys are printed as they are: no markup, no orders for a terminal."""

from __future__ import annotations

import ast
import csv
import hashlib
import json
from pathlib import Path

import pytest

import deuteron.cli
from deuteron.tuner import read_bundle, write_bundle

#: Markup that would be an error, markup that would vanish, an emoji, a terminal's title, a line of its own.
NAME = "[/x][bold]k[/bold]:smile:\x1b]0;title\x07\x9b31m\u202e"
SHOWN = r"[/x][bold]k[/bold]:smile:\x1b]0;title\x07\x9b31m\u202e"


def control_characters(text: str) -> set[str]:
    return {c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e")}


@pytest.fixture
def strange(bundle: Path, tmp_path: Path) -> Path:
    """A bundle in which everything that may be any text is such a name."""
    from msgspec.structs import replace

    (record,) = list(read_bundle(bundle).records())[:1]
    device = replace(record.device, name=NAME)
    path = tmp_path / "strange.bundle"
    write_bundle(path, [replace(record, kernel_name=NAME, device=device, dtype=NAME, config={NAME: NAME})])
    return path


def test_a_bundle(run, strange: Path):
    shown = run("cache", "show", strange)
    assert shown.code == 0, shown.err
    assert control_characters(shown.out) == set()
    words = "".join(shown.out.split())
    assert words.count(SHOWN) >= 3, "kernel, and name and value of the configuration"
    refused = run("cache", "lookup", "other", "--shape", "n=1", "--bundle", strange)
    assert refused.code == 2 and SHOWN in refused.err and control_characters(refused.err) == set()
    found = run(
        "cache", "lookup", next(read_bundle(strange).records()).kernel_hash, "--shape", "n=65536", "--bundle", strange
    )
    assert found.code == 0 and control_characters(found.out) == set()


@pytest.mark.parametrize("begins", ["=", "+", "-", "@", "\t=", "\r=", "\uff1d"])
def test_a_table_for_spreadsheets(run, bundle: Path, tmp_path: Path, begins: str):
    """No cell of text is a formula, or gives the terminal orders; numbers stay numbers."""
    from msgspec.structs import replace

    (record,) = list(read_bundle(bundle).records())[:1]
    name = f"{begins}cmd|' /C calc'!A0\x1b[2J"
    write_bundle(tmp_path / "b", [replace(record, kernel_name=name, dtype=name, shape={name: 1}, shape_key="")])
    ran = run("cache", "export", tmp_path / "b", "--format", "csv")
    assert ran.code == 0 and control_characters(ran.out) == set()
    (row,) = csv.DictReader(ran.out.splitlines())
    for column in ("kernel", "dtype", "shape"):
        assert row[column][0] == ("\\" if begins[0] in "\t\r" else "'") and r"\x1b[2J" in row[column]
    assert float(row["time_ns"]) == record.time_ns.median and json.loads(row["config"]) == record.config


@pytest.mark.parametrize("service", [NAME, "a\nsigned by a friend", "\ud800"])
def test_who_wrote_a_bundle(run, strange: Path, service: str):
    """One line, whatever the manifest says; halves of surrogate pairs are in no encoding."""
    head, *lines = strange.read_bytes().splitlines(keepends=True)
    fields = {**json.loads(head), "service": service}
    strange.write_bytes(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() + b"\n" + b"".join(lines))
    shown = run("cache", "show", strange, "--allow-unsigned")
    assert shown.code == 0, shown.err
    assert control_characters(shown.out) == set()
    assert not any(line.startswith("signed by") for line in shown.out.splitlines())
    refused = run("cache", "show", strange)
    assert refused.code == 2 and control_characters(refused.err) == set()


def test_keys(run):
    trusted = run("keys", "trust", "ab" * 32, "--name", NAME)
    assert f"({SHOWN}) is trusted" in trusted.out
    listed = run("keys", "list")
    assert listed.code == 0 and SHOWN in "".join(listed.out.split())
    assert control_characters(listed.out) == set()
    assert f"({SHOWN})" in run("keys", "forget", hashlib.sha256(bytes.fromhex("ab" * 32)).hexdigest()[:12]).out


def test_every_table_is_printed_by_the_console_that_takes_text_as_it_is():
    """No command makes a console or a table of rich's own."""
    makers = {"output.py", "literal_console.py"}
    for path in Path(deuteron.cli.__file__).parent.rglob("*.py"):
        if path.name in makers:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                assert node.module not in ("rich", "rich.console", "rich.table", "rich.markup"), f"{path}:{node.lineno}"
