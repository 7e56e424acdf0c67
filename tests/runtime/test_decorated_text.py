"""Kernels are what their files said when they were decorated, whatever is saved there later."""

from __future__ import annotations

import importlib.util
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from deuteron.compiler import knobs
from deuteron.compiler.errors import CompilationError

HEAD = "import deuteron\nimport deuteron.language as tl\n"
FIRST = "@deuteron.jit\ndef first(x):\n    n = 1\n    tl.store(x, n)\n"
SECOND = "@deuteron.jit\ndef second(x):\n    n = 2\n    tl.store(x, n)\n"
HELPED = """
@{decorator}
def width(n):
    return n + 1
@deuteron.jit
def helped(x):
    tl.store(x, width(2))
"""

Import = Callable[[str], ModuleType]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return tmp_path / "saved_module.py"


@pytest.fixture
def load(saved: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """The module of a text; what was there before is another module."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def imported(text: str) -> ModuleType:
        saved.write_text(text)
        spec = importlib.util.spec_from_file_location("saved_module", saved)
        assert spec and spec.loader
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "saved_module", made)
        spec.loader.exec_module(made)
        return made

    yield imported
    linecache.clearcache()


def stored(kernel: object) -> float:
    x = np.zeros(1, np.float32)
    kernel[(1,)](x)  # type: ignore[index]
    return float(x[0])


@pytest.mark.parametrize("interpret", [False, True])
def test_functions_that_change_places(saved: Path, load: Import, interpret: bool) -> None:
    module = load(HEAD + FIRST + SECOND)
    saved.write_text(HEAD + SECOND.replace("2", "22") + FIRST)
    with knobs.interpret.scope(interpret):
        assert (stored(module.first), stored(module.second)) == (1, 2)


@pytest.mark.parametrize("decorator", ["deuteron.jit", "deuteron.constexpr_function"])
def test_helpers_of_kernels(saved: Path, load: Import, decorator: str) -> None:
    module = load(HEAD + HELPED.format(decorator=decorator))
    saved.write_text(HEAD + HELPED.format(decorator=decorator).replace("+ 1", "+ 100"))
    assert stored(module.helped) == 3


def test_a_file_that_is_gone(saved: Path, load: Import) -> None:
    module = load(HEAD + FIRST)
    saved.unlink()
    assert stored(module.first) == 1


def test_a_module_that_is_imported_again(saved: Path, load: Import) -> None:
    before = load(HEAD + FIRST)
    after = load(HEAD + "\n" + FIRST.replace("n = 1", "n = 100"))
    assert (stored(before.first), stored(after.first)) == (1, 100)


def test_messages_show_the_lines_that_were_decorated(saved: Path, load: Import) -> None:
    module = load(HEAD + FIRST.replace("n = 1", "n = nothing"))
    saved.write_text("\n" * 20)
    with pytest.raises(CompilationError, match=rf"{saved.name}:5:9: .*\n    n = nothing"):
        stored(module.first)


PLAIN = "def plain(n):\n    return n\n"
CALLS_PLAIN = HEAD + PLAIN + HELPED.format(decorator="deuteron.constexpr_function").replace("n + 1", "plain(n)")


@pytest.mark.parametrize("change", [("plain(n):", "other(n):"), ("return n\n", "return -n\n")])
def test_a_plain_function_whose_file_has_changed(saved: Path, load: Import, change: tuple[str, str]) -> None:
    """Nobody decorated it, so there is no text of it: it is what runs, and not what its file says by now."""
    module = load(CALLS_PLAIN)
    saved.write_text(CALLS_PLAIN.replace(*change))
    assert stored(module.helped) == 2
    found = module.helped.source.hash
    assert found != load(CALLS_PLAIN.replace("return n\n", "return -n\n")).helped.source.hash


def test_no_text_is_an_error_of_the_launch_alone() -> None:
    names: dict[str, object] = {}
    exec(HEAD + FIRST, names)  # noqa: S102 -- the text above
    with pytest.raises(CompilationError, match="the source of first is not available"):
        stored(names["first"])


def test_a_lambda_is_no_kernel(load: Import) -> None:
    module = load(HEAD + "first = 1; second = deuteron.jit(lambda x: x)\n")
    with pytest.raises(CompilationError, match="is not a plain function"):
        stored(module.second)
