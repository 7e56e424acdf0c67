"""Steps behind an import that somebody else makes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from deuteron.compat.after_import import after_import


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that nobody has imported."""
    name = "imported_late"
    (tmp_path / f"{name}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield name
    sys.modules.pop(name, None)


def test_a_step_follows_the_text_of_the_module_once(late: str) -> None:
    seen: list[int] = []
    finders = list(sys.meta_path)
    after_import(late, lambda module: seen.append(module.value))
    assert seen == []
    made = importlib.import_module(late)
    assert seen == [1] and sys.meta_path == finders
    importlib.reload(made)
    assert seen == [1]


def test_a_module_that_is_there_already_is_not_waited_for(late: str) -> None:
    importlib.import_module(late)
    seen: list[int] = []
    after_import(late, lambda module: seen.append(module.value))
    assert seen == [1]


def test_a_module_that_imports_who_asks_for_it_is_waited_for(late: str, tmp_path: Path) -> None:
    """As PyTorch's Dynamo imports triton where a started process has not done so."""
    (tmp_path / f"{late}.py").write_text(
        "import sys\nfrom deuteron.compat.after_import import after_import\nseen = []\n"
        "for name in 'first', 'second':\n"
        "    after_import(__name__, lambda module, name=name: seen.append((name, module.value)))\n"
        "value = 1\n"
    )
    made = importlib.import_module(late)
    assert made.seen == [("first", 1), ("second", 1)]
    assert type(made.__spec__) is ModuleSpec and not hasattr(made.__spec__, "_waiting")


def test_a_module_whose_text_fails_is_not_stepped_on(late: str, tmp_path: Path) -> None:
    (tmp_path / f"{late}.py").write_text(
        "from deuteron.compat.after_import import after_import\n"
        "def step(module):\n    raise AssertionError('a step')\n"
        "after_import(__name__, step)\nraise LookupError('the text')\n"
    )
    with pytest.raises(LookupError, match="the text"):
        importlib.import_module(late)
