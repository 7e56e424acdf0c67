"""Who imports whom, read from the source texts: at module level, inside functions, and for type checkers only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("compiler", "profiler", "tuner", "server", "migrations", "deuteron")
#: What an import may stand in: an expression holds none.
_HOLD_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


@dataclass(frozen=True)
class OwnImport:
    """One import of a module of ours. ``hidden``: inside a function; ``line`` is the text of the statement."""

    importer: str
    imported: str
    path: Path
    number: int
    line: str
    hidden: bool
    typing_only: bool

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.number}"


def module_paths(*rooms: str) -> dict[str, Path]:
    """Dotted name -> file of every module in the rooms. Kernel texts are data and no modules."""
    found = {}
    for room in rooms or ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts if parts[0] == "deuteron" else ("deuteron", *parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if ".workloads.kernels." not in name:
                found[name] = path
    return found


@cache
def own_imports() -> list[OwnImport]:
    """Every import of a module of ours by a module of ours."""
    modules = module_paths()
    return [found for name, path in modules.items() for found in _imports(name, path, modules)]


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components with more than one node (Tarjan's algorithm), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            component, stack[at:] = stack[at:], []
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def _imports(name: str, path: Path, modules: dict[str, Path]) -> Iterator[OwnImport]:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node, hidden, typing_only in _statements(ast.parse(text)):
        for imported in _targets(node, package, modules):
            if imported != name:
                line = " ".join(lines[node.lineno - 1 : node.end_lineno])
                yield OwnImport(name, imported, path, node.lineno, line, hidden, typing_only)


def _statements(tree: ast.AST) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """(import, inside a function, under ``if TYPE_CHECKING``)."""

    def walk(
        node: ast.AST, hidden: bool, typing_only: bool
    ) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield child, hidden, typing_only
            elif isinstance(child, _HOLD_STATEMENTS):
                function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
                yield from walk(child, hidden or function, typing_only or checking)

    yield from walk(tree, False, False)


def _targets(node: ast.Import | ast.ImportFrom, package: str, modules: dict[str, Path]) -> set[str]:
    """The modules of ours that a statement needs: a submodule where the name is one, else the package itself."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names if alias.name in modules}
    base = node.module or ""
    if node.level:
        parts = package.split(".")
        base = ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
    found = set()
    for alias in node.names:
        below = f"{base}.{alias.name}"
        found |= {below} if below in modules else {base} & modules.keys()
    return found
