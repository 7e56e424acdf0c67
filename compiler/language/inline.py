"""Functions written in the kernel language itself."""

from __future__ import annotations

import types
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..frontend.source import KernelSource


class Inlinable:
    """A function written in the kernel language, to be inlined where a kernel calls it."""

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
