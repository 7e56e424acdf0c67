"""docs/cli.md documents every command and option: it is written from them."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from deuteron.cli.app import app
from deuteron.cli.reference import main, reference, walk

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == reference(), f"python -m deuteron.cli.reference {PAGE}"


def test_every_command_and_option_is_on_the_page():
    page = PAGE.read_text()
    for path, command in walk(typer.main.get_command(app), ("deuteron",)):
        start = page.index(f"## {' '.join(path)}\n")
        section = page[start : page.find("\n## ", start)]
        for parameter in command.params:
            for name in parameter.opts if parameter.param_type_name == "option" else ():
                assert name in section or name == "--help"
            assert getattr(parameter, "help", None), f"{path}: {parameter.name} has no help"


def test_options_are_no_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["-h"])
    assert caught.value.code == 0 and "--check" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_check_tells_a_page_that_is_not_current(tmp_path: Path, capsys):
    page = tmp_path / "cli.md"
    assert main([str(page), "--check"]) == 1
    assert main([str(page)]) == 0
    assert main([str(page), "--check"]) == 0
    page.write_text(page.read_text() + "more")
    assert main([str(page), "--check"]) == 1
    assert "out of date" in capsys.readouterr().err
