"""Functions of compile-time values of the running program, and their text."""

from __future__ import annotations

import ast
import functools
import hashlib
import types
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ..errors import CompilationError, KernelMismatch
from ..language.builtin import is_builtin
from ..language.inline import ConstexprFunction
from .dependencies import CompileTimeNamespace
from .kernel import KernelSource, Sourced, at_compile_time

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class CompileTimeFunction(ConstexprFunction, Sourced):
    """A function of compile-time values: kernels call it while they are compiled, as Python does. Its text says what it
    depends on."""

    @functools.cached_property
    def source(self) -> KernelSource:
        """Its text; raises CompilationError where it cannot be read."""
        return at_compile_time(KernelSource.from_function(self.function), self.function)

    @property
    def runs(self) -> bool:
        """Not with another text, which kernels read instead."""
        return isinstance(self.source.namespace, CompileTimeNamespace)

    @property
    def src(self) -> str:
        """The source text, normalised and without decorators."""
        return self.source.text

    @property
    def cache_key(self) -> str:
        """A digest of the text, of everything that it reaches and of the line that it begins in, as kernels have it.

        Raises:
            KernelMismatch: the text reads what no kernel may use, so that nothing can be said of what it computes.
        """
        source = self.source
        outside = source.free_names - source.local_names
        paths = [n for n in ast.walk(source.node) if isinstance(n, ast.Name | ast.Attribute)]
        for path in paths:
            name = ast.unparse(path)
            if name.partition(".")[0] in outside and isinstance(path.ctx, ast.Load):
                self._check(name)
        return hashlib.sha256(f"{source.hash} {source.first_line}".encode()).hexdigest()

    def _check(self, name: str) -> None:
        first, *rest = name.split(".")
        try:
            value = self.source.namespace.lookup(first)
            for member in rest:
                if not hasattr(value, "member"):
                    return  # a value's own attribute
                value = value.member(member)
        except KeyError:
            return  # one of Python's, or an error that a compilation will locate
        except CompilationError as error:
            raise KernelMismatch(f"{self.__name__} has no key: {error.message}", hint=error.hint) from error

    def _unsafe_update_src(self, text: str) -> None:
        """Give the function another text; its globals and closure stay. Triton's name: kernels that were compiled with
        the earlier text keep it."""
        self.__dict__["source"] = KernelSource.from_replaced_text(text, self.function)


def constexpr_function(function: FunctionT) -> FunctionT:
    """Decorator for helpers that compute compile-time values, such as block sizes, from compile-time values.

    Kernels call it as the Python that it is, with plain values for ``tl.constexpr`` ones; tiles and pointers have no
    elements yet. What it depends on is read off its text, and off that of plain functions that it calls. Where a kernel
    is source text nothing is executed: there it consists of what the kernel language has. ``@tl.constexpr`` does the
    same. A function of the language, such as ``tl.core.get_int_dtype``, stays what it is: it takes compile-time values
    already.
    """
    if is_builtin(function):
        return function
    return cast(FunctionT, CompileTimeFunction(cast(types.FunctionType, function)))
