"""Functions written in the kernel language itself. What their text means is for compiler/source/ to say."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeVar, overload

from ..python_text import remember
from .constexpr import unwrap
from .context import active, wrapping
from .typed import untyped


class Inlinable:
    """A function written in the kernel language, to be inlined where a kernel calls it."""

    #: What to say where its result is not used; None where that is nobody's business.
    unused: str | None = None

    def python(self) -> types.FunctionType | None:
        """The Python function behind it, for kernels that run as Python; None where there is only text."""
        return None


InlinableT = TypeVar("InlinableT", bound=Inlinable)


@overload
def must_use_result(function: InlinableT) -> InlinableT:
    """Without a reason."""


@overload
def must_use_result(function: str) -> Callable[[InlinableT], InlinableT]:
    """With a reason."""


def must_use_result(function: Inlinable | str) -> object:
    """Decorator above ``@jit``: a kernel that calls the function and drops the result is an error.

    ``@must_use_result("why")`` adds a sentence to the message.
    """

    def mark(marked: InlinableT, reason: str = "") -> InlinableT:
        marked.unused = reason
        return marked

    if isinstance(function, str):
        return lambda marked: mark(marked, function)
    return mark(function)


class InlinableFunction(Inlinable):
    """One that decorates a Python function."""

    def __init__(self, function: types.FunctionType) -> None:
        remember(function)
        self.function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def python(self) -> types.FunctionType:
        """The decorated function; there always is one."""
        return self.function


class LibraryFunction(InlinableFunction):
    """A function of the language that is written in the language; its identity is deuteron's version.

    Called from Python (an eager kernel) it runs as Python.
    """

    def __call__(self, *args: object, **kwargs: object) -> Any:
        context = active()
        if context is None or not context.sanitize_overflow:
            return self.function(*args, **kwargs)
        with wrapping(context):
            return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<deuteron.language.{self.__name__}>"


def library(function: Callable[..., object]) -> LibraryFunction:
    """Decorator for functions of the language that are written in it."""
    if not isinstance(function, types.FunctionType):
        raise TypeError("library decorates plain functions")
    return LibraryFunction(function)


class ConstexprFunction(InlinableFunction):
    """A function of compile-time values: kernels call it while they are compiled, as Python does."""

    @property
    def runs(self) -> bool:
        """Whether the Python function is what its text says."""
        return True

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.function(*map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()})

    def __repr__(self) -> str:
        return f"<constexpr function {self.__name__}>"


def _plain(value: object) -> object:
    """What a function of compile-time values is given: Python's numbers."""
    return untyped(unwrap(value))
