"""``deuteron view``: what it writes and says, and that a script runs as Python would run it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from deuteron.cli.view import parse_programs


def data_of(path: Path) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(found[1])


def test_a_page_is_written(run, script: Path) -> None:
    ran = run("view", script, "32,32", "--size", "-x")
    assert ran.code == 0, ran.err
    assert ran.out == "arguments 32,32 --size -x __main__\n"
    assert ran.err == "recorded 8 accesses with 128 elements in 2 launches\nwrote user.accesses.html\n"
    launches = data_of(script.parent / "user.accesses.html")["launches"]
    assert [(launch["kernel"], launch["number"], len(launch["accesses"])) for launch in launches] == [
        ("copy", 1, 4), ("copy", 2, 4),
    ]  # fmt: skip


def test_the_page_is_where_it_was_asked_for_whatever_folder_the_script_goes_to(run, script: Path) -> None:
    script.write_text(f"{script.read_text()}\nimport os\nos.chdir('/')\n")
    ran = run("view", "-o", "page.html", script, "32")
    assert ran.code == 0 and "wrote page.html" in ran.err
    assert (script.parent / "page.html").exists()


def test_options_choose_what_is_recorded(run, script: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    ran = run("view", "-o", out, "--kernel", "copy", "--launch", "2", "--programs", "1", script, "32,24")
    assert ran.code == 0, ran.err
    (launch,) = data_of(out)["launches"]
    assert (launch["number"], {access[1] for access in launch["accesses"]}) == (2, {1})
    assert "note: 1 of 2 launches were asked for" in ran.err
    assert f"out of bounds: copy, launch 2: 8 elements of a store at {script}:13:5" in ran.err
    assert data_of(out)["notes"] == [
        "1 of 2 launches were asked for",
        "launch 2 of copy: 1 of 2 programs were asked for",
    ]


def test_a_script_that_fails_leaves_a_page_of_what_it_did(run, script: Path) -> None:
    ran = run("view", script, "32", "fail")
    assert ran.code == 2
    assert "ValueError: no more" in ran.err, "the script's own error, as Python shows it"
    assert (
        f"error: {script} did not run to its end" in ran.err and "what ran before is in user.accesses.html" in ran.err
    )
    page = data_of(script.parent / "user.accesses.html")
    assert len(page["launches"][0]["accesses"]) == 4 and "did not run to its end" in page["notes"][-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kernel", "other"), "launched no kernel called other"),
        (("--launch", "7"), "has no launch of that number"),
        (("--programs", "3-1"), "'3-1' is no program"),
        (("--programs", "x"), "give numbers and ranges as 0,5,8-15, or all"),
        (("--programs", "0-9999999"), "more than a million programs"),
        (("-o", "no/such/folder.html"), "there is no folder"),
        (("--most-elements", "0"), "should be greater than or equal to 1"),
    ],
)
def test_bad_options_are_errors(run, script: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = run("view", *arguments, script, "32")
    assert ran.code == 2 and "Traceback" not in ran.err
    assert said in " ".join(ran.err.replace("│", " ").split())


def test_nothing_to_record(run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("print(1)\n")
    ran = run("view", empty)
    assert ran.code == 2 and "launched no kernel: nothing was recorded" in ran.err.replace("\n", " ")
    assert run("view", tmp_path / "missing.py").code == 2


def test_lists_of_programs() -> None:
    assert parse_programs("all") is None
    assert parse_programs("0, 5,8-10") == {0, 5, 8, 9, 10}
