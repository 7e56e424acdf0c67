"""One function that is being compiled: its scope, and where errors point."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..errors import CompilationError, UnknownName, UnsupportedSyntax
from ..ir.builder import Builder
from ..ir.core import Block
from ..language.tensor import tensor
from ..source.kernel import KernelSource
from ..source.modules import suggest
from .python_builtins import PYTHON_BUILTINS
from .scope import LastIndex, LocalScope, Undefined

#: Stands for no value in a scope.
_MISSING = object()


#: Statements that one compilation may execute, inlined calls and unrolled loops included. A kernel takes hundreds.
MAX_STEPS = 200_000


class StepBudget:
    """Bounds the work of one compilation: kernel text may come from anywhere."""

    def __init__(self) -> None:
        self.steps = MAX_STEPS

    def spend(self, frame: Frame, node: ast.AST) -> None:
        """Count one statement; raises UnsupportedSyntax when there were too many."""
        self.steps -= 1
        if self.steps < 0:
            raise frame.error(
                node,
                f"the kernel executes more than {MAX_STEPS} statements at compile time",
                "use tl.range instead of tl.static_range, and fewer nested calls",
            )


@dataclass(frozen=True, slots=True)
class OpenConditional:
    """A conditional one side of which has left; what follows is compiled into the other side (see exits.py).

    ``blocks`` are its then and else sides, ``gone`` tells which one has left, with ``scope`` at its end.
    """

    node: ast.AST
    condition: tensor
    blocks: tuple[Block, Block]
    gone: int
    scope: LocalScope
    outer: Block


@dataclass(eq=False)
class Frame:
    """A function body under compilation. ``open`` are the conditionals that what follows is compiled into; those from
    ``mark`` on end where the innermost region ends. ``loops``: how many surround the statement being compiled.
    ``announced``: names that were declared to be ``tl.constexpr`` and have no value yet."""

    source: KernelSource
    builder: Builder
    budget: StepBudget
    scope: LocalScope = field(default_factory=LocalScope)
    open: list[OpenConditional] = field(default_factory=list)
    mark: int = 0
    loops: int = 0
    announced: set[str] = field(default_factory=set)

    def lookup(self, node: ast.Name) -> object:
        """What a name stands for: local, parameter, captured global, or one of Python's few known builtins."""
        name = node.id
        value = self.scope.names.get(name, _MISSING)
        if value is _MISSING:
            value = self._global(node)
        if isinstance(value, Undefined):
            error = UnknownName(f"{name!r} is not defined here: {value.why}", hint=value.hint)
            raise self.located(error, node)
        if isinstance(value, LastIndex):
            with self.at(node):
                return value.compute()
        return value

    def _global(self, node: ast.Name) -> object:
        if node.id not in self.source.free_names:
            raise self._unassigned(node)
        try:
            return self.source.namespace.lookup(node.id)
        except KeyError:
            if node.id in PYTHON_BUILTINS:
                return PYTHON_BUILTINS[node.id]
            if node.id in self.source.local_names:
                raise self._unassigned(node) from None
        except CompilationError as error:
            placed = self.located(error, node)
            raise placed from placed.__cause__
        known = {*self.scope.names, *PYTHON_BUILTINS} - {node.id}
        raise self.located(
            UnknownName(
                f"the name {node.id!r} is not defined",
                hint=suggest(node.id, known)
                or "kernels see their parameters, tl, tl.constexpr globals and other jit functions",
            ),
            node,
        )

    def _unassigned(self, node: ast.Name) -> CompilationError:
        message = f"{node.id!r} is not defined here: {self.source.name} assigns it, but not on the way to this place"
        return self.located(UnknownName(message, hint="assign it on every path"), node)

    def located(self, error: CompilationError, node: ast.AST) -> CompilationError:
        """``error`` with the place of ``node``, as :meth:`KernelSource.located`."""
        return self.source.located(error, node)

    def error(self, node: ast.AST, message: str, hint: str | None = None) -> UnsupportedSyntax:
        """An UnsupportedSyntax at ``node``."""
        return self.source.error(message, node, hint)

    @contextmanager
    def looping(self) -> Iterator[None]:
        """Inside the body of a loop."""
        self.loops += 1
        yield
        self.loops -= 1

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Stamp operations with the place of ``node``; errors without a place get it too."""
        outer = self.builder.location
        self.builder.location = self.source.locate(node)
        try:
            yield
        except CompilationError as error:
            placed = self.located(error, node)
            raise placed from placed.__cause__
        finally:
            self.builder.location = outer
