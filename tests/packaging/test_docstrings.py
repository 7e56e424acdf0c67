"""Public functions without a docstring may only become fewer."""

from __future__ import annotations

import ast
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
