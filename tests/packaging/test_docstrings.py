"""Public functions without a docstring may only become fewer, and what docstrings say is raised can be raised."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: How many public functions of each folder have none. Lower a number when you have written some; never raise one.
WITHOUT = {"compiler": 87, "profiler": 2, "tuner": 13, "server": 26, "deuteron": 2, "migrations": 2}


def public_functions(folder: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """(place, function) of functions of modules and of public classes, names with an underscore in front left out.
    Kernel texts are data."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        if "workloads/kernels" in path.as_posix():
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            inside = node.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else [node]
            for item in inside:
                if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and not item.name.startswith("_"):
                    yield f"{path.relative_to(ROOT)}:{item.lineno} {item.name}", item


@pytest.mark.parametrize("folder", sorted(WITHOUT))
def test_no_new_function_without_a_docstring(folder: str) -> None:
    silent = [place for place, function in public_functions(folder) if ast.get_docstring(function) is None]
    allowed = WITHOUT[folder]
    assert len(silent) <= allowed, f"{len(silent)} without a docstring, {allowed} before:\n" + "\n".join(silent)


def test_most_functions_are_looked_at() -> None:
    assert sum(1 for folder in WITHOUT for _ in public_functions(folder)) > 1800


_SECTION = re.compile(r"Raises:\n((?: {4}.*\n?)+)")
_IN_SECTION = re.compile(r"^ {4}([A-Z]\w+):", re.M)
_IN_TEXT = re.compile(r"[Rr]aises (?:an? )?(?::class:`[~.]*(?:\w+\.)*)?([A-Z][a-z]\w+)\b")


def classes_and_docstrings() -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """The names of the bases of every class, and (place, docstring)."""
    bases: dict[str, list[str]] = {}
    texts = []
    for path in (path for folder in WITHOUT for path in sorted((ROOT / folder).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                texts.append((f"{path.relative_to(ROOT)}:{node.lineno}", ast.get_docstring(node) or ""))
    return bases, texts


def test_what_docstrings_say_is_raised_is_an_exception() -> None:
    bases, texts = classes_and_docstrings()

    def is_exception(name: str) -> bool:
        known = getattr(builtins, name, None)
        if isinstance(known, type):
            return issubclass(known, BaseException)
        return any(is_exception(base) or base.endswith(("Error", "Exception")) for base in bases.get(name, ()))

    wrong = []
    for place, text in texts:
        section = _SECTION.search(text + "\n")
        names = {*_IN_TEXT.findall(text), *(_IN_SECTION.findall(section[1]) if section else ())}
        wrong += [f"{place}: {name}" for name in sorted(names) if not is_exception(name)]
    assert sum("aises" in text for _, text in texts) > 300
    assert wrong == []
