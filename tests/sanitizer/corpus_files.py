"""The corpus: each file has a kernel with one mistake, ``faulty``, and its twin without, ``right``.

``launch(kernel)`` runs either. A comment ``# BUG kind: array; kind: array`` stands at a line where the mistake shows; a
race may be reported at any of its lines.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

CORPUS = Path(__file__).parent / "corpus"
_MARK = re.compile(r"# BUG (.*)$")


@dataclass(frozen=True)
class FaultyKernel:
    """One file of the corpus."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def module(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"corpus_{self.name}", self.path)
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made

    @property
    def description(self) -> str:
        """Area and mistake: the first line of the file."""
        return self.path.read_text().split('"""')[1]

    @property
    def expected(self) -> dict[tuple[str, str], set[int]]:
        """(kind, array) -> lines where it may be reported: those of the statements with a mark."""
        found: dict[tuple[str, str], set[int]] = {}
        text = self.path.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            mark = _MARK.search(line)
            for part in mark[1].split(";") if mark else ():
                kind, _, array = part.partition(":")
                found.setdefault((kind.strip(), array.strip()), set()).update(_statement(ast.parse(text), number))
        return found


def _statement(tree: ast.Module, line: int) -> range:
    """The lines of the innermost statement at ``line``, of one with a body those before it."""
    spans = [
        range(node.lineno, node.body[0].lineno if hasattr(node, "body") else node.end_lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
    ]
    return min((span for span in spans if line in span), key=len)


def corpus() -> list[FaultyKernel]:
    return [FaultyKernel(path) for path in sorted(CORPUS.glob("*.py"))]


def table() -> str:
    """The corpus as a table in Markdown, as docs/sanitizer.md shows it."""
    lines = ["| kernel | area: mistake | reported as |", "|---|---|---|"]
    for case in corpus():
        kinds = ", ".join(f"{kind} of `{array}`" if array else kind for kind, array in case.expected)
        lines.append(f"| `{case.name}` | {case.description} | {kinds} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
