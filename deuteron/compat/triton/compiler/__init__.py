"""Compiling ahead of time."""

from deuteron.compat.triton.compiler import errors as errors
from deuteron.compat.triton.compiler.compiler import ASTSource, IRSource, compile, make_backend
from deuteron.compiler import CompiledKernel
from deuteron.compiler.errors import CompilationError

__all__ = ["ASTSource", "CompilationError", "CompiledKernel", "IRSource", "compile", "make_backend"]
