"""FILE:KERNEL arguments: the file is read as text and never executed."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from deuteron.compiler.syntax import module_tree

from .errors import CommandError, no_file

if TYPE_CHECKING:
    from deuteron.compiler import KernelSource


def split_kernel(text: str) -> tuple[Path, str | None]:
    """``file.py:kernel`` into path and name; the name is None for a file alone."""
    file, colon, name = text.rpartition(":")
    if colon and name.isidentifier():
        return Path(file), name
    return Path(text), None


def read_kernel(text: str) -> KernelSource:
    """The kernel that ``FILE:KERNEL`` names; a file with one kernel needs no name.

    Raises:
        CommandError: there is no such file, or it has several kernels and none was named.
        CompilationError: the file is not Python, or has no such kernel.
    """
    from deuteron.compiler import KernelSource  # lazy: help starts without the compiler

    path, name = split_kernel(text)
    return KernelSource.from_file(existing_file(path), name or _only_kernel(path))


def existing_file(path: Path) -> Path:
    """``path``; raises CommandError where it is no file."""
    if not path.is_file():
        raise CommandError(no_file(path), hint="name the kernel as FILE:KERNEL")
    return path


def _only_kernel(path: Path) -> str:
    try:
        tree = module_tree(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return ""  # from_file says what is wrong, with its place
    kernels = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(d).partition("(")[0].endswith("jit") for d in node.decorator_list)
    ]
    if len(kernels) == 1:
        return kernels[0]
    raise CommandError(
        f"{path} has {len(kernels) or 'no'} kernels{': ' if kernels else ''}{', '.join(kernels)}",
        hint=f"name one: {path}:{kernels[0]}" if kernels else "kernels are decorated with @jit",
    )


def is_described(path: Path) -> bool:
    """Whether a file says how its kernels are launched: ``workload = {...}`` at its top level."""
    try:
        tree = module_tree(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return False  # who reads the kernel says what is wrong, with its place
    targets = [t for s in tree.body if isinstance(s, ast.Assign) for t in s.targets]
    return any(isinstance(t, ast.Name) and t.id in ("workload", "workloads") for t in targets)
