"""``deuteron bench``: the benchmarks of a checkout."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from deuteron.compiler.syntax import module_tree

from .errors import CommandError


def bench(
    name: Annotated[str | None, typer.Argument(help="Which one; none lists them.")] = None,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGUMENTS]", help="Passed on.")] = None,
) -> None:
    """Run a benchmark of the checkout that this command runs from.

    Example: `deuteron bench compile_time`
    """
    folder = benchmarks_folder()
    found = {path.stem: path for path in sorted(folder.glob("*.py")) if _is_program(path)}
    if name is None:
        for stem, path in found.items():
            typer.echo(f"{stem:20} {_first_line(path)}")
        return
    if name not in found:
        raise CommandError(f"there is no benchmark {name!r} in {folder}", hint=f"{', '.join(found) or 'none'}")
    finished = subprocess.run([sys.executable, found[name], *(arguments or ())], check=False)
    raise typer.Exit(finished.returncode)


def benchmarks_folder() -> Path:
    """``benchmarks/`` beside the source folders; raises CommandError where deuteron was installed from a wheel."""
    folder = Path(__file__).resolve().parents[2] / "benchmarks"
    if not folder.is_dir():
        raise CommandError(
            "benchmarks are not part of the installed package",
            hint="run this command from a checkout (pip install -e .)",
        )
    return folder


def _is_program(path: Path) -> bool:
    """Whether a file can be run: benchmarks also import modules of the same folder, which measure nothing."""
    return "\nif __name__ ==" in path.read_text(encoding="utf-8")


def _first_line(path: Path) -> str:
    try:
        text = ast.get_docstring(module_tree(path.read_text(encoding="utf-8"))) or ""
    except (OSError, SyntaxError):
        return ""
    return text.partition("\n")[0]
