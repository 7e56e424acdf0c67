"""Functions written in the kernel language itself."""

from __future__ import annotations

import types
from functools import cached_property
from typing import TYPE_CHECKING

from .constexpr import unwrap

if TYPE_CHECKING:
    from ..frontend.source import KernelSource


class Inlinable:
    """A function written in the kernel language, to be inlined where a kernel calls it."""

    def python(self) -> types.FunctionType | None:
        """The Python function behind it, for kernels that run as Python; None where there is only text."""
        return None

    @property
    def source(self) -> KernelSource:
        raise TypeError(f"{type(self).__name__} must define source")


class LibraryFunction(Inlinable):
    """A function of the language that is written in the language; its identity is deuteron's version.

    Called from Python (an eager kernel) it runs as Python.
    """

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def python(self) -> types.FunctionType:
        return self.function

    @cached_property
    def _parsed(self) -> KernelSource:
        from ..frontend.source import KernelSource

        return KernelSource.from_function(self.function)

    @property
    def source(self) -> KernelSource:
        return self._parsed

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<deuteron.language.{self.__name__}>"


def library(function: object) -> LibraryFunction:
    """Decorator for functions of the language that are written in it."""
    if not isinstance(function, types.FunctionType):
        raise TypeError("library decorates plain functions")
    return LibraryFunction(function)


class ConstexprFunction(Inlinable):
    """A function of compile-time values: kernels evaluate it while they are compiled, Python calls it as it is."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def python(self) -> types.FunctionType:
        return self.function

    @cached_property
    def source(self) -> KernelSource:
        from ..frontend.source import KernelSource

        return KernelSource.from_function(self.function)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.function(*map(unwrap, args), **{k: unwrap(v) for k, v in kwargs.items()})

    def __repr__(self) -> str:
        return f"<constexpr function {self.__name__}>"


def constexpr_function(function: types.FunctionType) -> ConstexprFunction:
    """Decorator for helpers that compute compile-time values, such as block sizes, from compile-time values.

    Kernels see its text, as they see that of jit functions, so it consists of what the kernel language has.
    """
    return ConstexprFunction(function)
