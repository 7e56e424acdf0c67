"""Where the functions of the language emit their operations.

``tl.load`` and friends look the same inside a compiled kernel and inside one that runs eagerly under the interpreter;
what differs is the active :class:`Context`.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import CompilationError
from ..ir.core import Value

if TYPE_CHECKING:
    from ..errors import Location
    from ..ir.builder import OpT
    from ..ir.core import Block
    from ..target import Target


class OpEmitter(Protocol):
    """What a builder does for the language: take operations. The eager builder evaluates them at once."""

    location: Location | None

    def emit(self, op: OpT) -> OpT:
        """Take ``op``, at ``location``, and hand it back with its results."""
        ...


class Context(Protocol):
    """One kernel that is being compiled or run eagerly."""

    debug: bool  # emit device assertions
    sanitize_overflow: bool  # and those that integers did not overflow (see overflow.py)
    target: Target | None  # what is compiled for; None where nothing is
    num_warps: int | None  # warps of a program; None where nothing is compiled
    quiet: bool  # warn of nothing: it is no kernel of anybody's
    told_warps: int | None  # those that the program was told; None where it did not ask

    @property
    def builder(self) -> OpEmitter:
        """Where operations go; its ``location`` is set to the source line that emits them."""
        ...

    def call(self, function: object, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Call a jit function: inlined when compiling, executed when eager."""
        ...

    def region(self, function: object, args: Sequence[Value], block: Block) -> None:
        """Compile a call of ``function`` with ``args`` into ``block``, ended by a yield of its results."""
        ...

    def read(self, value: Value) -> int | float | bool:
        """The number a scalar holds; only an eager context knows."""
        ...

    def show(self, value: Value) -> str | None:
        """The elements of a value as text; None when compiling."""
        ...

    def report(self, text: str) -> None:
        """Show a compile-time message (tl.static_print)."""
        ...


class _State(threading.local):
    context: Context | None = None


#: Each thread's context.
state = _State()


def current() -> Context:
    """The active context; raises CompilationError outside a kernel."""
    if state.context is None:
        raise CompilationError(
            "functions of deuteron.language work inside kernels only",
            hint="decorate the function with @deuteron.jit and launch it: kernel[grid](...)",
        )
    return state.context


def active() -> Context | None:
    """The active context; None outside a kernel."""
    return state.context


@contextmanager
def wrapping(context: Context) -> Iterator[None]:
    """Integers wrap in what is emitted meanwhile: the arithmetic of the language's own functions means to."""
    outer, context.sanitize_overflow = context.sanitize_overflow, False
    try:
        yield
    finally:
        context.sanitize_overflow = outer


@contextmanager
def activate(context: Context) -> Iterator[Context]:
    """Make ``context`` the active one in this thread."""
    outer, state.context = state.context, context
    try:
        yield context
    finally:
        state.context = outer


def warn(message: str, where: Location | None = None) -> None:
    """A UserWarning at a line of the kernel: as one that its module gives itself there, so that Python's filters, and
    its rule to show a warning once in each place, hold. ``where``: that of the operations being emitted."""
    if current().quiet:
        return
    where = where or current().builder.location
    if where is None:
        warnings.warn(message, stacklevel=3)
        return
    found = (m for m in list(sys.modules.values()) if getattr(m, "__dict__", {}).get("__file__") == where.file)
    module = next(found, None)
    registry = _shown.setdefault(where.file, {}) if module is None else vars(module).setdefault(_REGISTRY, {})
    name = where.file if module is None else module.__name__
    warnings.warn_explicit(message, UserWarning, where.file, where.line, name, registry)


#: Where Python notes which warnings a module has given.
_REGISTRY = "__warningregistry__"
#: The same of texts that are no modules, by the names of their files.
_shown: dict[str, dict[Any, Any]] = {}
