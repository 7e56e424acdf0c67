"""Scopes inside kernels (``deuteron.profiler.language``): what a profiler with the backend "instrumentation" measures.

A kernel that is not profiled that way has no code for them.
"""

from __future__ import annotations

from ..errors import CompilationError, TypeMismatch
from ..tile.records import Record
from .builtin import builtin
from .context import current

__all__ = ["enter_scope", "exit_scope", "scope"]


@builtin
def enter_scope(name: str) -> None:
    """Begin the scope ``name``, a string known at compile time, inside those that are open."""
    current().builder.emit(Record(None, _checked(name, "enter_scope"), True))


@builtin
def exit_scope(name: str) -> None:
    """End the scope ``name``: the one that was begun last, in the same branch or loop body."""
    current().builder.emit(Record(None, _checked(name, "exit_scope"), False))


class KernelScope:
    """``with scope("name"):`` in a kernel: the scope is the block."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        enter_scope(self.name)

    def __exit__(self, *raised: object) -> None:
        exit_scope(self.name)


#: The name that Triton's users write.
scope = KernelScope


def _checked(name: object, function: str) -> str:
    if not isinstance(name, str):
        raise TypeMismatch(
            f"{function} takes a name that is known at compile time, got {name!r}",
            hint='write the name as a string: pl.enter_scope("load")',
        )
    if not name:
        raise CompilationError(f"{function}: a scope needs a name", hint='such as pl.enter_scope("load")')
    return name
