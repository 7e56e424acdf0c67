"""Imports say who knows whom: none hides in a function without a reason, and there are no cycles."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from import_graph import ROOMS, cycles, module_paths, own_imports  # type: ignore[import-not-found]  # noqa: E402

#: Rooms whose imports inside functions all have their reason beside them: all of them.
EXPLAINED = list(ROOMS)
#: Rooms whose modules are in no cycle, imports inside functions and for type checkers counted: all of them.
ACYCLIC = list(ROOMS)

#: A lowering and the parts that it is made of name each other's types; at run time the parts know no lowering. Tensors
#: have the types of members that are attached to them at run time.
MUTUAL_TYPES = {
    ("deuteron.compiler.language.tensor", "deuteron.compiler.language.members"),
    ("deuteron.compiler.targets.simt.machine", "deuteron.compiler.targets.simt.lowering"),
    ("deuteron.compiler.targets.simt.machine", "deuteron.compiler.targets.simt.vectors"),
    ("deuteron.compiler.targets.simt.vectors", "deuteron.compiler.targets.simt.lowering"),
}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
REASON = re.compile(r"# lazy: \S.{7,}")


def room_of(module: str) -> str:
    part = module.split(".")[1] if "." in module else ""
    return part if part in ROOMS else "deuteron"


def test_there_is_something_to_look_at() -> None:
    assert len(own_imports()) > 1500
    assert {room_of(found.importer) for found in own_imports()} == set(ROOMS)


@pytest.mark.parametrize("room", EXPLAINED)
def test_an_import_inside_a_function_says_why(room: str) -> None:
    """Only what is optional or slow is worth it: ``# lazy: httpx is for those who fetch``."""
    silent = {
        found.place
        for found in own_imports()
        if found.hidden and room_of(found.importer) == room and not REASON.search(found.line)
    }
    assert not silent, f"move these to the top, or say why not (# lazy: ...): {', '.join(sorted(silent))}"


def test_the_standard_library_is_imported_at_the_top() -> None:
    """Python has loaded most of it before the first line of ours."""
    hidden = []
    for path in module_paths().values():
        lines = path.read_text(encoding="utf-8").splitlines()
        for function in (node for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, FUNCTIONS)):
            for node in ast.walk(function):
                if names_of(node) & sys.stdlib_module_names and not REASON.search(lines[node.lineno - 1]):
                    hidden.append(f"{path}:{node.lineno}")
    assert not hidden, f"move these to the top, or say why not (# lazy: ...): {', '.join(hidden)}"


def names_of(node: ast.AST) -> set[str]:
    """The packages that an import names, other than our own by dots."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    absolute = isinstance(node, ast.ImportFrom) and not node.level
    return {str(node.module).partition(".")[0]} if absolute else set()


def test_a_reason_stands_at_an_import_inside_a_function() -> None:
    stray = [found.place for found in own_imports() if not found.hidden and "# lazy:" in found.line]
    assert not stray


@pytest.mark.parametrize("room", ACYCLIC)
def test_no_module_is_in_a_cycle(room: str) -> None:
    """A cycle through the compiler is the compiler's: it counts where the compiler is among the rooms."""
    edges: dict[str, set[str]] = defaultdict(set)
    for found in own_imports():
        if not (found.typing_only and (found.importer, found.imported) in MUTUAL_TYPES):
            edges[found.importer].add(found.imported)
    rooms = [{room_of(module) for module in cycle} for cycle in cycles(edges)]
    through = [
        cycle
        for cycle, inside in zip(cycles(edges), rooms, strict=True)
        if room in inside and (room == "compiler" or "compiler" not in inside)
    ]
    assert not through, "; ".join(" - ".join(cycle) for cycle in through)


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]
    assert cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
