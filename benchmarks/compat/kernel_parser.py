"""What Triton's frontend tests ask of its parser: whether a kernel compiles, without arguments of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deuteron.compiler.frontend.lower import lower
from deuteron.compiler.ir.core import Function
from deuteron.compiler.source.kernel import Sourced


def run_parser(kernel: Sourced, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None) -> Function:
    """The tile function of a kernel whose arguments are all known while compiling; raises CompilationError."""
    names = [argument.name for argument in kernel.source.arguments]
    return lower(kernel.source, {}, {**dict(zip(names, args, strict=False)), **(kwargs or {})})
