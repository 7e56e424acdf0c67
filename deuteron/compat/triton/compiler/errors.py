"""Errors in kernels under Triton's names."""

from deuteron.compat.triton.errors import TritonError
from deuteron.compiler.errors import CompilationError, CompileTimeAssertionFailure
from deuteron.compiler.errors import UnsupportedSyntax as UnsupportedLanguageConstruct

__all__ = ["CompilationError", "CompileTimeAssertionFailure", "TritonError", "UnsupportedLanguageConstruct"]
